# shellcheck shell=bash
# Tests: one Meson run, counted case by case; the same under a sanitizer; fuzzing. Sourced by ./dev.

SUITES=(unit sim multiprocess gpu tree fuzz)

is_suite() {
  local suite
  for suite in "${SUITES[@]}"; do [[ $suite == "$1" ]] && return; done
  return 1
}

tests_of_suite() {
  "${MESON[@]}" test -C "$1" --no-rebuild --list --suite "$2" | sed -n 's|^[^/]* / ||p'
}

# programs_of_tests FOLDER NAME...: what ninja builds for tests. Nothing, which is everything, for a suite.
programs_of_tests() {
  local name
  for name in "${@:2}"; do ! is_suite "$name" || return 0; done
  [[ $# -eq 1 ]] || python3 dev.d/test_programs.py "${MESON[0]}" "$@"
}

# run_tests FOLDER [full] [NAME...]: runs suites or tests. count_tests.py reads the results. Never fails.
run_tests() {
  local folder=$1 arguments=() name
  shift
  if [[ ${1:-} == full ]]; then
    arguments+=(--setup full)
    shift
  fi
  for name in "$@"; do
    # Meson runs only what is in the suite and has the name. Here each adds its tests.
    if is_suite "$name"; then
      mapfile -t -O "${#arguments[@]}" arguments < <(tests_of_suite "$folder" "$name")
    else
      arguments+=("$name")
    fi
  done
  rm -rf "$folder/test-results" "$folder/meson-logs/testlog.json"
  mkdir -p "$folder/test-results"
  heading "tests in $folder"
  "${MESON[@]}" test -C "$folder" --no-rebuild --num-processes "$JOBS" --print-errorlogs "${arguments[@]}" || true
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
  run_tests "$BUILD-fuzz" fuzz
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
  if [[ ${1:-} == gpu ]]; then
    test_gpu "${@:2}"
    return
  elif [[ $* == fabric ]]; then
    test_fabric
    return
  fi
  install_packages build test trainer
  fetch_cuda_tools
  configure "$BUILD" -Dwerror=true -Dtests=enabled "$(trainer_option)"
  compile_or_close "$BUILD"
  show_machine
  FOLDERS=("$BUILD")
  run_tests "$BUILD" "$@"
  if [[ $# -eq 0 || $1 == full || " $* " == *" fuzz "* ]]; then fuzz; fi
  heading "result"
  python3 dev.d/count_tests.py "${FOLDERS[@]}"
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
  # A test or two take a part of the build's time.
  programs=$(programs_of_tests "$BUILD-$kind" "$@")
  # shellcheck disable=SC2086
  compile_or_close "$BUILD-$kind" $programs
  run_tests "$BUILD-$kind" "$@"
  heading "result"
  python3 dev.d/count_tests.py "$BUILD-$kind"
}
