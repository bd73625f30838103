#!/usr/bin/env python3
"""The perf tools unchanged under launchers: Open MPI, MPICH, Slurm, torchrun, and by hand. Prints TAP.

Usage: launchers_test.py FOLDER, where FOLDER holds the tools. A launcher that is not installed is skipped.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402
from perf_tools import ENVIRONMENT, QUICK, TOOLS, expect_right, rows  # noqa: E402
import slurm  # noqa: E402  (what it imports is found by perf_tools)

ALL_REDUCE = (str(TOOLS / "all_reduce_perf"), *QUICK)
ONE_ROW = (*ALL_REDUCE, "-b", "64", "-e", "64")
THREE_ROWS = (*ALL_REDUCE, "-b", "8", "-e", "32K", "-f", "64")
KEY = "a key of the perf tools' test"


def on_hosts(host):
    """A prefix that puts a tool's ranks on emulated hosts. `host`: a shell expression."""
    return ("sh", "-c", f'TUTTI_HOSTID={host} exec "$@"', "sh")


def expect_on_hosts(what, done):
    """Checks that the ranks of several hosts are connected over the network."""
    assert done.returncode == 0 and "hierarchical" in done.stdout, f"{what}\n{done.stdout}{done.stderr}"
    expect_right("all_reduce", done.stdout, 3)


def run_as_ranks(*environments):
    """Starts one tool for each environment. Returns all outputs; each tool must succeed."""
    ranks = [subprocess.Popen(ONE_ROW, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**ENVIRONMENT, **environment}) for environment in environments]
    outputs = [rank.communicate(timeout=120) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), outputs
    return outputs


def check_id_file():
    """Processes of a launcher share the id through TUTTI_ID_FILE, which is removed afterwards"""
    with tempfile.TemporaryDirectory() as folder:
        id_file = os.path.join(folder, "id")
        outputs = run_as_ranks(*({"RANK": rank, "WORLD_SIZE": "2", "TUTTI_ID_FILE": id_file} for rank in "01"))
        expect_right("all_reduce", outputs[0][0], 1)
        assert outputs[1] == ("", ""), f"only rank 0 speaks: {outputs[1]}"
        assert os.listdir(folder) == [], os.listdir(folder)


def check_torchrun_environment():
    """Processes with torchrun's variables share the id: on one host without settings, else at MASTER_ADDR with a key"""
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()),
           "TORCHELASTIC_RUN_ID": f"tutti-test-{os.getpid()}"}
    on_one_host = [{**job, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"} for rank in "01"]
    expect_right("all_reduce", run_as_ranks(*on_one_host)[0][0], 1)
    by_network = [{**job, "RANK": rank, "TUTTI_KEY": KEY} for rank in "01"]
    expect_right("all_reduce", run_as_ranks(*by_network)[0][0], 1)


def free_port():
    """A port that was free a moment ago, like the next port: rank 0 listens one above MASTER_PORT."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("", port + 1))
                return port
            except (OSError, OverflowError):
                continue
    raise AssertionError("no two free ports in a row")


def mpi_launcher(*words):
    def check():
        if shutil.which(words[0]) is None:
            raise tap.Skip(f"{words[0]} is not installed")
        def launch(count, *flags):
            command = [*words, "-n", count, *ONE_ROW, *flags]
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120,
                                  env={**ENVIRONMENT, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        for count in ("1", "2", "3"):
            done = launch(count)
            assert done.returncode == 0, f"{words} {count}\n{done.stdout}{done.stderr}"
            expect_right("all_reduce", done.stdout, 1)
        # Two emulated hosts: the launcher's ranks connect over the network.
        spread = on_hosts("$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / 2))")
        command = [*words, "-n", "4", *spread, *THREE_ROWS]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120,
                              env={**ENVIRONMENT, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        expect_on_hosts(f"{words} on hosts", done)
        done = launch("2", "--procs", "2")
        assert done.returncode != 0 and "--procs 2 is refused under " in done.stderr, done.stdout + done.stderr
        assert rows(done.stdout) == [], done.stdout
    return check


def check_absent_rank():
    """Under Open MPI, ranks end at the deadline if another process of the job never shares the id"""
    if shutil.which("mpirun.openmpi") is None:
        raise tap.Skip("mpirun.openmpi is not installed")
    done = subprocess.run(["mpirun.openmpi", "--oversubscribe", "-n", "2", *ONE_ROW, ":", "-n", "1", "sleep", "300"],
                          capture_output=True, text=True, check=False, timeout=120,
                          env={**ENVIRONMENT, "TUTTI_SETUP_TIMEOUT_MS": "1000", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    assert done.returncode != 0, done.stdout
    assert "waiting for the other ranks: the deadline has passed" in done.stderr, done.stdout + done.stderr


def check_slurm_one_node():
    """The tools run unchanged under srun on one node, with each of its process managers"""
    if slurm.missing():
        raise tap.Skip(slurm.missing())
    with slurm.Cluster(1) as cluster:
        managers = cluster.process_managers()
        assert "none" in managers, managers
        for manager in [name for name in ("none", "pmi2", "pmix") if name in managers]:
            for count in ("2", "4"):
                done = cluster.run("-n", count, f"--mpi={manager}", *ONE_ROW)
                assert done.returncode == 0, f"{manager} {count}\n{done.stdout}{done.stderr}{cluster.said()}"
                expect_right("all_reduce", done.stdout, 1)
                assert done.stdout.count("#  Rank ") == int(count), done.stdout


def check_slurm_two_nodes():
    """Ranks on two Slurm nodes share the id at MASTER_ADDR with a key; without a key an error asks for it"""
    if slurm.missing():
        raise tap.Skip(slurm.missing())
    with slurm.Cluster(2) as cluster:
        spread = on_hosts("$SLURM_NODEID")
        at_master = {"MASTER_ADDR": "127.0.0.1"}
        done = cluster.run("-N", "2", "-n", "4", *spread, *THREE_ROWS, environment={**at_master, "TUTTI_KEY": KEY})
        expect_on_hosts(f"two nodes {cluster.said()}", done)
        done = cluster.run("-N", "2", "-n", "4", *spread, *THREE_ROWS, environment=at_master)
        assert done.returncode != 0 and "TUTTI_KEY" in done.stderr, done.stdout + done.stderr


def await_listener(port, processes):
    """Waits for an event: a process listens at the port."""
    mark = f":{port:04X} "
    deadline = time.monotonic() + 60
    while not any(mark in pathlib.Path(f"/proc/net/{table}").read_text() for table in ("tcp", "tcp6")):
        assert time.monotonic() < deadline and all(process.poll() is None for process in processes), port


def check_kubernetes():
    """Pods of an indexed job connect, although the first pod's name is unknown when they start"""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise tap.Skip("another /etc/hosts needs root and unshare")
    with tempfile.TemporaryDirectory() as folder:
        known, servers = pathlib.Path(folder) / "hosts", pathlib.Path(folder) / "resolv.conf"
        known.write_text("127.0.0.1 localhost\n")
        servers.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")  # no server answers there
        own_names = ("unshare", "--mount", "sh", "-c",
                     f'mount --bind {known} /etc/hosts && mount --bind {servers} /etc/resolv.conf && exec "$@"', "sh")
        port = free_port()
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "tutti-test-0.pods", "MASTER_PORT": str(port), "TUTTI_KEY": KEY}
        pods = [subprocess.Popen([*own_names, *ONE_ROW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**ENVIRONMENT, **job, "JOB_COMPLETION_INDEX": index, "TUTTI_HOSTID": index})
                for index in "01"]
        await_listener(port + 1, pods)
        with known.open("a") as file:  # in place, because this file is mounted
            file.write("127.0.0.1 tutti-test-0.pods\n")
        outputs = [pod.communicate(timeout=120) for pod in pods]
        assert [pod.returncode for pod in pods] == [0, 0], outputs
        expect_right("all_reduce", outputs[0][0], 1)


def torchrun(folder, *flags):
    """Starts a launcher of two ranks, which writes to the folder. The mappings name no existing local rank, so output
    is not redirected. They are set because torch 1.13 cannot read its own default under Python 3.11."""
    return subprocess.Popen(["torchrun", "--redirects", "9:3", "--tee", "9:3", "--nproc_per_node", "2", "--no_python",
                             *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**ENVIRONMENT, "TUTTI_KEY": KEY, "TMPDIR": folder})


def check_torchrun():
    """The tools run unchanged under torchrun, by one agent and by two on emulated hosts"""
    if shutil.which("torchrun") is None:
        raise tap.Skip("torchrun is not installed")
    with tempfile.TemporaryDirectory() as folder:
        at_master = ("--master_addr", "127.0.0.1", "--master_port", str(free_port()))
        alone = torchrun(folder, *at_master, *ONE_ROW)
        out, err = alone.communicate(timeout=120)
        assert alone.returncode == 0, out + err
        expect_right("all_reduce", out, 1)
        at_master = (*at_master[:-1], str(free_port()))
        agents = [torchrun(folder, "--nnodes", "2", "--node_rank", host, *at_master, *on_hosts(host), *THREE_ROWS)
                  for host in "01"]
        outputs = [agent.communicate(timeout=120) for agent in agents]
        assert [agent.returncode for agent in agents] == [0, 0], outputs
        assert "hierarchical" in outputs[0][0], outputs
        expect_right("all_reduce", outputs[0][0], 3)


CHECKS = [
    ("The tools run unchanged under Open MPI", mpi_launcher("mpirun.openmpi", "--oversubscribe")),
    ("The tools run unchanged under MPICH", mpi_launcher("mpiexec.hydra")),
    *tap.checks_of(globals()),
]

if __name__ == "__main__":
    tap.run(CHECKS)
