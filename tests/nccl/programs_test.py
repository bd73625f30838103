#!/usr/bin/env python3
"""libnccl.so.2 as programs use it: compiled against either header, preloaded, opened from Python, under a tool that
intercepts calls, with a CUDA driver in the process, and its log.

Usage: programs_test.py SOURCE_ROOT LIBRARY.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import nvidia  # noqa: E402
import tap  # noqa: E402

SOURCE, LIBRARY = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
HERE = pathlib.Path(__file__).resolve().parent
OURS = [f"-I{SOURCE / 'plugins/nccl'}"]
SECONDS = 60


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TUTTI_"))}
    return dict(kept, LD_LIBRARY_PATH=str(LIBRARY.parent), **more)


def compile_program(folder, compiler=("gcc", "-std=c11"), flags=OURS, name="program", links=("-lnccl",)):
    program = pathlib.Path(folder) / name
    tap.command(*compiler, "-Wall", "-Wextra", "-Werror", *flags, HERE / "program.c", "-o", program, f"-L{folder}",
                f"-L{LIBRARY.parent}", *links)
    return program


def run_ranks(command, count, variables):
    """Runs COUNT processes. Rank 0 prints the id for the others. Returns the output after the id."""
    outputs = []
    with contextlib.ExitStack() as stack:
        def start(*arguments):
            process = subprocess.Popen([*map(str, command), str(count), *map(str, arguments)], env=variables,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        first = start(0)
        unique_id = first.stdout.readline().strip()
        assert re.fullmatch("[0-9a-f]{256}", unique_id), (unique_id, first.communicate(timeout=SECONDS))
        ranks = [first] + [start(rank, unique_id) for rank in range(1, count)]
        for rank, process in enumerate(ranks):
            output, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, f"rank {rank}: status {process.returncode}\n{output}{errors}"
            outputs.append(output)
    return outputs


def all_ways(program, **more):
    for count in (1, 4):
        output = tap.command(program, count, env=environment(**more), timeout=SECONDS)
        assert "correct" in output, output
    for output in run_ranks([program], 3, environment(**more)):
        assert "correct" in output, output


def check_c():
    """A C11 program compiled against tutti's nccl.h"""
    with tempfile.TemporaryDirectory() as folder:
        all_ways(compile_program(folder))


def check_cpp():
    """The same as C++20"""
    with tempfile.TemporaryDirectory() as folder:
        all_ways(compile_program(folder, compiler=("g++", "-std=c++20", "-x", "c++"),
                                       links=("-x", "none", "-lnccl")))


def check_nvidias_header():
    """The same program, unchanged, compiled against NVIDIA's nccl.h"""
    installations = nvidia.installations()
    if not installations:
        raise tap.Skip("NVIDIA's nccl.h is not installed (NCCL_HOME, pip's nvidia-nccl, /usr/include)")
    for installed in installations:
        flags = [f"-I{path}" for path in (installed.include, *nvidia.cuda_includes())]
        with tempfile.TemporaryDirectory() as folder:
            all_ways(compile_program(folder, flags=flags))


def check_preload():
    """LD_PRELOAD replaces the library that a program was linked to"""
    with tempfile.TemporaryDirectory() as folder:
        # Another libnccl.so.2, in which every call fails.
        names = set(re.findall(r"\bnccl[A-Z]\w+(?=\()", (HERE / "program.c").read_text(encoding="utf-8")))
        other = pathlib.Path(folder) / "other.c"
        other.write_text("".join(f"int {name}(void) {{ return 3; }}\n" for name in sorted(names)), encoding="utf-8")
        library = pathlib.Path(folder) / "libnccl.so.2"
        tap.command("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-Wl,-soname,libnccl.so.2", other, "-o", library)
        (pathlib.Path(folder) / "libnccl.so").symlink_to(library)
        program = compile_program(folder)
        without = subprocess.run([program, "2"], env=dict(environment(), LD_LIBRARY_PATH=folder), capture_output=True,
                                 timeout=SECONDS, check=False)
        assert without.returncode != 0, "the other library was not used"
        output = tap.command(program, 2, env=dict(environment(LD_PRELOAD=str(LIBRARY)), LD_LIBRARY_PATH=folder),
                             timeout=SECONDS)
        assert "correct" in output, output


def check_interposer():
    """A tool defines ncclAllReduce and calls pncclAllReduce"""
    with tempfile.TemporaryDirectory() as folder:
        tool = pathlib.Path(folder) / "libtool.so"
        tap.command("gcc", "-std=c11", "-shared", "-fPIC", *OURS, HERE / "interposer.c", "-o", tool,
                    f"-L{LIBRARY.parent}", "-lnccl")
        output = tap.command(compile_program(folder), 4, env=environment(LD_PRELOAD=str(tool)), timeout=SECONDS)
        assert "correct" in output and "interposed 4" in output, output


def check_python():
    """Python processes through ctypes, the library named by VLLM_NCCL_SO_PATH"""
    variables = environment(VLLM_NCCL_SO_PATH=str(LIBRARY))
    for count in (2, 4):
        for output in run_ranks([sys.executable, HERE / "vllm_style.py"], count, variables):
            assert "correct" in output, output


def check_perf_program():
    """A program with what host code of nccl-tests names compiles, with and without CUDA's headers, and runs"""
    cuda = [path for path in nvidia.cuda_includes() if "cuda_stub" not in str(path)]
    for includes in ([], cuda) if cuda else ([],):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            tap.command("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *OURS, *(f"-isystem{path}" for path in includes),
                        HERE / "perf_program.cc", "-o", program, f"-L{LIBRARY.parent}", "-lnccl")
            output = tap.command(program, env=environment(), timeout=SECONDS)
            assert output.strip() == "correct", output


def check_device_program():
    """A program with kernels of NCCL's device API compiles, links, and is told that there is no device API"""
    nvcc = shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if nvcc is None:
        raise tap.Skip("no nvcc")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program"
        tap.command(nvcc, "-std=c++17", "--extended-lambda", "-Werror", "all-warnings", *OURS,
                    HERE / "device_program.cu", "-o", program, f"-L{LIBRARY.parent}", "-lnccl")
        output = tap.command(program, env=environment(), timeout=SECONDS)
        assert output.strip() == "correct", output


def check_multiprocessing():
    """Python's multiprocessing by fork, its default before 3.14: the parent makes the id"""
    variables = environment(VLLM_NCCL_SO_PATH=str(LIBRARY))
    output = tap.command(sys.executable, HERE / "vllm_style.py", "fork", 3, env=variables, timeout=SECONDS)
    assert output.split() == ["correct"] * 3, output


def check_close():
    """After dlclose of the library the process ends well, although the library's threads still run"""
    code = ("import ctypes, _ctypes, sys\n"
            "library = ctypes.CDLL(sys.argv[1])\n"
            "comm = ctypes.c_void_p()\n"
            "assert library.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0\n"
            "assert library.ncclCommDestroy(comm) == 0\n"
            "_ctypes.dlclose(library._handle)\n")
    tap.command(sys.executable, "-c", code, LIBRARY, env=environment(), timeout=SECONDS)


def check_device_memory():
    """With a CUDA driver loaded, device memory is refused; managed and host memory are accepted"""
    with tempfile.TemporaryDirectory() as folder:
        driver = pathlib.Path(folder) / "libcuda.so.1"
        tap.command("gcc", "-std=c11", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", HERE / "cuda_stub/driver.c", "-o",
                    driver)
        tap.command(sys.executable, __file__, SOURCE, LIBRARY, "with-driver", driver, env=environment(),
                    timeout=SECONDS)


def with_driver(path):
    """check_device_memory's child: this process has a driver."""
    driver = ctypes.CDLL(str(path))
    nccl = ctypes.CDLL(str(LIBRARY))
    nccl.ncclGetLastError.restype = ctypes.c_char_p
    comm = ctypes.c_void_p()
    assert nccl.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
    device, managed, host = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)(), (ctypes.c_float * 4)()
    driver.set_addresses(ctypes.c_uint64(ctypes.addressof(device)), ctypes.c_uint64(ctypes.addressof(managed)))

    def reduce(send, recv):
        return nccl.ncclAllReduce(send, recv, ctypes.c_size_t(4), 7, 0, comm, None)

    invalid_usage = 5
    assert reduce(device, host) == invalid_usage and list(host) == [0] * 4
    text = nccl.ncclGetLastError(comm).decode()
    assert "sendbuff" in text and "device memory" in text, text
    assert reduce(host, device) == invalid_usage
    assert "recvbuff" in nccl.ncclGetLastError(comm).decode()
    assert nccl.ncclGroupStart() == 0
    assert nccl.ncclBcast(device, ctypes.c_size_t(4), 7, 0, comm, None) == invalid_usage
    assert nccl.ncclGroupEnd() == invalid_usage
    assert reduce(host, managed) == 0
    assert nccl.ncclCommDestroy(comm) == 0


def run_logged(**variables):
    with tempfile.TemporaryDirectory() as folder:
        pattern = str(pathlib.Path(folder) / "log.%h.%p.txt")
        program = compile_program(folder)
        output = tap.command(program, 2, env=environment(NCCL_DEBUG_FILE=pattern, **variables), timeout=SECONDS)
        logs = list(pathlib.Path(folder).glob("log.*.txt"))
        assert len(logs) <= 1 and not any("%" in path.name for path in logs), logs
        return output, "".join(path.read_text(encoding="utf-8") for path in logs)


def check_log():
    """NCCL_DEBUG and NCCL_DEBUG_FILE: nothing by default, the version, set-up and end of communicators"""
    output, text = run_logged()
    assert output.strip() == "correct" and text == "", (output, text)
    output, text = run_logged(NCCL_DEBUG="version")
    assert output.strip() == "correct" and len(text.splitlines()) == 1, (output, text)
    assert re.search(r"NCCL version 2\.32\.3.*tutti \d+\.\d+\.\d+ from " + re.escape(str(LIBRARY)), text), text
    output, text = run_logged(NCCL_DEBUG="INFO")
    assert output.strip() == "correct" and len(re.findall(r"rank \d nranks 2 - set up", text)) == 2, (output, text)


def check_log_of_errors():
    """NCCL_DEBUG=WARN writes an error's text to standard output"""
    code = ("import ctypes, sys\n"
            "ctypes.CDLL(sys.argv[1]).ncclGetVersion(None)\n")
    output = tap.command(sys.executable, "-c", code, LIBRARY, env=environment(NCCL_DEBUG="WARN"), timeout=SECONDS)
    assert re.search(r"^\S+:\d+:\d+ NCCL WARN ncclGetVersion: argument version is NULL$", output.strip()), output


if __name__ == "__main__":
    if sys.argv[3:4] == ["with-driver"]:
        with_driver(sys.argv[4])
    else:
        tap.run(tap.checks_of(globals()))
