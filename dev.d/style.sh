# shellcheck shell=bash
# Style: layout, tidy test, clang-tidy. Sourced by ./dev.

tracked_sources() { git ls-files -- '*.h' '*.hpp' '*.c' '*.cc' '*.cpp' '*.cu' '*.cuh'; }

# Changed sources: not yet committed, or committed since the upstream branch (without upstream: the last commit).
changed_sources() {
  local base
  base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse --verify -q HEAD~1 || git rev-parse HEAD)
  {
    git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.c'
    git ls-files --others --exclude-standard -- '*.cc' '*.c'
  } | sort -u
}

# Prints the files of standard input that are in the compile database.
in_database() {
  python3 -c '
import json, os, sys
database = json.load(open(sys.argv[1] + "/compile_commands.json"))
known = {os.path.relpath(os.path.join(row["directory"], row["file"])) for row in database}
print("".join(line for line in sys.stdin if line.strip() in known), end="")' "$1"
}

check_layout() {
  heading "clang-format on $(tracked_sources | wc -l) files"
  tracked_sources | xargs -r -P "$JOBS" -n 20 clang-format --dry-run -Werror
}

check_tree() {
  heading "tidy test"
  python3 tests/tidy/tidy.py "$ROOT"
}

# clang-tidy reads GCC's command lines. It must ignore warning flags that it does not know, and cannot read GCC's
# precompiled headers. So it also finds what a source should include itself.
check_code() {
  local files
  mkdir -p "$BUILD/tidy"
  sed -E 's/-include precompiled\.h( -fpch-preprocess)?//' "$BUILD/compile_commands.json" >"$BUILD/tidy/compile_commands.json"
  files=$(in_database "$BUILD")
  heading "clang-tidy on $(grep -c . <<<"$files") files"
  xargs -r -P "$JOBS" -n 1 clang-tidy --quiet -p "$BUILD/tidy" --extra-arg=-Wno-unknown-warning-option \
    --warnings-as-errors='*' <<<"$files" 2> >(grep -v -E '^[0-9]+ warnings? (generated|treated as)|^$' >&2)
}

verb_lint() {
  local scope=${1:-changed} failures=0
  [[ $scope == changed || $scope == all ]] || fail 2 "lint what? ./dev lint [all]"
  install_packages build test lint trainer
  configure "$BUILD" "$(trainer_option)"
  check_layout || failures=$((failures + 1))
  check_tree || failures=$((failures + 1))
  if [[ $scope == all ]]; then
    tracked_sources | check_code || failures=$((failures + 1))
  else
    changed_sources | check_code || failures=$((failures + 1))
  fi
  heading "lint: $failures of 3 checks failed"
  [[ $failures -eq 0 ]]
}
