#!/usr/bin/env python3
"""dev.d/count_tests.py: no failure, crash, hang or empty run counts as success.

Usage: count_tests_test.py SOURCE_ROOT. Method: build folders made by hand, the script run on them.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

SCRIPT = pathlib.Path(sys.argv[1]) / "dev.d/count_tests.py"
PASSED = '<testcase name="a" status="run" result="completed"/>'
FAILED = '<testcase name="b" status="run" result="completed"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="c" status="run" result="skipped"><skipped/></testcase>'


def count(tests):
    """(exit status, closing line) for a folder with tests {name: (Meson's result, output, report or None)}."""
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        (folder / "meson-logs").mkdir()
        (folder / "test-results").mkdir()
        lines = []
        for name, (result, output, report) in tests.items():
            lines.append(json.dumps({"name": f"tutti:unit / {name}", "result": result, "stdout": output}))
            if report is not None:
                (folder / "test-results" / f"{name}.xml").write_text(report, encoding="utf-8")
        (folder / "meson-logs/testlog.json").write_text("\n".join(lines) + "\n" * bool(lines), encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()[-1]


def report(*cases):
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


def check_cases_add_up():
    """Cases of all kinds of tests add up"""
    tests = {"gtest": ("OK", "", report(PASSED, PASSED, SKIPPED)), "tap": ("OK", "1..2\nok 1 - a\nok 2 # SKIP no\n", None),
             "plain": ("OK", "", None), "absent": ("SKIP", "", None)}
    assert count(tests) == (0, "4 passed, 0 failed, 3 skipped"), count(tests)


def check_failures_fail():
    """A failed case fails the run"""
    assert count({"a": ("FAIL", "", report(PASSED, FAILED))}) == (1, "1 passed, 1 failed")
    assert count({"a": ("FAIL", "1..2\nok 1\nnot ok 2\n", None)}) == (1, "1 passed, 1 failed")
    assert count({"a": ("FAIL", "", None)}) == (1, "0 passed, 1 failed")


def check_crashes_fail():
    """A test that passed its cases and then crashed, or timed out, or left half a report, fails the run"""
    assert count({"a": ("FAIL", "", report(PASSED))}) == (1, "1 passed, 1 failed")
    assert count({"a": ("TIMEOUT", "", None), "b": ("OK", "", None)}) == (1, "1 passed, 1 failed")
    assert count({"a": ("ERROR", "", "<testsuites><testsu")}) == (1, "0 passed, 1 failed")


def check_nothing_fails():
    """A run without tests, or with skips only, is not a success"""
    assert count({}) == (1, "0 passed, 0 failed")
    assert count({"a": ("SKIP", "", None)}) == (1, "0 passed, 0 failed, 1 skipped")


def check_no_case_fails():
    """A test that GoogleTest calls good although no case ran, because its filter selects none, fails the run"""
    disabled = '<testcase name="d" status="notrun" result="suppressed"/>'
    for empty in (report(), report(disabled), "<testsuites/>"):
        assert count({"a": ("OK", "", empty), "b": ("OK", "", report(PASSED))}) == (1, "1 passed, 1 failed"), empty


def check_no_log_fails():
    """A folder in which no test ran fails the run"""
    with tempfile.TemporaryDirectory() as root:
        done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "0 passed, 1 failed", done.stdout


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
