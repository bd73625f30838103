#!/usr/bin/env python3
"""The perf tools on the fake driver's CUDA devices. Prints TAP.

Usage: cuda_tools_test.py FOLDER DRIVER, where FOLDER holds the tools and DRIVER the fake libcuda.so.1.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402
from perf_tools import COLLECTIVES, ENVIRONMENT, ROOT, TOOLS, expect_right, rows, run  # noqa: E402

DRIVER = str(pathlib.Path(sys.argv[2]).resolve())
# The fake driver runs the threads of a block one by one, so messages are small and iterations few.
FEW = ("--hot", "-n", "2", "-w", "0", "-T", "60")
QUICK = (*FEW, "-b", "1K", "-e", "1K")


def run_on(devices, collective, *flags, status=0, **environment):
    """Runs a tool on a machine with `devices` devices."""
    machine = {"LD_LIBRARY_PATH": DRIVER, "FAKE_CUDA_DEVICES": str(devices),
               "CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in range(devices))}
    return run(collective, *flags, status=status, environment={**machine, **environment})


def devices_of(output):
    """The PCI ids of the ranks, by rank."""
    return [line.split("[")[1].split("]")[0] for line in output.splitlines() if line.startswith("#  Rank")]


def pci(device):
    return f"0000:{device + 1:02X}:00.0"


def right_on(devices, ranks, *flags):
    """Checks every tool with `flags` on this many devices. `ranks`: the device of each rank."""
    def check():
        for collective in COLLECTIVES:
            done = run_on(devices, collective, *QUICK, *flags)
            expect_right(collective, done.stdout, 1)
            assert devices_of(done.stdout) == [pci(device) for device in ranks], done.stdout
            assert "host memory" not in done.stdout and done.stderr == "", done.stdout + done.stderr
    return check


def check_methods_of_measuring():
    """Waits, barriers, groups, events, registration, misalignment, issue time, cycles and the null stream are right"""
    for flags in (("-z", "1"), ("-z", "2"), ("-z", "3"), ("-m", "3"), ("-m", "2", "-G", "2"), ("-R", "1"), ("-u", "1"),
                  ("-C", "1"), ("-N", "2"), ("-c", "2"), ("-c", "2", "-G", "1"), ("--reproducible",),
                  ("-a", "0"), ("-a", "2"), ("-a", "3"), ("-M", "1"), ("-o", "mulsum"), ("-d", "bfloat16", "-o", "avg")):
        done = run_on(1, "all_reduce", *QUICK, "--ranks-per-gpu", "2", *flags)
        expect_right("all_reduce", done.stdout, 2 if flags[0] == "-N" else 1)
        assert ("GPU memory usage" in done.stdout) == (flags[0] == "-M"), done.stdout
    for flags in (("-g", "2"), ("--ranks-per-gpu", "4")):
        expect_right("all_reduce", run_on(2, "all_reduce", *QUICK, *flags, "-y", "1").stdout, 1)


def check_rotating_buffers():
    """The default, rotating over four caches with as many iterations as needed, is right, in graphs too"""
    for flags in ((), ("-G", "2")):
        done = run_on(1, "all_reduce", "-b", "8K", "-e", "8K", "--ranks-per-gpu", "2", "-T", "60", *flags)
        expect_right("all_reduce", done.stdout, 1)


def check_types_and_sizes():
    """Types of every width and sizes around a packet are right on devices"""
    for kind in ("int8", "half", "double"):
        done = run_on(1, "all_reduce", *FEW, "-b", "8", "-e", "40", "-i", "8", "--ranks-per-gpu", "2", "-d", kind)
        expect_right("all_reduce", done.stdout, 5)


def check_json():
    """The JSON file has memory, devices, graphs and copy bandwidth; the device times the iterations"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        done = run_on(2, "all_reduce", *QUICK, "-g", "2", "--ranks-per-gpu", "2", "-I", "1", "-J", path,
                      "--floors", FAKE_CUDA_MEMORY=str(512 << 20))
        report = json.loads(pathlib.Path(path).read_text())
        config = report["config"]
        assert (config["memory"], config["ngpus"], config["ranks_per_gpu"]) == ("cuda", 2, 2), config
        assert [(one["device"], one["device_hex"]) for one in config["devices"]] == [
            (device, pci(device)) for device in (0, 0, 1, 1)], config
        assert all(one["device_info"].startswith("Fake GPU") for one in config["devices"]), config
        times = report["results"][0]["out_of_place_per_iter"]["times_us"]
        assert len(times) == 2 and min(times) > 0, report
        assert report["copy_bandwidth"] > 0 and "# Copy bandwidth" in done.stdout, done.stdout
        assert report["empty_kernel"] > 0 and "# Empty kernel" in done.stdout, done.stdout
        assert len(rows(done.stdout)[0]) == 22, done.stdout
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        run_on(1, "all_reduce", *QUICK, "-G", "3", "-J", path)
        assert json.loads(pathlib.Path(path).read_text())["config"]["graph"] == 3


def check_processes_of_one_device():
    """NCCL_TESTS_DEVICE puts the ranks of all processes on one device"""
    done = run_on(1, "all_reduce", *QUICK, "--procs", "2", "--ranks-per-gpu", "2", NCCL_TESTS_DEVICE="0")
    expect_right("all_reduce", done.stdout, 1)
    assert devices_of(done.stdout) == [pci(0)] * 4, done.stdout


def check_launchers_local_rank():
    """A launcher's local rank chooses a process's device; without a local rank an error asks for it"""
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert devices_of(run_on(2, "all_reduce", *QUICK, **place).stdout) == [pci(0)]
    done = run_on(2, "all_reduce", *QUICK, status=2, RANK="1", WORLD_SIZE="2", TUTTI_ID_FILE="/nowhere/id")
    assert "LOCAL_RANK" in done.stderr, done.stderr


def check_without_a_device():
    """Without a device the tools report this once and use the host; --memory cuda ends with the reason"""
    for flags in (("-g", "1"), ("-g", "2", "--ranks-per-gpu", "2"), ("--procs", "2")):
        done = run("all_reduce", *QUICK, *flags)
        expect_right("all_reduce", done.stdout, 1)
        assert (done.stdout + done.stderr).count("no CUDA device: host memory") == 1, done.stdout + done.stderr
        assert set(devices_of(done.stdout)) == {"host"}, done.stdout
    done = run("all_reduce", *QUICK, "-G", "2", "-y", "1")
    assert "-G is ignored" in done.stdout and "-y is ignored" in done.stdout and "graph: 0" in done.stdout, done.stdout
    done = run_on(0, "all_reduce", *QUICK, "--memory", "cuda", status=2)
    assert "the driver sees no device" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_host_memory_beside_a_device():
    """--memory host never looks for a device"""
    done = run_on(1, "all_reduce", *QUICK, "--memory", "host", "-t", "2", FAKE_CUDA_FAIL="cuInit:1:999")
    expect_right("all_reduce", done.stdout, 1)
    assert devices_of(done.stdout) == ["host"] * 2 and "no CUDA device" not in done.stdout, done.stdout


def check_more_devices_than_there_are():
    """Too many devices, and flags that devices cannot obey, end with status 2 and a helpful line"""
    for flags, said in ((("-g", "2"), "Invalid number of GPUs"), (("-t", "2"), "--ranks-per-gpu"),
                        (("-R", "2"), "-R 2 is refused"), (("-G", "1", "-z", "1"), "-G is refused")):
        done = run_on(1, "all_reduce", *QUICK, *flags, status=2)
        assert said in done.stderr and done.stderr.count("\n") == 1 and done.stdout == "", done.stdout + done.stderr
    done = run_on(1, "all_reduce", *QUICK, "--procs", "2", status=2)
    assert done.stderr.count("Invalid number of GPUs") == 1, done.stderr


def check_sizes_beyond_the_device():
    """Sizes whose buffers do not fit in the device's memory are skipped"""
    flags = ("--hot", "-n", "1", "-w", "0", "-c", "0", "-b", "64K", "-e", "256M", "-f", "4096", "--ranks-per-gpu", "2")
    done = run_on(1, "all_reduce", *flags, FAKE_CUDA_MEMORY=str(512 << 20))
    assert "Reducing maxBytes to 65536" in done.stdout and len(rows(done.stdout)) == 1, done.stdout


def check_nothing_is_left_behind():
    """A run frees everything that it made through the driver, except what the library keeps for each device"""
    done = run_on(1, "all_reduce", *QUICK, "--ranks-per-gpu", "2", "-G", "2", "-c", "2", status=86, FAKE_CUDA_LEAKS="1")
    left = [line.removeprefix("fake driver: left behind: ") for line in done.stderr.splitlines()]
    assert sorted(left) == ["cuDevicePrimaryCtxRetain: 1", "cuLibraryLoadData: 1", "cuStreamCreate: 1"], done.stderr


def check_table_of_the_bundle():
    """gpu-test of the bundle prints its table of ranks on a device as shares of the copy bandwidth"""
    with tempfile.TemporaryDirectory() as folder:
        script = shutil.copy(ROOT / "dev.d/gpu_test.sh", pathlib.Path(folder) / "gpu-test")
        (pathlib.Path(folder) / "bin").symlink_to(TOOLS.resolve())
        environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": DRIVER, "CUDA_VISIBLE_DEVICES": "0",
                       "FAKE_CUDA_MEMORY": str(1 << 30)}
        done = subprocess.run(["bash", script, "perf", "4K", "1", "2", "4"], capture_output=True, text=True, check=False,
                              env=environment, timeout=200)
        shown = done.stdout + done.stderr
        assert done.returncode == 0 and "16 passed, 0 failed" in shown, shown
        table = [line.split() for line in done.stdout.splitlines() if line.startswith(("all_", "reduce_"))]
        # Three collectives in two types, a 256th of their bytes, and 8 bytes, each with 2 and 4 ranks.
        assert [row[2] for row in table] == (["4096"] * 6 + ["16", "8"]) * 2, shown
        for name, ranks, size, _, time_us, floor_us, share, sign, copy_gbs, wrong, over_us, _ in table:
            factor = 2 * int(ranks) if name == "all_reduce" else int(ranks) + 1
            least_us = factor * int(size) / (float(copy_gbs) * 1000)
            assert abs(float(floor_us) - least_us) < 0.01 + 0.001 * least_us and sign == "%", (name, ranks, size, shown)
            assert abs(float(share) - 100 * float(floor_us) / float(time_us)) < 1, shown
            assert wrong in ("0", "N/A") and float(over_us) < float(time_us), shown
        environment["CUDA_VISIBLE_DEVICES"] = ""
        done = subprocess.run(["bash", script, "perf"], capture_output=True, text=True, check=False, env=environment,
                              timeout=60)
        assert done.returncode == 2 and "no GPU" in done.stdout and "no device" in done.stdout, done.stdout


def check_errors_of_the_driver():
    """An error of any driver call ends the run on all ranks with status 3 and the function's name"""
    for function, after, flags in (("cuMemAlloc_v2", 1, ()), ("cuGraphLaunch", 3, ("-G", "3")), ("cuLaunchKernelEx", 9, ()),
                                   ("cuStreamEndCapture", 2, ("-G", "1")), ("cuStreamSynchronize", 40, ()),
                                   ("cuEventElapsedTime", 2, ("-I",)), ("cuDevicePrimaryCtxRetain", 1, ())):
        for ranks in (("--ranks-per-gpu", "2"), ("-g", "1", "-t", "2")):
            if ranks[0] == "-g" and function == "cuEventElapsedTime":
                continue
            done = run_on(2, "all_reduce", *QUICK, *ranks, *flags, status=3,
                          FAKE_CUDA_FAIL=f"{function}:{after}:999")
            assert function.removesuffix("_v2") in done.stderr, f"{function} {ranks}: {done.stdout}{done.stderr}"


CHECKS = [
    ("Every tool is right with 1 rank on a device", right_on(1, [0])),
    ("Every tool is right with 2 ranks of a thread on a device, in graphs",
     right_on(1, [0, 0], "--ranks-per-gpu", "2", "-G", "2")),
    ("Every tool is right with 2 ranks of a thread on each of 2 devices",
     right_on(2, [0, 0, 1, 1], "-g", "2", "--ranks-per-gpu", "2")),
    ("Every tool is right with 2 threads on 2 devices", right_on(2, [0, 1], "-t", "2")),
    ("Every tool is right with 2 processes on 2 devices, in graphs", right_on(2, [0, 1], "--procs", "2", "-G", "1")),
    *tap.checks_of(globals()),
]

if __name__ == "__main__":
    tap.run(CHECKS)
