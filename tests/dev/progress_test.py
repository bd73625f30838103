#!/usr/bin/env python3
"""dev.d/progress.py: a build's chatter goes to a log, a line of progress and every failed command are shown.

Usage: progress_test.py SOURCE_ROOT.
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "dev.d"))
import tap  # noqa: E402
from progress import EVERY_S, Progress  # noqa: E402

BUILD = [f"[{i}/200] Compiling C++ object {i}.o\n" for i in range(1, 201)]
FAILURE = ["FAILED: 7.o \n", "g++ -c 7.cc\n", "7.cc:1:1: error: no\n"]


def shown(lines, is_terminal=False, seconds_a_line=1.0):
    """What the reader sees. The clock steps at each line."""
    texts, seconds = [], [0.0]
    progress = Progress(texts.append, is_terminal, lambda: seconds[0])
    for line in lines:
        seconds[0] += seconds_a_line
        progress.read(line)
    progress.end()
    return "".join(texts)


def check_plain():
    """Without a terminal: a plain line every so often, and one at the end"""
    lines = shown(BUILD).splitlines()
    assert len(lines) == 200 // EVERY_S + 1, lines
    assert lines[0] == f"  {EVERY_S // 2} %, {EVERY_S} of 200, {EVERY_S} s", lines
    assert lines[-1] == "  100 %, 200 of 200, 200 s", lines


def check_terminal():
    """On a terminal: one line that changes"""
    text = shown(BUILD, is_terminal=True)
    assert text.count("\n") == 1 and text.endswith("\r\033[K  100 %, 200 of 200, 200 s\n"), text


def check_failure():
    """A failed command is printed with its output, and nothing of the others"""
    warning = ["3.cc:1:1: warning: perhaps\n"]
    stopped = ["ninja: build stopped: subcommand failed.\n"]
    text = shown(BUILD[:3] + warning + BUILD[3:7] + FAILURE + BUILD[7:9] + FAILURE + stopped)
    assert text == "".join(FAILURE * 2), text
    text = shown(BUILD[:7] + FAILURE + stopped, is_terminal=True)
    assert text.endswith("\r\033[K" + "".join(FAILURE)), text


def check_error():
    """An error of ninja itself is printed"""
    error = "ninja: error: unknown target 'nothing'\n"
    assert shown([error]) == error


def compile_with(ninja):
    """Runs compile() of ./dev with a program in the place of ninja. Returns status, output and log."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ninja"
        path.write_text(f"#!/bin/sh\n{ninja}\n", encoding="utf-8")
        path.chmod(0o755)
        script = 'source "$1/dev" help >/dev/null; compile "$2" target || exit 3'
        done = subprocess.run(["bash", "-c", script, "dev", ROOT, folder], capture_output=True, text=True, check=False,
                              env={"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin", "BUILD": folder})
        return done.returncode, done.stdout, (pathlib.Path(folder) / "build.log").read_text(encoding="utf-8")


def check_compile():
    """./dev compiles quietly; the log has everything"""
    status, output, log = compile_with('echo "[1/1] Linking all of it"; exit 0')
    assert status == 0 and "Linking" not in output and "100 %, 1 of 1" in output, output
    assert "Linking all of it" in log, log


def check_failed_compile():
    """./dev fails where ninja fails, prints the reason and names the log"""
    status, output, log = compile_with('echo "FAILED: a.o"; echo "a.cc:1: error: no"; exit 1')
    assert status == 3 and "a.cc:1: error: no" in output and "build.log" in output, output
    assert "a.cc:1: error: no" in log, log


tap.run((check.__doc__, check) for check in (check_plain, check_terminal, check_failure, check_error, check_compile,
                                             check_failed_compile))
