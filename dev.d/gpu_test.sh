#!/usr/bin/env bash
# Runs the checks that need a GPU, from the folder of `./dev bundle` alone, on the machine's own driver. Builds and
# fetches nothing. Exit status: 0 good, 1 something failed, 2 the machine has no GPU or the command is wrong.
#
#   gpu-test [full]           the CUDA tests, then the table below, then CuPy and PyTorch over libnccl.so.2 if they are
#                             here
#   gpu-test perf [BYTES [N [K...]]]
#                             only the table: K ranks on one GPU (2 4 8), as shares of the copy bandwidth in the same
#                             run; messages of BYTES a rank (256M), of a 256th of it (1M), and from 8 B to a 32768th of
#                             it (8K); N iterations (20)
#
# Each part runs under a watchdog. The library's own deadlines end a hanging operation; the tests and tools end a
# hanging process; `timeout` ends the part. If the machine has compute-sanitizer, some tests run again under it.
set -euo pipefail
FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SECONDS_A_GROUP=1200
SECONDS_A_ROW=120
RESULTS=$(mktemp -d)
trap 'rm -rf "$RESULTS"' EXIT

# Tests that a real GPU can pass; the other tests need the fake driver, its faults, or two devices.
TESTS='DeviceTest.*:GroupTest.*:DeviceFailureTest.*:ProcessesTest.RanksOfSeveralProcessesShareADevice:PeerToPeerTest.AProgramsOwnMemoryIsSharedFromItsMiddle'
TESTS+=':StagedTest.EveryCollectiveGivesItsResultOnOneDeviceAndInHostMemory:StagedTest.OperationsKeep*:StagedTest.ManyQueued*:StagedTest.Captured*'
TESTS+=':StagedTest.APart*:StagedPiecesTest.*:StagedFailureTest.*'
TESTS+='-StagedFailureTest.WhatTheDriver*:StagedPiecesTest.WhatTheDriver*:StagedFailureTest.NoPinned*:DeviceTest.RanksOfSeveralProcessesAndDevices:DeviceFailureTest.MoreRanksThanADeviceHasMemoryFor:DeviceFailureTest.AMachineWithoutADeviceSaysSo'
TESTS+=':DeviceTest.CommunicatorsComeAndGo*:DeviceFailureTest.AGroupThatFails*'
TESTS+=':GroupTest.WhatTheDriver*:GroupTest.ARefusedGroup*:GroupTest.StreamsOfAGroup*'
SMALL='ProcessesTest.RanksOfSeveralProcessesShareADevice'
passed=0
failed=0

# group NAME FILTER [COMMAND...]: runs the tests that FILTER selects, under COMMAND.
group() {
  local name=$1 filter=$2 output=$RESULTS/$1.xml cases
  shift 2
  echo "== $name"
  # Enough queues for all streams. The driver reads this when it makes a context.
  if ! CUDA_DEVICE_MAX_CONNECTIONS=32 GTEST_OUTPUT="xml:$output" GTEST_BRIEF=1 timeout -k 10 "$SECONDS_A_GROUP" \
    "$@" "$FOLDER/bin/test_cuda" --gtest_filter="$filter"; then
    failed=$((failed + 1))
    echo "$name failed"
  elif ! cases=$(grep -c '<testcase ' "$output"); then
    # GoogleTest calls a run without any case good.
    failed=$((failed + 1))
    echo "$name failed: no test has a name that its filter selects"
  else
    passed=$((passed + cases))
  fi
}

run_tests() {
  local sanitizer tool
  group conformance "$TESTS"
  sanitizer=$(command -v compute-sanitizer || true)
  if [[ -z $sanitizer && -x /usr/local/cuda/bin/compute-sanitizer ]]; then sanitizer=/usr/local/cuda/bin/compute-sanitizer; fi
  if [[ -n $sanitizer ]]; then
    for tool in memcheck synccheck; do
      group "$tool" "$SMALL" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1
    done
    # racecheck does not know the word that orders slices of tutti_run: see docs/measurements/gpu.md.
    group racecheck "$SMALL" "$sanitizer" --tool racecheck --kernel-name kns=tutti_short --target-processes all --error-exitcode 1
  else
    echo "compute-sanitizer is not on this machine: memcheck, racecheck and synccheck are skipped"
  fi
}

# tool COLLECTIVE FLAGS...: a perf tool on the device, under the watchdog.
tool() {
  local name=$1
  shift
  CUDA_DEVICE_MAX_CONNECTIONS=32 timeout -k 10 "$SECONDS_A_ROW" "$FOLDER/bin/${name}_perf" --memory cuda \
    -T $((SECONDS_A_ROW - 20)) "$@"
}

# measure COLLECTIVE K FLOOR FLAGS...: the rows of one run, out of place. FLOOR: how often a rank's bytes must at least
# be read or written. The share is the time to copy these bytes over the measured time. The last column but one is the
# time beyond an empty kernel; it is meaningful only for messages in graphs.
measure() {
  local name=$1 ranks=$2 floor=$3 output=$RESULTS/table
  shift 3
  if ! tool "$name" --ranks-per-gpu "$ranks" --floors "$@" >"$output"; then
    failed=$((failed + 1))
    echo "$name with $ranks ranks failed: ${*}"
    return
  fi
  passed=$((passed + 1))
  awk -v name="$name" -v ranks="$ranks" -v floor="$floor" '
    /^# Copy bandwidth/ { copy = $(NF - 1) }
    /^# Empty kernel/ { empty = $(NF - 1) }
    /^ *[0-9]/ {
      # GB/s is bytes per nanosecond.
      least_us = floor * $1 / (copy * 1000)
      printf "%-15s %2d %10.0f %-9s %11.2f %9.2f %8.1f %% %9.1f %8s %10.2f  %s\n", name, ranks, $1, $3, $6, least_us,
        ($6 > 0 ? 100 * least_us / $6 : 0), copy, $9, $6 - empty, $NF
    }' "$output"
}

run_perf() {
  local bytes n=$2 ranks type long short least=8 counts=("${@:3}")
  if [[ ${#counts[@]} -eq 0 ]]; then counts=(2 4 8); fi
  bytes=$(numfmt --from=iec "$1")
  local most=$((bytes / 32768 > least ? bytes / 32768 : least))
  # Without checks, because the host makes them. Short messages and the tests check the same calls.
  long=(-b "$bytes" -e "$bytes" --hot -w $((n / 4)) -n "$n" -c 0)
  short=(--hot -w $((n / 4)) -n "$n" -G "$n")
  echo "== perf: ranks of one process on device 0, out of place"
  echo "collective       k      bytes type         time us     floor us  of floor  copy GB/s   #wrong over empty  algorithm"
  for ranks in "${counts[@]}"; do
    for type in float bfloat16; do
      measure all_reduce "$ranks" $((2 * ranks)) "${long[@]}" -d "$type"
      measure reduce_scatter "$ranks" $((ranks + 1)) "${long[@]}" -d "$type"
      measure all_gather "$ranks" $((ranks + 1)) "${long[@]}" -d "$type"
    done
    measure all_reduce "$ranks" $((2 * ranks)) "${short[@]}" -b $((bytes / 256)) -e $((bytes / 256))
    measure all_reduce "$ranks" $((2 * ranks)) "${short[@]}" -b "$least" -e "$most" -f 2
  done
}

# Frameworks whose NCCL is replaced by the bundle's.
run_frameworks() {
  local name status
  for name in cupy torch; do
    echo "== $name over libnccl.so.2"
    status=0
    LD_PRELOAD=$FOLDER/lib/nccl/libnccl.so.2 CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_DEBUG=VERSION \
      timeout -k 10 "$SECONDS_A_ROW" python3 "$FOLDER/gpu-frameworks.py" "$name" || status=$?
    case $status in
      0) passed=$((passed + 1)) ;;
      77) echo "skipped: $name, or a GPU that it can use, is not here" ;;
      *)
        failed=$((failed + 1))
        echo "$name failed"
        ;;
    esac
  done
}

words=("$@")
case ${words[0]:-} in
  '' | full | perf) ;;
  *)
    sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
if ! why=$(tool all_reduce -b 8 -e 8 -n 1 -w 0 -c 0 2>&1 >/dev/null); then
  echo "no GPU: $why"
  exit 2
fi
if [[ ${words[0]:-} == full ]]; then export TUTTI_TEST_FULL=1; fi
if [[ ${words[0]:-} != perf ]]; then run_tests; fi
run_perf "${words[1]:-256M}" "${words[2]:-20}" "${words[@]:3}"
if [[ ${words[0]:-} != perf ]]; then run_frameworks; fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
