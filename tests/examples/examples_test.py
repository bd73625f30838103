#!/usr/bin/env python3
"""The examples: each prints what docs/tutorial.md shows as its output, and the page shows lines of these files.

Usage: examples_test.py SOURCE_ROOT FOLDER, where FOLDER holds the programs.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

SOURCE, PROGRAMS = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PAGE = SOURCE / "docs/tutorial.md"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TUTTI_"))}
SECONDS = 60


class Step:
    """One section of the tutorial: its number, its program, and its blocks of code and output."""

    def __init__(self, section):
        self.name = re.search(r"`examples/(\w+)\.c`", section).group(1)
        self.source = (SOURCE / "examples" / f"{self.name}.c").read_text(encoding="utf-8")
        self.code = re.findall(r"^```c\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        self.output = "".join(re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))


def steps():
    sections = re.split(r"^## (?=Step )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [Step(section) for section in sections]


def step(name):
    return next(step for step in steps() if step.name == name)


def lines_of(text):
    """Lines without indentation. Sorted: processes print in any order."""
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def expect_output(name, output):
    expected = lines_of(step(name).output)
    assert expected and lines_of(output) == expected, f"the tutorial says\n{expected}\nthe program printed\n{output}"


def ends_as_the_tutorial_says(name):
    def check():
        program = PROGRAMS / name
        if not program.exists() and name == "step6_nccl":
            raise tap.Skip("built without libnccl.so.2")
        expect_output(name, tap.command(program, env=ENVIRONMENT, timeout=SECONDS))

    return check


def check_by_hand():
    """Step 2 without a launcher: two processes that share a file"""
    with tempfile.TemporaryDirectory() as folder:
        job = {**ENVIRONMENT, "WORLD_SIZE": "2", "TUTTI_ID_FILE": f"{folder}/id"}
        ranks = [subprocess.Popen([PROGRAMS / "step2_launcher"], env={**job, "RANK": rank}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in "01"]
        expect_output("step2_launcher", "".join(rank.communicate(timeout=SECONDS)[0] for rank in ranks))
        assert not os.listdir(folder), "the file of the id is still there"


def check_alone():
    """Step 2 without a launcher and without settings is a job of one rank"""
    output = tap.command(PROGRAMS / "step2_launcher", env=ENVIRONMENT, timeout=SECONDS)
    assert output == "1 ranks: the sum is 1\n", output


def check_mpirun():
    """Step 2 under mpirun"""
    if shutil.which("mpirun") is None:
        raise tap.Skip("mpirun is not installed")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    output = tap.command("mpirun", "-n", "2", PROGRAMS / "step2_launcher", env={**ENVIRONMENT, **root}, timeout=SECONDS)
    expect_output("step2_launcher", output)


def check_every_example_is_a_step():
    """Every program of examples/ is a step of the tutorial"""
    files = sorted(path.stem for path in (SOURCE / "examples").glob("*.c"))
    assert files == [step.name for step in steps()], files


def check_code():
    """The tutorial's code is in the files; a line '...' stands for lines left out"""
    for one in steps():
        assert one.code, f"no code of {one.name}"
        source = "\n".join(line.strip() for line in one.source.splitlines())
        for block in one.code:
            for part in re.split(r"^ *\.\.\.\n", block, flags=re.MULTILINE):
                text = "\n".join(line.strip() for line in part.strip().splitlines())
                assert text in source, f"{one.name} does not hold\n{text}"


if __name__ == "__main__":
    runs = [(f"{one.name} prints what the tutorial says", ends_as_the_tutorial_says(one.name))
            for one in steps() if one.name != "step2_launcher"]
    tap.run(runs + tap.checks_of(globals()))
