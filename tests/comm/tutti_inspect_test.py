#!/usr/bin/env python3
"""The command line of tutti-inspect: a job asked by process number and over the network, and what it refuses. Prints
TAP.

Usage: tutti_inspect_test.py TUTTI_INSPECT ALL_REDUCE_PERF
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

INSPECT, PERF = sys.argv[1:3]
KEY = "the key of a job in a test"
PATIENCE_S = 60


def inspect(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    return subprocess.run([INSPECT, *arguments], env={**environment, **variables}, capture_output=True, text=True,
                          timeout=PATIENCE_S)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def job(port):
    """Two ranks on emulated hosts that reduce until the test ends them."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"WORLD_SIZE": "2", "TUTTI_ID_FILE": f"{folder}/id", "TUTTI_KEY": KEY,
                     "TUTTI_INSPECT_PORTS": f"{port}-{port + 20}"}
        ranks = [subprocess.Popen([PERF, "--memory", "host", "-b", "8", "-e", "8", "-n", "1000000000", "-c", "0"],
                                  env={**os.environ, **variables, "RANK": str(rank), "TUTTI_HOSTID": f"host{rank}"},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for rank in range(2)]
        try:
            yield ranks
        finally:
            for process in ranks:
                process.kill()
                process.wait()


def ask_until_there(ranks, *arguments, **variables):
    """The job's answer, once the ranks have joined."""
    while True:
        done = inspect(*arguments, **variables)
        if done.returncode == 0:
            return done.stdout
        assert all(process.poll() is None for process in ranks), "a rank has ended"


def check_a_job_answers_by_number_and_by_address():
    """A running job answers by process number, and over the network with the job's key"""
    port = free_port()
    with job(port) as ranks:
        report = ask_until_there(ranks, f"127.0.0.1:{port}", TUTTI_KEY=KEY)
        for part in ("of 2 on 2 hosts", "rank 0", "rank 1", "(this rank)"):
            assert part in report, report
        assert "of 2 on 2 hosts" in ask_until_there(ranks, str(ranks[0].pid))
        refused = inspect(f"127.0.0.1:{port}", TUTTI_KEY="another key of some length")
        assert refused.returncode == 1 and "refused the key" in refused.stderr, refused
        ask_until_there(ranks, f"127.0.0.1:{port}", TUTTI_KEY=KEY)


def check_what_is_missing_is_said():
    """Without a key, an address or a process there, the error names what is missing"""
    port = free_port()
    keyless = inspect(f"127.0.0.1:{port}")
    assert keyless.returncode == 2 and "TUTTI_KEY" in keyless.stderr and "--id-file" in keyless.stderr, keyless
    nobody = inspect(f"127.0.0.1:{port}", TUTTI_KEY=KEY)
    assert nobody.returncode == 1 and f"127.0.0.1:{port}" in nobody.stderr, nobody
    nonsense = inspect("nonsense", TUTTI_KEY=KEY)
    assert nonsense.returncode == 2 and "HOST:PORT" in nonsense.stderr, nonsense
    with tempfile.NamedTemporaryFile() as file:
        no_id = inspect("--id-file", file.name, f"127.0.0.1:{port}")
        assert no_id.returncode == 2 and file.name in no_id.stderr, no_id


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
