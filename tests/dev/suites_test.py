#!/usr/bin/env python3
"""./dev test NAME... and ./dev sanitize KIND NAME... run the tests that the names mean: never all of them by mistake,
and never none without a word.

Usage: suites_test.py SOURCE_ROOT. Method: the verbs with a Meson that knows a few tests and prints what it would run.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
import tap  # noqa: E402

# Meson's answer to `introspect --tests` for each build folder. "sim" is the name of a suite and of a test.
TESTS = {"build": {"core": "unit", "plan": "unit", "sim": "sim", "engine": "sim", "tidy": "tree"},
         "build-fuzz": {"fuzz_plan": "fuzz", "fuzz_frames": "fuzz"},
         "build-address": {"core": "unit", "plan": "unit"}}
MESON = f"""#!{sys.executable}
import json, pathlib, sys
if sys.argv[1] == "introspect":
    folder = pathlib.Path(sys.argv[2])
    tests = {TESTS}[folder.name]
    print(json.dumps([dict(name=name, suite=["tutti:" + suite], depends=[name + "@exe"]) for name, suite in tests.items()]
                     if sys.argv[3] == "--tests" else
                     [dict(id=name + "@exe", filename=[str(folder / "tests" / name)]) for name in tests]))
else:
    words = sys.argv[sys.argv.index("--print-errorlogs") + 1:]
    print("ran", pathlib.Path(sys.argv[3]).name, *(words or ["everything"]))
"""
# Replaces the functions that would install and build by ones that print.
SCRIPT = """
source "$1/dev" help >/dev/null
MESON=("$2/meson")
ninja() { :; }
install_packages() { :; }
fetch_cuda_tools() { :; }
show_machine() { :; }
configure() { mkdir -p "$1"; }
compile() { echo "built $(basename "$1") ${*:2}"; }
probe() { :; }
python3() {
  if [[ $1 == *count_tests.py ]]; then echo "counted $(basename -a "${@:2}" | xargs)"; else command python3 "$@"; fi
}
"${@:3}"
"""


def dev(*words):
    """Runs a verb's function. Returns its status, what the stand-ins printed, and its errors."""
    with tempfile.TemporaryDirectory() as folder:
        meson = pathlib.Path(folder, "meson")
        meson.write_text(MESON, encoding="utf-8")
        meson.chmod(0o755)
        done = subprocess.run(["bash", "-c", SCRIPT, "dev", ROOT, folder, *words], capture_output=True, text=True,
                              check=False, env=dict(os.environ, BUILD=f"{folder}/build"))
    printed = [line.strip() for line in done.stdout.splitlines() if re.match("built|ran|counted", line)]
    return done.returncode, printed, done.stderr


def check_fuzz_alone():
    """./dev test fuzz builds and runs the fuzzers, and nothing else"""
    wanted = ["built build-fuzz fuzzers", "ran build-fuzz fuzz_plan fuzz_frames", "counted build-fuzz"]
    assert dev("verb_test", "fuzz") == (0, wanted, ""), dev("verb_test", "fuzz")
    assert dev("verb_test", "full", "fuzz") == (0, wanted, "")


def check_everything():
    """Without a name every test runs, then every fuzzer"""
    wanted = ["built build", "ran build everything", "built build-fuzz fuzzers",
              "ran build-fuzz fuzz_plan fuzz_frames", "counted build build-fuzz"]
    assert dev("verb_test") == (0, wanted, ""), dev("verb_test")
    wanted[1] = "ran build --setup full"
    assert dev("verb_test", "full") == (0, wanted, ""), dev("verb_test", "full")


def check_names_add_up():
    """Suites and names add up; a test that two of them mean runs once; a suite goes before a test of its name"""
    assert dev("verb_test", "tree", "core")[1] == ["built build", "ran build tidy core", "counted build"]
    assert dev("verb_test", "unit", "core")[1][1] == "ran build core plan"
    assert dev("verb_test", "full", "sim")[1][1] == "ran build --setup full sim engine"
    assert dev("verb_test", "core", "fuzz")[1][1::2] == ["ran build core", "ran build-fuzz fuzz_plan fuzz_frames"]


def check_unknown_names():
    """A name without a test is an error before the build, also beside one that has a test"""
    for words in (["verb_test", "core", "conformence"], ["verb_sanitize", "address", "core", "conformence"]):
        assert dev(*words) == (2, [], "dev: no such test: conformence\n"), dev(*words)


def check_empty_suites():
    """A suite without tests in this build is an error, not every test"""
    for suite in ("tree", "fuzz"):
        assert dev("verb_sanitize", "address", suite) == (2, [], f"dev: no tests in suite {suite}\n"), suite
    assert dev("verb_sanitize", "address", "gpu") == (2, [], "dev: no such test: gpu\n")


def check_sanitized_suite():
    """./dev sanitize builds and runs the tests of a suite or name, and everything without a name"""
    wanted = ["built build-address tests/core tests/plan", "ran build-address core plan", "counted build-address"]
    assert dev("verb_sanitize", "address", "unit") == (0, wanted, ""), dev("verb_sanitize", "address", "unit")
    wanted[:2] = ["built build-address tests/plan", "ran build-address plan"]
    assert dev("verb_sanitize", "address", "plan") == (0, wanted, ""), dev("verb_sanitize", "address", "plan")
    wanted[:2] = ["built build-address", "ran build-address everything"]
    assert dev("verb_sanitize", "address") == (0, wanted, ""), dev("verb_sanitize", "address")


def check_pages():
    """./dev help and CONTRIBUTING.md name every suite"""
    line = re.search(r"^SUITES=\((.*)\)$", (ROOT / "dev.d/suites.sh").read_text(encoding="utf-8"), re.MULTILINE)
    suites = line.group(1).split()
    assert f"only these suites ({', '.join(suites)})" in tap.command(ROOT / "dev", "help")
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"({', '.join(f'`{suite}`' for suite in suites)})" in page


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
