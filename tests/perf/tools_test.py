#!/usr/bin/env python3
"""The perf tools as a user sees them: processes, threads, failures. Prints TAP.

Usage: tools_test.py FOLDER, where FOLDER holds the tools.
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402
from perf_tools import COLLECTIVES, ENVIRONMENT, QUICK, TOOLS, expect_right, rows, run  # noqa: E402


def right_with(*flags, skipped=()):
    def check():
        for collective in COLLECTIVES:
            if collective in skipped:
                continue
            done = run(collective, *QUICK, "-b", "8", "-e", "64K", "-f", "8", *flags)
            expect_right(collective, done.stdout, 5)
    return check


def check_hypercube_skips_other_rank_counts():
    """hypercube_perf skips rank counts that are not a power of two"""
    done = run("hypercube", *QUICK, "-t", "3")
    assert "nRanks 3 is not a power of 2, skipping" in done.stdout, done.stdout


def check_every_type_and_operator():
    """Every type with every operator is right, through every reducing tool"""
    for collective in ("all_reduce", "reduce", "reduce_scatter"):
        done = run(collective, *QUICK, "-b", "600", "-e", "600", "-o", "all", "-d", "all", "-t", "3")
        # 8 integer types x 9 operators, 6 float types x 6, bool x 4.
        expect_right(collective, done.stdout, 8 * 9 + 6 * 6 + 4)


def check_every_root():
    """Every root is right"""
    for collective in ("broadcast", "reduce", "gather", "scatter"):
        done = run(collective, *QUICK, "-b", "1K", "-e", "1K", "-r", "all", "-t", "3")
        expect_right(collective, done.stdout, 3)
        assert [row[4] for row in rows(done.stdout)] == ["0", "1", "2"], done.stdout


def check_methods_of_measuring():
    """Streams, barriers, groups, registration, misalignment, CPU time and cycles give right results"""
    for flags in (("--stream",), ("--stream", "-z", "2"), ("-z", "1"), ("-z", "3"), ("-m", "3"), ("-R", "1"),
                  ("-R", "2"), ("-u", "1"), ("-C", "1"), ("-N", "2"), ("-c", "2"), ("-w", "0"), ("--reproducible",),
                  ("-a", "0"), ("-a", "2"), ("-a", "3"), ("-p", "1"), ("-M", "1"), ("-n", "0")):
        done = run("all_reduce", *QUICK, "-b", "1K", "-e", "64K", "-f", "64", "-t", "2", *flags)
        expect_right("all_reduce", done.stdout, 4 if flags[0] == "-N" else 2)


def check_rotating_buffers():
    """The default, rotating over four caches with as many iterations as needed, is right"""
    done = run("all_reduce", "-b", "8", "-e", "8", "-t", "2", "-T", "60")
    expect_right("all_reduce", done.stdout, 1)


def check_json():
    """The JSON file has the figures of the table, with samples of each iteration"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        done = run("all_reduce", *QUICK, "-b", "8", "-e", "64", "-f", "8", "--procs", "2", "-J", path, "-I", "1", "-S",
                   "1")
        report = json.loads(pathlib.Path(path).read_text())
        assert report["version"] == 3, report
        assert [row["size"] for row in report["results"]] == [8, 64], report
        iterations = report["results"][0]["out_of_place_per_iter"]
        processes = iterations["per_process_max_times_us"]
        assert len(iterations["times_us"]) == 3 and [len(times) for times in processes] == [3, 3], report
        assert [max(times) for times in zip(*processes)] == iterations["times_us"], report
        assert report["out_of_bounds"] == {"count": 0, "okay": "true"}, report
        assert len({device["pid"] for device in report["config"]["devices"]}) == 2, report
        # 5 + 2 x (4 + 4) columns, date, time, algorithm.
        assert [len(row) for row in rows(done.stdout)] == [24, 24], done.stdout


def check_emulated_hosts():
    """--emulate-hosts spreads the processes over hosts that share no memory"""
    done = run("all_reduce", *QUICK, "-b", "8", "-e", "64", "-f", "8", "--procs", "4", "--emulate-hosts", "2",
               environment={"TUTTI_ALGORITHM": "hierarchical_leaders"})
    expect_right("all_reduce", done.stdout, 2)
    for ranks in (("--procs", "2"), ("-t", "4")):
        done = run("all_reduce", *QUICK, *ranks, "--emulate-hosts", "3", status=2)
        assert "needs a process for each host" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_algorithms_in_turns():
    """--algorithms gives each algorithm a row of every size, and leaves out those that do not serve the call"""
    done = run("all_reduce", *QUICK, "--procs", "2", "--algorithms", "rings", status=3)
    assert '"rings"' in done.stderr, done.stderr
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        done = run("all_reduce", "--memory", "host", "--procs", "2", "--bind", "-b", "8", "-e", "512", "-f", "64", "-N",
                   "2", "--row-time", "0.5", "--out-of-place", "--footprint", "1M", "--algorithms",
                   "default,ring,multicast", "-J", path)
        assert "multicast does not serve 512 bytes: no row" in done.stdout, done.stdout
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        rows = report["results"]
        order = [(row["size"], row["wanted"]) for row in rows]
        assert sorted(order) == sorted([(8, "default"), (8, "ring"), (512, "default"), (512, "ring")] * 2), order
        assert all(row["algorithm"] == "ring" for row in rows if row["wanted"] == "ring"), rows
        assert all(row["in_place"] is None for row in rows), rows
        # Where the two cores were before and after each row; 0 if one of them was busy.
        if len(os.sched_getaffinity(0)) > 1:
            assert all(len(row["out_of_place"]["line_ns"]) == 2 for row in rows), rows
        counts = {(row["size"], row["wanted"], row["actual_iterations"]) for row in rows}
        assert len(counts) == 4, f"a later turn counts its calls anew: {counts}"
        mean = sum(row["out_of_place"]["bus_bw"] for row in rows) / len(rows)
        assert abs(report["average_bus_bandwidth"]["bandwidth"] - mean) < 1e-9, "rows that do not count are in the mean"


def check_each_start_begins_with_another_algorithm():
    """What a row leaves in the caches is not the same in each start: another algorithm comes first"""
    with tempfile.TemporaryDirectory() as folder:
        firsts = set()
        for start in range(40):
            path = os.path.join(folder, f"{start}.json")
            run("all_reduce", "--memory", "host", "--procs", "2", "-b", "8", "-e", "8", "--row-time", "0.1",
                "--out-of-place", "--footprint", "1M", "--algorithms", "default,ring", "-J", path)
            with open(path, encoding="utf-8") as file:
                firsts.add(json.load(file)["results"][0]["wanted"])
            if len(firsts) == 2:
                return
        raise AssertionError(f"40 starts began with {firsts}")


def check_mistakes():
    """Mistakes end with status 2 and one line that names them"""
    for flags, said in ((("-r", "5", "-t", "2"), "root 5"), (("-D", "1"), "-D is refused"), (("-b", "x"), "minbytes")):
        done = run("reduce", *flags, status=2)
        assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = run("hypercube", "-m", "2", "-t", "2", status=2)
    assert "-m 2" in done.stderr, done.stderr
    done = run("alltoallv", environment={"NCCL_TESTS_SPLIT": "MOD 2"}, status=2)
    assert "NCCL_TESTS_SPLIT is refused" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = run("all_reduce", environment={"RANK": "0", "WORLD_SIZE": "2"}, status=2)
    assert "TUTTI_ID_FILE" in done.stderr, done.stderr
    done = run("all_reduce", "--procs", "2", environment={"RANK": "0", "WORLD_SIZE": "2"}, status=2)
    assert "--procs 2 is refused" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_traffic_matrix():
    """alltoallv_perf sends what a matrix says, and prints each rank's part"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "traffic.txt"
        path.write_text("0 1000 64\n4096 16 0\n32 0 0\n1 2 3\n")
        matrix = {"NCCL_TESTS_ALLTOALLV_MATRIX_FILE": str(path)}
        done = run("alltoallv", *QUICK, "-b", "8K", "-e", "8K", "-t", "3", environment=matrix, status=2)
        assert "row 4 has 3" not in done.stderr and "4 rows of 3 numbers" in done.stderr, done.stderr
        path.write_text("0 1000 64\n4096 16 0\n32 0 0\n")
        matrix |= {"NCCL_TESTS_ALLTOALLV_MATRIX_SCALE": "2", "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY": "1"}
        for ranks in (("-t", "3"), ("--procs", "3")):
            done = run("alltoallv", *QUICK, "-b", "9K", "-e", "9K", *ranks, "-d", "double", environment=matrix)
            expect_right("alltoallv", done.stdout, 1)
            # Rank 0 receives most: 2 x (4096 + 32).
            assert rows(done.stdout)[0][:2] == ["8256", "0"], done.stdout
            assert "mode=matrix nranks=3 matrix_dim=3 scale=2.000" in done.stdout, done.stdout
            assert "rank=0 send_bytes=2128 recv_bytes=8256" in done.stdout, done.stdout
        for flags, said in ((("-b", "8", "-e", "9K"), "-b and -e must be equal"), (("-b", "1K", "-e", "1K"), "8256 bytes"),
                            (("-b", "9K", "-e", "9K", "-t", "4"), "describes 3 ranks")):
            done = run("alltoallv", *QUICK, "-t", "3", *flags, environment=matrix, status=2)
            assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = run("alltoallv", *QUICK, "-b", "4K", "-e", "4K", "-t", "2",
               environment={"NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY": "1"})
    assert "mode=generated nranks=2" in done.stdout, done.stdout


def check_table_that_cannot_be_written():
    """A full disk under the table is an error. It was none"""
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(TOOLS / "all_reduce_perf"), *QUICK, "-b", "8", "-e", "8"], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 3 and "writing the table" in done.stderr, (done.returncode, done.stderr)


def check_report_path():
    """A report that cannot be written is an error before anything starts"""
    with tempfile.TemporaryDirectory() as folder:
        for path, said in ((folder, "is a folder"), (folder + "/", "is a folder"), ("/dev/full", "is a device"),
                           (folder + "/none/out.json", "No such file or directory")):
            for ranks in (("-t", "2"), ("--procs", "2")):
                done = run("all_reduce", *QUICK, "-J", path, *ranks, status=2)
                assert done.stdout == "" and f"-J {path}" in done.stderr and said in done.stderr, done.stderr
                assert done.stderr.count("\n") == 1, done.stderr
        assert os.listdir(folder) == [], os.listdir(folder)


def check_bandwidth_floor():
    """A bandwidth below NCCL_TESTS_MIN_BW ends with status 1"""
    done = run("all_reduce", *QUICK, "-b", "64", "-e", "64", "-t", "2", environment={"NCCL_TESTS_MIN_BW": "1e9"},
               status=1)
    assert "FAILED" in done.stdout, done.stdout


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def read_until(stream, mark):
    """Waits for an event: the line that holds `mark`."""
    text = ""
    for line in stream:
        text += line
        if mark in line:
            return text
    raise AssertionError(f"ended without '{mark}':\n{text}")


def endless_run(*flags):
    """Starts a tool with 3 processes that runs until the test stops it. Returns once the tool measures."""
    words = [str(TOOLS / "all_reduce_perf"), "--hot", "-b", "64", "-e", "64", "--procs", "3", "-N", "0", "-n", "1000",
             *flags]
    tool = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    read_until(tool.stdout, "(elements)")
    workers = children_of(tool.pid)
    assert len(workers) == 3, workers
    return tool, workers


def end_of(tool, workers):
    """Returns the tool's stderr. The tool must end soon and leave no process."""
    started = time.monotonic()
    _, said = tool.communicate(timeout=60)
    elapsed = time.monotonic() - started
    assert tool.returncode == 3, (tool.returncode, said)
    assert elapsed < 30, f"took {elapsed:.1f} s\n{said}"
    assert not any(pathlib.Path(f"/proc/{worker}").exists() for worker in workers), workers
    return said


def check_threads_that_cannot_start():
    """A process that may have no more threads says for which rank, and ends. It aborted"""
    if os.geteuid() != 0:
        raise tap.Skip("a limit of a user's threads needs root, which starts the tool as another user")
    words = [str(TOOLS / "all_reduce_perf"), *QUICK, "-t", "32"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=ENVIRONMENT, user=64987,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (16, 16)))
    assert done.returncode == 3 and "starting a rank's thread" in done.stderr, (done.returncode, done.stderr)


def check_killed_rank():
    """A killed rank ends the run within seconds; the error names the rank; no process remains"""
    tool, workers = endless_run()
    os.kill(workers[1], signal.SIGKILL)
    said = end_of(tool, workers)
    assert f"rank 1, pid {workers[1]}, was killed by signal 9" in said, said


def check_stopped_rank():
    """A stopped rank is named when -T has passed; no process remains"""
    tool, workers = endless_run("-T", "1")
    os.kill(workers[2], signal.SIGSTOP)
    said = end_of(tool, workers)
    assert "rank 2" in said, said
    assert f"rank 2, pid {workers[2]}, did not end by itself" in said, said


CHECKS = [
    ("Every tool is right with 2 processes", right_with("--procs", "2")),
    ("Every tool is right with 1 rank", right_with()),
    ("Every tool is right with 2 threads", right_with("-t", "2")),
    ("Every tool is right with 3 threads", right_with("-t", "3", skipped=("hypercube",))),
    ("Every tool is right with 2 processes of 2 threads", right_with("--procs", "2", "-t", "2")),
    ("Every tool is right with 4 ranks of a thread", right_with("-g", "2", "--ranks-per-gpu", "2")),
    *tap.checks_of(globals()),
]

if __name__ == "__main__":
    tap.run(CHECKS)
