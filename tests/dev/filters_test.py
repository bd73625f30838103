#!/usr/bin/env python3
"""Filters of GoogleTest select tests that exist: dev.d/gpu_test.sh, tests/meson.build. GoogleTest calls a run without
any case good, and passes over a pattern that matches nothing.

Usage: filters_test.py SOURCE_ROOT.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
import tap  # noqa: E402

GPU_TEST = (ROOT / "dev.d/gpu_test.sh").read_text(encoding="utf-8")


def names_of(folder):
    """GoogleTest's names of the tests in a folder. The name of a test with parameters ends in "/", without them."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / folder).rglob("*.cc")))
    found = [f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F)?\((\w+),\s*(\w+)\)", text, re.MULTILINE)]
    instances = re.findall(r"^INSTANTIATE_TEST_SUITE_P\((\w+),\s*(\w+),", text, re.MULTILINE)
    for suite, name in re.findall(r"^TEST_P\((\w+),\s*(\w+)\)", text, re.MULTILINE):
        found += [f"{prefix}/{suite}.{name}/" for prefix, instance in instances if instance == suite]
    return found


def selects(pattern, name):
    """Whether a pattern selects a test, with a fitting parameter. Parameters have their names at run time only, so what
    follows the pattern's last star may be one."""
    if not name.endswith("/"):
        return fnmatch.fnmatchcase(name, pattern)
    before, star, _ = pattern.rpartition("*")
    return pattern.startswith(name) or fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, before + star)


def idle(text, names):
    """The patterns of a filter that select no test."""
    patterns = filter(None, re.split("[:-]", text))
    return [pattern for pattern in patterns if not any(selects(pattern, name) for name in names)]


def check_rules():
    """Patterns are read as GoogleTest reads them"""
    names = ["RingTest.Turns", "All/LinkTest.Holds/"]
    good = "RingTest.*:*.Turns-Ring????.Turns:All/LinkTest.Holds/4:*Link*On2:*Holds/?:All/*"
    assert idle(good, names) == [], idle(good, names)
    bad = ["RingTest.Turn", "Ring.*", "*Lonk*On2", "All/LinkTest.Hold/4"]
    assert idle(":".join(bad), names) == bad, idle(":".join(bad), names)


def check_gpu_test():
    """Each pattern of gpu_test.sh, also of what it leaves out, selects a test of tests/cuda"""
    names = names_of("cuda")
    filters = "".join(re.findall(r"^TESTS\+?='([^']*)'$", GPU_TEST, re.MULTILINE))
    filters += "".join(":" + text for text in re.findall(r"^SMALL='([^']*)'$", GPU_TEST, re.MULTILINE))
    assert filters.count(":") > 20 and len(names) > 100, (filters, len(names))
    assert idle(filters, names) == [], idle(filters, names)


def check_meson():
    """Each pattern of the runs in tests/meson.build selects a test of the folder"""
    text = (ROOT / "tests/meson.build").read_text(encoding="utf-8")
    runs = re.findall(r"^ *\['\w+', '\w+', (\w+)_test_program, '([^']*)'", text, re.MULTILINE)
    assert len(runs) >= 3, runs
    for folder, filters in runs:
        assert idle(filters, names_of(folder)) == [], (folder, idle(filters, names_of(folder)))


def group(report, status=0):
    """What gpu_test.sh counts for a program that writes a report: (passed, failed)."""
    function = re.search(r"^group\(\) \{\n.*?^\}\n", GPU_TEST, re.MULTILINE | re.DOTALL).group()
    script = f'set -euo pipefail; SECONDS_A_GROUP=20 passed=0 failed=0 FOLDER=$1 RESULTS=$1\n{function}' \
             'group small "A.*"; echo "$passed $failed"'
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "bin/test_cuda")
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{report}' >${{GTEST_OUTPUT#xml:}}\nexit {status}\n", encoding="utf-8")
        program.chmod(0o755)
        done = subprocess.run(["bash", "-c", script, "bash", folder], capture_output=True, text=True, check=True)
    return tuple(int(word) for word in done.stdout.splitlines()[-1].split())


def check_gpu_test_counts():
    """gpu_test.sh counts cases; a group that fails, or without any case, is a failure"""
    case = '<testcase name="a" status="run" />\n'
    assert group(f"<testsuites>\n{case * 3}</testsuites>") == (3, 0)
    assert group(f"<testsuites>\n{case}</testsuites>", status=1) == (0, 1)
    assert group('<testsuites tests="0">\n</testsuites>') == (0, 1)


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
