#!/usr/bin/env python3
"""The torch backend: scenarios.py under tutti.launch.

Usage: torch_test.py PACKAGE_ROOT LIBRARY_FOLDER BACKEND DRIVER_FOLDER RUNTIME_FOLDER. BACKEND is the compiled module;
every case skips without it. The last two hold the stand-ins for CUDA, for the cases with CUDA tensors.
"""

import contextlib
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
STAND_INS = sys.argv[4:6]
SECONDS_MAX = 280


@contextlib.contextmanager
def installed():
    """(folder, environment) in which Python finds the package and the backend."""
    if BACKEND is None:
        raise tap.Skip("the backend was not built: there was no torch 2 (-Dtorch_python=PYTHON names another Python)")
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "tutti_torch"
        place.mkdir()
        shutil.copy(PACKAGE.parent / "torch" / "tutti_torch" / "__init__.py", place)
        (place / BACKEND.name).symlink_to(BACKEND.resolve())
        yield folder, dict(os.environ, PYTHONPATH=f"{PACKAGE}:{folder}", LD_LIBRARY_PATH=str(LIBRARIES),
                           PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")


@contextlib.contextmanager
def installed_on_devices():
    """The same, with two devices of the stand-ins. torch would find NVIDIA's runtime before the stand-in for it."""
    if BACKEND is not None and not STAND_INS:
        raise tap.Skip("there are no stand-ins for CUDA in this build")
    with installed() as (folder, environment):
        driver, runtime = STAND_INS
        environment.update(LD_LIBRARY_PATH=f"{LIBRARIES}:{driver}:{runtime}", FAKE_CUDA_DEVICES="2",
                           LD_PRELOAD=f"{runtime}/libcudart.so.13")
        done = subprocess.run([sys.executable, "-c", "import os, sys; sys.setdlopenflags(os.RTLD_LAZY); import torch; "
                               "sys.exit(not torch.cuda.is_available())"], env=environment, check=False)
        if done.returncode:
            raise tap.Skip("this torch was built without CUDA, or for another CUDA than 13")
        yield folder, environment


def launch(ranks, *scenarios):
    """(status, standard output, standard error) of the scenarios."""
    return run(*scenarios, starter=["-m", "tutti.launch", "-n", str(ranks)])


def run(*scenarios, starter=(), program="scenarios.py", place=installed):
    """The same without ranks, or with the program that starts them."""
    with place() as (_, environment):
        done = subprocess.run([sys.executable, *starter, HERE / program, *scenarios], capture_output=True, text=True,
                              check=False, env=environment, timeout=SECONDS_MAX)
        return done.returncode, done.stdout, done.stderr


def passes(ranks, *scenarios):
    status, output, errors = launch(ranks, *scenarios)
    assert status == 0 and not output, f"status {status}\n{output}{errors}"


def check_calls():
    """Collectives, messages, objects, groups, functional collectives and DTensor give the right results"""
    passes(3, "collectives", "types", "messages", "objects", "groups", "functional", "profiled")


def check_observers():
    """Hooks and callbacks that raise, or get no thread, are logged and keep nothing from its end"""
    status, output, errors = launch(2, "observers")
    assert status == 0 and "a hook of the program" in errors and "no thread for" in errors, (status, output, errors)


def check_threads():
    """Messages of one thread do not wait for a collective of another thread"""
    passes(2, "threads")


def check_renewed():
    """A group that follows another one under the same name finds nothing of it in the store"""
    passes(2, "renewed")


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


def check_device():
    """CUDA tensors: every collective, messages and groups, in the order of the streams, beside CPU tensors"""
    for ranks in (2, 3):  # three ranks share two devices
        status, output, errors = run("collectives", "both", "order", "barriers", "compressed", "messages", "groups",
                                     "abandoned",
                                     starter=["-m", "tutti.launch", "-n", str(ranks)], program="device_scenarios.py",
                                     place=installed_on_devices)
        assert status == 0 and not output, f"status {status}\n{output}{errors}"


def run_alone(count, scenario):
    """(exit statuses, outputs) of ranks without a launcher, which would end the others with the first."""
    with installed_on_devices() as (folder, environment):
        environment.update(WORLD_SIZE=str(count), MEETING=f"{folder}/meeting")
        ranks = [subprocess.Popen([sys.executable, HERE / "device_scenarios.py", scenario], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=dict(environment, RANK=str(rank)))
                 for rank in range(count)]
        try:
            said = [rank.communicate(timeout=SECONDS_MAX) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        return [rank.returncode for rank in ranks], said


def check_device_killed():
    """CUDA tensors: a killed rank is named on every other rank"""
    statuses, said = run_alone(3, "killed")
    assert statuses == [0, -signal.SIGKILL, 0], said
    for rank in (0, 2):
        assert "the process of rank 1 has ended" in said[rank][0], said


def check_device_ending():
    """CUDA tensors: a program ends with a live group and calls under way"""
    # Regression: freed by the group's thread, a tensor asked for an interpreter that was ending. Python then ended
    # the thread in the middle of C++, and C++ the process.
    statuses, said = run_alone(2, "ending")
    assert statuses == [0, 0], said


tap.run(tap.checks_of(globals()))
