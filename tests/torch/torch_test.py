#!/usr/bin/env python3
"""The torch backend: scenarios.py under tutti.launch.

Usage: torch_test.py PACKAGE_ROOT LIBRARY_FOLDER BACKEND. BACKEND is the compiled module; every case skips without it.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import tap  # noqa: E402

PACKAGE, LIBRARIES = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
BACKEND = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
SECONDS_MAX = 280


def launch(ranks, *scenarios):
    """(status, standard output, standard error) of the scenarios."""
    return run(*scenarios, starter=["-m", "tutti.launch", "-n", str(ranks)])


def run(*scenarios, starter=()):
    """The same without ranks, or with the program that starts them."""
    if BACKEND is None:
        raise tap.Skip("the backend was not built: there was no torch 2 (-Dtorch_python=PYTHON names another Python)")
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "tutti_torch"
        place.mkdir()
        shutil.copy(PACKAGE.parent / "torch" / "tutti_torch" / "__init__.py", place)
        (place / BACKEND.name).symlink_to(BACKEND.resolve())
        environment = dict(os.environ, PYTHONPATH=f"{PACKAGE}:{folder}", LD_LIBRARY_PATH=str(LIBRARIES),
                           PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        done = subprocess.run([sys.executable, *starter, HERE / "scenarios.py", *scenarios], capture_output=True,
                              text=True, check=False, env=environment, timeout=SECONDS_MAX)
        return done.returncode, done.stdout, done.stderr


def passes(ranks, *scenarios):
    status, output, errors = launch(ranks, *scenarios)
    assert status == 0 and not output, f"status {status}\n{output}{errors}"


def check_calls():
    """Collectives, messages, objects, groups, functional collectives and DTensor give the right results"""
    passes(3, "collectives", "types", "messages", "objects", "groups", "functional", "profiled")


def check_training():
    """DDP at 2 ranks has the bits of one process; with hooks, as FSDP1, FSDP2 and tensor parallel it trains alike"""
    passes(2, "ddp", "ddp_hooks", "compressed", "fsdp", "fsdp1", "tensor_parallel")


def check_training_of_four():
    """DDP at 4 ranks has the bits of one process; FSDP1, FSDP2 and tensor parallel its losses"""
    passes(4, "ddp", "fsdp", "fsdp1", "tensor_parallel")


def check_shrink():
    """Groups go on without a rank, and so does the whole world"""
    passes(3, "shrunk")


def check_multiprocessing():
    """multiprocessing's ranks, by spawn and by fork, end without closing anything"""
    for method in ("spawn", "fork"):
        status, output, errors = run("spawn", method)
        assert status == 0 and not output, f"{method}: status {status}\n{output}{errors}"


def check_failures():
    """Deadlines say Timed out and name the rank; abort ends what is under way"""
    passes(2, "timeouts", "aborted")


def check_mismatch():
    """Different calls raise the sentence with both calls on both ranks"""
    status, output, errors = launch(2, "mismatch")
    assert status == 0 and output.count("count 5") == 2 and output.count("count 6") == 2, output + errors


def check_killed_rank():
    """A killed rank is named on every other rank"""
    status, output, errors = launch(3, "killed")
    assert status == 128 + signal.SIGKILL, (status, output, errors)
    for line in output.splitlines():
        assert "the process of rank 1 has ended" in line, output


def check_exit():
    """A program ends with live groups and unfinished calls"""
    status, output, errors = launch(2, "left_alone")
    assert status == 0, f"status {status}\n{output}{errors}"


tap.run(tap.checks_of(globals()))
