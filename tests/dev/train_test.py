#!/usr/bin/env python3
"""./dev run ends with a training run, ./dev train trains on this project's documentation and passes flags on.

Usage: train_test.py SOURCE_ROOT. Method: runs the verbs without building, with programs that only print their
arguments.
"""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

ROOT = pathlib.Path(sys.argv[1]).resolve()
# Sources the parts, and replaces the functions that would install and build by ones that print.
SCRIPT = """
source "$1/dev" help >/dev/null
install_packages() { :; }
configure() { :; }
compile() { :; }
build_release() { :; }
show_machine() { :; }
"${@:2}"
"""


def verb(*words, trainer=True):
    """Runs a verb's function with stand-ins for the programs. Returns the lines that the stand-ins print."""
    with tempfile.TemporaryDirectory() as root:
        build = pathlib.Path(root)
        for name in ["perf/all_reduce_perf"] + ["trainer/trainer"] * trainer:
            path = build / name
            path.parent.mkdir()
            path.write_text(f'#!/bin/sh\necho "{path.name} $*"\n', encoding="utf-8")
            path.chmod(0o755)
        done = subprocess.run(["bash", "-c", SCRIPT, "dev", ROOT, *words], capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "BUILD": root})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.replace(root, "BUILD")


def check_run():
    """./dev run ends with a training run of 2 ranks on the documentation, with a timeline"""
    output = verb("verb_run", "-b", "4K")
    first, last = output.index("all_reduce_perf --procs 2"), output.index("\ntrainer --data ")
    assert first < last, output
    trains = output[last:].splitlines()[1]
    for word in ("README.md", "docs/trainer.md", "--timeline BUILD/trainer/timeline.json", "--ranks 2"):
        assert word in trains, trains


def check_run_without_blas():
    """./dev run on a machine without BLAS reports that nothing is trained, and succeeds"""
    assert "no training run: OpenBLAS (libopenblas-dev) is missing" in verb("verb_run", trainer=False)


def check_flags():
    """./dev train passes flags on, and omits the defaults that they replace"""
    output = verb("verb_train", "--model", "cnn", "--ranks", "4", "--timeline", "mine.json")
    assert "\ntrainer --model cnn --ranks 4 --timeline mine.json\n" in output, output
    output = verb("verb_train", "--data", "my.txt")
    assert "\ntrainer --data my.txt --timeline BUILD/trainer/timeline.json --ranks 2\n" in output, output


def check_modes():
    """./dev train --mode NAME adds what shows the mode, and omits what FLAGS replace"""
    output = verb("verb_train", "--mode", "server", "--staleness", "2", "--ranks", "5")
    assert "\ntrainer --mode server --staleness 2 --ranks 5 --steps 120 " in output, output
    assert output.count("--ranks") == 2 and "--optimizer sgd" in output and "README.md" in output, output  # once in the heading
    output = verb("verb_train", "--mode", "grid", "--data", "my.txt")
    assert "--ranks 8" in output and "README.md" not in output, output


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
