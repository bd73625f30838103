#!/usr/bin/env python3
"""dev.d/test_programs.py: a sanitizer's build for some tests builds their programs.

Usage: test_programs_test.py SOURCE_ROOT.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
import tap  # noqa: E402

SCRIPT = ROOT / "dev.d/test_programs.py"
TARGETS = [{"id": "a@exe", "filename": ["/build/tests/test_a"]},
           {"id": "b@exe", "filename": ["/build/tests/test_b"]},
           {"id": "fake@sha", "filename": ["/build/tests/fake/libfake.so"]}]
TESTS = [{"name": "a", "depends": ["a@exe"]},
         {"name": "b", "depends": ["fake@sha", "b@exe"]},
         {"name": "b_again", "depends": ["b@exe"]}]


def programs(*names):
    """Runs the script with a Meson that knows three tests. Returns status, lines and errors."""
    with tempfile.TemporaryDirectory() as folder:
        meson = pathlib.Path(folder, "meson")
        answers = {"--targets": TARGETS, "--tests": TESTS}
        meson.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps({json.dumps(answers)}[sys.argv[3]]))\n")
        meson.chmod(0o755)
        done = subprocess.run([sys.executable, SCRIPT, meson, "/build", *names], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.split(), done.stderr


def check_sharing():
    """One program serves several tests"""
    assert programs("b", "b_again") == (0, ["tests/fake/libfake.so", "tests/test_b"], "")


def check_only_those():
    """Programs of other tests are not built"""
    assert programs("a")[1] == ["tests/test_a"]


tap.run((check.__doc__, check) for check in (check_sharing, check_only_those))
