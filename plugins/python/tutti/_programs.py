"""The commands of the wheel, such as tutti-plan and all_reduce_perf: each runs the compiled program of its name."""

import os
import pathlib
import sys


def main():
    name = pathlib.Path(sys.argv[0]).name
    program = pathlib.Path(__file__).resolve().parent / "bin" / f"{name}.stripped"
    os.execv(program, [name, *sys.argv[1:]])
