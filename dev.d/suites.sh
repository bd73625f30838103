# shellcheck shell=bash
# Tests: one Meson run, counted case by case; the same under a sanitizer; fuzzing. Sourced by ./dev.

SUITES=(unit sim multiprocess tree fuzz)

is_suite() {
  local suite
  for suite in "${SUITES[@]}"; do [[ $suite == "$1" ]] && return; done
  return 1
}

# find_tests FOLDER NAME...: sets TESTS to the tests of each suite or name. Without a NAME, TESTS is empty and Meson runs
# all. (Given both, Meson itself would run only their intersection.)
find_tests() {
  local folder=$1 words=() name names
  shift
  TESTS=()
  [[ $# -gt 0 ]] || return 0
  for name in "$@"; do
    if is_suite "$name"; then words+=("suite:$name"); else words+=("$name"); fi
  done
  # The folder's list may be older than the files that it is made of.
  ninja -C "$folder" build.ninja >"$folder/configure.log" 2>&1 || {
    tail -n 20 "$folder/configure.log"
    fail 1 "ninja cannot update $folder; all of its output: $folder/configure.log"
  }
  names=$(python3 dev.d/test_names.py "${MESON[0]}" "$folder" "${words[@]}") || exit
  mapfile -t TESTS <<<"$names"
}

# programs_of_tests FOLDER: what ninja builds for TESTS. Nothing, which is everything, without TESTS.
programs_of_tests() {
  [[ ${#TESTS[@]} -eq 0 ]] || python3 dev.d/test_programs.py "${MESON[0]}" "$1" "${TESTS[@]}"
}

# run_tests FOLDER [full]: runs TESTS. count_tests.py reads the results. Never fails.
run_tests() {
  local folder=$1 arguments=()
  [[ ${2:-} != full ]] || arguments=(--setup full)
  rm -rf "$folder/test-results" "$folder/meson-logs/testlog.json"
  mkdir -p "$folder/test-results"
  heading "tests in $folder"
  "${MESON[@]}" test -C "$folder" --no-rebuild --num-processes "$JOBS" --print-errorlogs "${arguments[@]}" \
    "${TESTS[@]}" || true
}

# A failed build is a failed check, and prints a closing line too.
compile_or_close() {
  compile "$@" || {
    echo "the build failed"
    echo "0 passed, 1 failed"
    exit 1
  }
}

# Short fuzzing of every parser, with clang in its own folder. Prints the reason if it cannot run.
fuzz() {
  if ! probe cmd:clang++ || ! probe 'clang:libclang_rt.fuzzer*.a'; then
    heading "no fuzzing: clang or its fuzzer library is missing"
    return
  fi
  [[ -f $BUILD-fuzz/build.ninja ]] || rm -rf "$BUILD-fuzz"
  CC=clang CXX=clang++ configure "$BUILD-fuzz" -Dfuzz=enabled -Dtests=disabled -Dbuildtype=debugoptimized \
    -Db_sanitize=address,undefined -Db_lundef=false
  compile_or_close "$BUILD-fuzz" fuzzers
  find_tests "$BUILD-fuzz" fuzz
  run_tests "$BUILD-fuzz"
  FOLDERS+=("$BUILD-fuzz")
}

# Tests the machine's GPU from the bundle. Builds nothing.
test_gpu() {
  local bundle
  bundle=$(find "$BUILD/bundle" -maxdepth 2 -name gpu-test -type f 2>/dev/null | head -n1 || true)
  [[ -n $bundle ]] || fail 2 "there is no bundle with CUDA tests: run ./dev bundle on a machine with CUDA's toolkit"
  "$bundle" "$@"
}

# RDMA over Soft-RoCE in emulated machines. Minutes long, so a suite of its own.
test_fabric() {
  [[ $EUID -eq 0 ]] || fail 2 "the emulated machines need root"
  install_packages build test trainer fabric
  configure "$BUILD" -Dwerror=true -Dtests=enabled "$(trainer_option)"
  compile_or_close "$BUILD" perf/all_reduce_perf perf/sendrecv_perf tests/test_transports tests/fabric_explain \
    trainer/trainer tools/tutti-inspect tools/tutti-topo
  heading "Soft-RoCE on emulated machines"
  python3 tests/fabric/fabric_test.py "$BUILD"
}

verb_test() {
  local scope='' names=() name
  if [[ ${1:-} == gpu ]]; then
    test_gpu "${@:2}"
    return
  elif [[ $* == fabric ]]; then
    test_fabric
    return
  elif [[ ${1:-} == full ]]; then
    scope=full
    shift
  fi
  for name in "$@"; do [[ $name == fuzz ]] || names+=("$name"); done
  FOLDERS=()
  install_packages build test trainer
  # Fuzzing alone needs only its own folder.
  if [[ $# -eq 0 || ${#names[@]} -gt 0 ]]; then test_build "$scope" "${names[@]}"; fi
  if [[ $# -eq 0 || ${#names[@]} -lt $# ]]; then fuzz; fi
  heading "result"
  python3 dev.d/count_tests.py "${FOLDERS[@]}"
}

# test_build full|'' NAME...: builds everything, and runs tests in it.
test_build() {
  fetch_cuda_tools
  configure "$BUILD" -Dwerror=true -Dtests=enabled "$(trainer_option)"
  # Before the build, which is long: a name may be wrong.
  find_tests "$BUILD" "${@:2}"
  compile_or_close "$BUILD"
  show_machine
  run_tests "$BUILD" "$1"
  FOLDERS+=("$BUILD")
}

verb_sanitize() {
  local kind=${1:-} sanitizers programs
  case $kind in
    address) sanitizers=address,undefined ;;
    thread) sanitizers=thread ;;
    *) fail 2 "sanitize what? ./dev sanitize address|thread" ;;
  esac
  shift
  install_packages build test trainer
  # -O1 with line numbers only: half the compile time of -O2 -g (kernels_float16.cc: 23 s instead of 49) and equally
  # good reports. The slower tests cost less than that.
  configure "$BUILD-$kind" "-Db_sanitize=$sanitizers" -Doptimization=1 -Ddebug=true -Dcpp_args=-g1 -Dtests=enabled "$(trainer_option)"
  find_tests "$BUILD-$kind" "$@"
  # A test or two take a part of the build's time.
  programs=$(programs_of_tests "$BUILD-$kind")
  # shellcheck disable=SC2086
  compile_or_close "$BUILD-$kind" $programs
  run_tests "$BUILD-$kind"
  heading "result"
  python3 dev.d/count_tests.py "$BUILD-$kind"
}
