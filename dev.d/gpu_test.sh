#!/usr/bin/env bash
# The tests of CUDA on a machine's own driver and GPU, from the folder of `./dev bundle` alone: nothing is built
# or fetched. Usage: gpu-test [full]. Exit status: 0 good, 1 something failed, 2 the machine has no GPU.
#
# Each group runs under a watchdog: the library's own deadlines end an operation that hangs, the tests end a process
# that does, and `timeout` ends the group. With compute-sanitizer on the machine a small part runs again under it.
set -euo pipefail
FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SECONDS_A_GROUP=1200
RESULTS=$(mktemp -d)
trap 'rm -rf "$RESULTS"' EXIT

# What asks for nothing that a GPU could not give; the others need the driver that pretends.
TESTS='DeviceTest.*:DeviceFailureTest.*:ProcessesTest.RanksOfSeveralProcessesShareADevice:PeerToPeerTest.AProgramsOwnMemoryIsSharedFromItsMiddle'
TESTS+='-DeviceTest.RanksOfSeveralProcessesAndDevices:DeviceFailureTest.MoreRanksThanADeviceHasMemoryFor:DeviceFailureTest.AMachineWithoutADeviceSaysSo'
SMALL='ProcessesTest.RanksOfSeveralProcessesShareADevice'

if [[ ! -e /dev/nvidiactl ]]; then
  echo "no GPU: /dev/nvidiactl is not there"
  exit 2
fi
if [[ ${1:-} == full ]]; then export TUTTI_TEST_FULL=1; fi
passed=0
failed=0

# group NAME FILTER [COMMAND...]: runs the tests of FILTER, under COMMAND.
group() {
  local name=$1 filter=$2 output=$RESULTS/$1.xml
  shift 2
  echo "== $name"
  # Queues enough for all streams; read when a context is made.
  if CUDA_DEVICE_MAX_CONNECTIONS=32 GTEST_OUTPUT="xml:$output" GTEST_BRIEF=1 timeout -k 10 "$SECONDS_A_GROUP" \
    "$@" "$FOLDER/bin/test_cuda" --gtest_filter="$filter"; then
    passed=$((passed + $(grep -c '<testcase ' "$output" || true)))
  else
    failed=$((failed + 1))
    echo "$name failed"
  fi
}

group conformance "$TESTS"
sanitizer=$(command -v compute-sanitizer || true)
if [[ -z $sanitizer && -x /usr/local/cuda/bin/compute-sanitizer ]]; then sanitizer=/usr/local/cuda/bin/compute-sanitizer; fi
if [[ -n $sanitizer ]]; then
  for tool in memcheck racecheck; do
    group "$tool" "$SMALL" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1
  done
else
  echo "compute-sanitizer is not on this machine: memcheck and racecheck are left out"
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
