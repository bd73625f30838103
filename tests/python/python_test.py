#!/usr/bin/env python3
"""The Python package: scenarios.py under tutti.launch, errors on every rank, and the programs of the package.

Usage: python_test.py PACKAGE_ROOT LIBRARY_FOLDER. Skips without NumPy and cffi. The cases for torch run where torch is.
"""

import ast
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import tap  # noqa: E402

PACKAGE, LIBRARIES = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
ENVIRONMENT = dict(os.environ, PYTHONPATH=str(PACKAGE), LD_LIBRARY_PATH=str(LIBRARIES), PYTHONDONTWRITEBYTECODE="1")
SECONDS_MAX = 120
# A background job of a shell starts with SIGINT ignored, and its children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def run(*words, **environment):
    """A program of the package: (status, standard output, standard error)."""
    done = subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True, check=False,
                          env=dict(ENVIRONMENT, **environment), timeout=SECONDS_MAX)
    return done.returncode, done.stdout, done.stderr


def launch(ranks, *words):
    for module in ("numpy", "cffi"):
        if importlib.util.find_spec(module) is None:
            raise tap.Skip(f"{sys.executable} has no {module}")
    return run("tutti.launch", "-n", ranks, HERE / "scenarios.py", *words)


def passes(ranks, *scenarios):
    status, output, errors = launch(ranks, *scenarios)
    assert status == 0 and not output, f"status {status}\n{output}{errors}"


def check_collectives():
    """Collectives, types, counts, streams, groups and objects give the right results"""
    passes(3, "arrays", "counts", "kinds", "nothing_to_do", "streams", "dropped", "point_to_point", "raising_group")


def check_members():
    """Split and shrink make communicators of the right ranks"""
    passes(3, "members")


def check_algorithm():
    """A communicator uses the algorithm that it was made with"""
    passes(2, "named_algorithm")


def check_arguments():
    """A wrong argument raises its class with a sentence, and sends nothing"""
    passes(2, "arguments")


def check_torch():
    """Tensors of torch are read where they lie"""
    if importlib.util.find_spec("torch") is None:
        raise tap.Skip(f"{sys.executable} has no torch")
    passes(2, "torch_tensors")


def on_fake_device(*scenarios):
    """Runs scenarios where the driver is the tests' fake one."""
    folder = LIBRARIES / "tests" / "cuda" / "driver"
    if not (folder / "libcuda.so.1").exists():
        raise tap.Skip("the build has no CUDA")
    launch(1, "nothing_to_do")  # skips as the others
    status, output, errors = run("tutti.launch", "-n", 2, HERE / "scenarios.py", *scenarios,
                                 LD_LIBRARY_PATH=f"{LIBRARIES}:{folder}", FAKE_CUDA_SMS="2")
    assert status == 0 and not output, f"status {status}\n{output}{errors}"


def check_device_arrays():
    """A call on a device waits for the stream that makes its array"""
    on_fake_device("device_arrays")


def check_device_arrays_dropped():
    """An array on a device lives until the stream has passed its call"""
    on_fake_device("device_arrays_dropped")


def check_killed_rank():
    """A killed rank is named on every other rank, and the launcher returns its signal"""
    status, output, errors = launch(3, "killed")
    assert status == 128 + signal.SIGKILL, (status, output, errors)
    assert "rank 1 ended with SIGKILL" in errors, errors
    for line in output.splitlines():
        assert "PeerLostError: the process of rank 1 has ended" in line, output


def check_killed_rank_on_stream():
    """A killed rank is told by every Work of the stream"""
    status, output, errors = launch(3, "killed_on_stream")
    assert status == 128 + signal.SIGKILL and "Traceback" not in errors and not output, (status, output, errors)


def check_abort():
    """An abort is told as one, and a communicator that is dropped is closed"""
    passes(2, "forgotten", "aborted")


def check_mismatch():
    """Different calls raise MismatchError with both calls on both ranks"""
    status, output, errors = launch(2, "mismatch")
    assert status == 0 and output.count("MismatchError: rank ") == 2 and output.count("count 5") == 2, output + errors


def check_timeout():
    """A missing rank is a TimeoutError that names it, on all ranks"""
    status, output, errors = launch(2, "late")
    assert status == 0 and output.count("TimeoutError: no progress for 0.2 s") == 2, output + errors


def check_interrupt():
    """Ctrl-C ends a blocked call, the wait for a stream, and a group, with KeyboardInterrupt"""
    for case in ("interrupted", "interrupted_on_stream", "interrupted_in_group"):
        status, output, errors = launch(2, case)
        good = status == 128 + signal.SIGINT and output.count("KeyboardInterrupt") == 2
        assert good, f"{case}: {status} {output}{errors}"


def check_launch_mistakes():
    """A program that cannot be run is a sentence; a reader that goes away ends nothing"""
    for program in ("./absent", "/"):
        status, output, errors = run("tutti.launch", "-n", "2", program)
        assert status == 127 and errors.startswith(f"tutti.launch: cannot run {program}: ") and not output, errors
    ranks = subprocess.Popen([sys.executable, "-m", "tutti.launch", "-n", "2", "seq", "100000"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=ENVIRONMENT)
    ranks.stdout.read(10)
    ranks.stdout.close()
    assert ranks.stderr.read() == b"" and ranks.wait(SECONDS_MAX) == 0
    ranks.stderr.close()


def check_terminated_launcher():
    """SIGTERM to the launcher, from a scheduler, ends the ranks"""
    program = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    launcher = subprocess.Popen([sys.executable, "-m", "tutti.launch", "-n", "2", sys.executable, "-c", program],
                                stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    ranks = [int(launcher.stdout.readline().split()[1]) for _ in range(2)]
    launcher.terminate()
    assert launcher.wait(SECONDS_MAX) == 128 + signal.SIGTERM
    assert not [rank for rank in ranks if pathlib.Path(f"/proc/{rank}").exists()]


def check_exit_with_live_communicators():
    """A process that closes nothing ends"""
    passes(2, "live_at_exit")


def check_uncaught_exception():
    """An uncaught exception of one rank ends all ranks"""
    status, _, errors = launch(3, "failing")
    assert status == 1 and "RuntimeError: rank 1 fails" in errors, errors


def check_fork():
    """multiprocessing's fork works with an id made in the parent"""
    launch(1, "arrays")  # skips as the others
    done = subprocess.run([sys.executable, HERE / "scenarios.py", "forked"], env=ENVIRONMENT, capture_output=True,
                          text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout + done.stderr


def check_info():
    """tutti.info tells the version, which transports join hosts, and why there are no devices"""
    launch(1, "arrays")
    status, output, errors = run("tutti.info")
    assert status == 0 and output.startswith("tutti ") and "host memory    yes" in output, output + errors
    lines = {line[:14].strip(): line[15:] for line in output.splitlines()}
    assert lines["TCP"] == "yes", output
    for transport in ("RDMA", "UCX"):
        assert lines[transport] == "yes" or lines[transport].startswith("no: TUTTI_TRANSPORT is"), output


def check_nccl():
    """tutti.nccl runs a program with tutti's libnccl.so.2 preloaded, and says if there is none"""
    launch(1, "arrays")
    status, output, errors = run("tutti.nccl", "printenv", "LD_PRELOAD")
    if status == 2:
        assert "has no libnccl.so.2" in errors, errors
    else:
        assert status == 0 and "libnccl.so.2" in output, output + errors


def check_malloc():
    """tutti.malloc runs ranks with libtutti_malloc.so preloaded: their arrays lie in the heap"""
    launch(1, "arrays")
    program = ("import numpy, re; a = numpy.ones(1 << 20); "
               "print(bool(re.search('tutti-.* .deleted', open('/proc/self/maps').read())))")
    folder = LIBRARIES / "plugins" / "malloc"
    status, output, errors = run("tutti.launch", "-n", 2, sys.executable, "-m", "tutti.malloc", sys.executable, "-c", program,
                                 LD_LIBRARY_PATH=f"{LIBRARIES}:{folder}")
    assert status == 0 and sorted(output.splitlines()) == ["[0] True", "[1] True"], output + errors
    status, output, errors = run("tutti.malloc", "true")
    assert status == 2 and "has no libtutti_malloc.so" in errors, output + errors


def check_port_of_the_job():
    """The launcher's port for rank 0 is none that the system gives to a connection in the meantime"""
    source = (PACKAGE / "tutti" / "launch.py").read_text(encoding="utf-8")
    scope = {"__name__": "launch"}
    exec(compile(source, "launch.py", "exec"), scope)  # the package itself needs cffi
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    for _ in range(20):
        assert 1024 <= scope["_free_port"]() < first


def check_wheel_files():
    """The wheel has every file of the package, every program has its command, and the versions are equal"""
    build = (PACKAGE / "meson.build").read_text(encoding="utf-8")
    installed = set(re.findall(r"'tutti/([^']+)'", build))
    present = {path.name for path in (PACKAGE / "tutti").iterdir() if path.is_file()}
    assert installed == present, installed ^ present
    project = (PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    commands = set(re.findall(r'^([\w-]+) = "tutti\._programs:main"$', project, re.MULTILINE))
    programs = set(re.findall(r"'(tutti-\w+)': tutti_", build))
    programs |= {f"{name}_perf" for name in re.search(r"foreach name : \[(.*?)\]", build).group(1).replace("'", "").split(", ")}
    assert commands == programs, commands ^ programs
    versions = set(re.findall(r'^version = "(.*)"$', project, re.MULTILINE))
    versions |= set(re.findall(r"^  version: '(.*?)'", (PACKAGE.parents[1] / "meson.build").read_text(encoding="utf-8"),
                               re.MULTILINE))
    torch = PACKAGE.parent / "torch"
    versions |= set(re.findall(r'^version = "(.*)"$', (torch / "pyproject.toml").read_text(encoding="utf-8"),
                               re.MULTILINE))
    versions |= set(re.findall(r"version: '(\d.*?)'", (torch / "meson.build").read_text(encoding="utf-8")))
    assert len(versions) == 1, versions


def check_docstrings():
    """Every public function of the package has a docstring"""
    for path in sorted((PACKAGE / "tutti").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        assert ast.get_docstring(method), f"{path.name}: {node.name}.{method.name}"


tap.run(tap.checks_of(globals()))
