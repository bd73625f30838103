#!/usr/bin/env python3
"""./dev VERB --help explains the verb; it installs nothing and builds nothing.

Usage: help_test.py SOURCE_ROOT.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
import tap  # noqa: E402


def dev(*words, programs=()):
    """Runs ./dev with a build folder that holds only stand-ins. Nothing may appear in the folder."""
    with tempfile.TemporaryDirectory() as folder:
        for name in programs:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text('#!/bin/sh\necho "the help of $0 $*"\n', encoding="utf-8")
            path.chmod(0o755)
        done = subprocess.run([ROOT / "dev", *words], capture_output=True, text=True, check=False, timeout=30,
                              env={"PATH": "/usr/local/bin:/usr/bin:/bin", "BUILD": folder})
        left = sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file())
        assert left == sorted(programs), left
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.replace(folder, "BUILD")


def check_every_verb():
    """Every verb of the usage explains itself"""
    verbs = sorted(set(re.findall(r"^  ([a-z]+)", dev("help"), re.MULTILINE)) - {"help"})
    assert {"run", "test", "lint", "install"} <= set(verbs), verbs
    for verb in verbs:
        for flag in ("--help", "-h"):
            assert dev(verb, flag).startswith(f"  {verb} "), verb


def check_flags_passed_on():
    """./dev run --help shows the benchmark's help if the benchmark is built, and else names the program"""
    shown = dev("run", "-b", "8", "--help", programs=["perf/all_reduce_perf"])
    assert "the help of BUILD/perf/all_reduce_perf --help" in shown, shown
    assert "BUILD/perf/all_reduce_perf, which is not built yet" in dev("run", "--help")


def check_unknown_verb():
    """An unknown verb stays a mistake"""
    done = subprocess.run([ROOT / "dev", "dance", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown verb 'dance'" in done.stderr, done.stderr


tap.run((check.__doc__, check) for check in (check_every_verb, check_flags_passed_on, check_unknown_verb))
