#!/usr/bin/env python3
"""Programs for the CUDA runtime and NCCL, built by nvcc, on the fake driver, its runtime and libnccl.so.2.

Usage: programs_test.py PROGRAMS DRIVER_FOLDER RUNTIME_FOLDER LIBRARY.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import tap  # noqa: E402

PROGRAMS, DRIVER, RUNTIME, LIBRARY = (pathlib.Path(argument).resolve() for argument in sys.argv[1:5])
SECONDS = 120


def run(name, *arguments, devices=1, **more):
    """Runs a program to its end; its output."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NCCL_", "TUTTI_", "FAKE_CUDA_"))}
    kept["LD_LIBRARY_PATH"] = f"{DRIVER}:{RUNTIME}:{LIBRARY.parent}"
    kept.update(FAKE_CUDA_DEVICES=str(devices), FAKE_CUDA_THREADS="32", **more)
    # A session of its own, so that the ranks end with it.
    process = subprocess.Popen([PROGRAMS / f"program_{name}", *map(str, arguments)], env=kept, start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, errors = process.communicate()
        raise AssertionError(f"{name} did not end within {SECONDS} s\n{output}{errors}") from None
    assert process.returncode == 0, f"{name}: status {process.returncode}\n{output}{errors}"
    return output


def check_collectives_of_two_processes_are_right():
    """Collectives, types and operators of two processes, checked by kernels"""
    assert "on 2 ranks, 0 wrong" in run("collectives", 2, devices=2)


def check_collectives_of_four_processes_are_right():
    """The same of four processes, two on each device"""
    assert "on 4 ranks, 0 wrong" in run("collectives", 4, 33, devices=2)


def check_training_steps_are_right():
    """Training with streams, events and a captured graph, two processes"""
    assert "loss" in run("training", 2, devices=2)


def check_training_of_three_ranks_is_right():
    """The same with three processes on three devices"""
    assert "loss" in run("training", 3, devices=3)


def check_groups_of_one_process_are_right():
    """A group over the ranks of one process, two and four devices"""
    assert "2 devices, 0 wrong" in run("group", 2, devices=2)
    assert "4 devices, 0 wrong" in run("group", 4, devices=4)


def check_the_language_is_right():
    """What kernels are made of, compared with the host"""
    assert "0 wrong" in run("language")


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
