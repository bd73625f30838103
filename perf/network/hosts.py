"""Emulated hosts: network name spaces of this machine, joined by a pair of virtual interfaces.

All hosts share one kernel, so TUTTI_HOSTID tells each process its host. The counters of the interfaces show that the
network carried the bytes.
"""

import os
import shutil
import subprocess
import time

LAUNCHER_PREFIXES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "PMI_", "PMIX_", "MPI_", "SLURM_",
                     "OMPI_", "JOB_COMPLETION_INDEX", "TUTTI_")
# The programs use host memory, on machines with a GPU too.
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)},
               "CUDA_VISIBLE_DEVICES": ""}
ADDRESSES = {4: ("10.77.0.1/24", "10.77.0.2/24"), 6: ("fd77::1/64", "fd77::2/64")}


def missing():
    """The reason why hosts cannot be emulated here, or None."""
    if os.geteuid() != 0:
        return "name spaces need root"
    if not shutil.which("ip") or not shutil.which("tc"):
        return "iproute2 is not installed"
    probe = subprocess.run(["ip", "netns", "add", f"tutti-{os.getpid()}-probe"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", f"tutti-{os.getpid()}-probe"], capture_output=True, check=False)
    return None if probe.returncode == 0 else f"no name spaces here: {probe.stderr.decode().strip()}"


def _run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


class Hosts:
    """Two hosts and the cable between them. The end of the `with` block removes them and their processes."""

    def __init__(self, family=4, mtu=1500, rate=None):
        self.names = [f"tutti-{os.getpid()}-{side}" for side in "ab"]
        self.interfaces = [f"tt{os.getpid() % 10**8}{side}" for side in "ab"]
        self.family, self.mtu, self.rate = family, mtu, rate
        self.processes = []

    def __enter__(self):
        try:
            for name in self.names:
                _run("ip", "netns", "add", name)
            _run("ip", "link", "add", self.interfaces[0], "netns", self.names[0], "mtu", str(self.mtu), "type", "veth",
                 "peer", "name", self.interfaces[1], "netns", self.names[1], "mtu", str(self.mtu))
            for side, address in enumerate(ADDRESSES[self.family]):
                flags = ["nodad"] if self.family == 6 else []
                self.ip(side, "addr", "add", address, "dev", self.interfaces[side], *flags)
                self.ip(side, "link", "set", "lo", "up")
                self.ip(side, "link", "set", self.interfaces[side], "up")
                if self.rate:
                    _run("ip", "netns", "exec", self.names[side], "tc", "qdisc", "add", "dev", self.interfaces[side],
                         "root", "tbf", "rate", self.rate, "burst", "128kb", "latency", "50ms")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def ip(self, side, *words):
        return _run("ip", "-n", self.names[side], *words)

    def cut(self):
        """Takes the link down."""
        self.ip(0, "link", "set", self.interfaces[0], "down")

    def sent_bytes(self, side):
        path = f"/sys/class/net/{self.interfaces[side]}/statistics/tx_bytes"
        return int(_run("ip", "netns", "exec", self.names[side], "cat", path))

    def start(self, side, words, environment):
        process = subprocess.Popen(["ip", "netns", "exec", self.names[side], *words], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   env={**ENVIRONMENT, "TUTTI_HOSTID": str(side), **environment})
        self.processes.append(process)
        return process

    def launch(self, tool, ranks_per_host, id_path, *flags, environment=None):
        """Starts one process a rank, the first `ranks_per_host` on the first host. Returns them, rank 0 first."""
        count = 2 * ranks_per_host
        return [self.start(rank // ranks_per_host, [str(tool), *flags],
                           {"RANK": str(rank), "WORLD_SIZE": str(count), "TUTTI_ID_FILE": str(id_path),
                            **(environment or {})})
                for rank in range(count)]


def finish(processes, limit_s=120):
    """Waits for all processes. Returns (status, stdout, stderr) of each."""
    deadline = time.monotonic() + limit_s
    results = []
    for process in processes:
        out, err = process.communicate(timeout=max(1, deadline - time.monotonic()))
        results.append((process.returncode, out, err))
    return results
