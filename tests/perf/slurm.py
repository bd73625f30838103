"""A private Slurm cluster on this machine during a `with` block: munged, slurmctld and one slurmd for each node, with
own configuration, key, ports and folder. Independent of any Slurm of the machine. Needs root.
"""

import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading

from hosts import ENVIRONMENT

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
READY_LIMIT_S = 60
CONFIGURATION = """
ClusterName=tutti
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing():
    """The reason why no cluster can run here, or None."""
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return "Slurm's daemons need root" if os.geteuid() != 0 else None


def free_ports(count):
    """Ports below the range that the kernel gives to connections, so that no connection takes them meanwhile."""
    found = []
    for port in random.sample(range(10000, 20000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} free ports")


class Daemon:
    """A program that runs in the foreground and prints when it is ready."""

    def __init__(self, words, environment, ready_mark):
        self.said, self._ready, self._mark = [], threading.Event(), ready_mark
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                         stderr=subprocess.STDOUT, env=environment)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self.said.append(line)
            if self._mark in line:
                self._ready.set()
        self._ready.set()

    def await_ready(self):
        self._ready.wait(READY_LIMIT_S)
        assert any(self._mark in line for line in self.said), f"{self._process.args[0]}:\n{''.join(self.said)}"

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(READY_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()


class Cluster:
    """Nodes n0, n1, ... of 4 cores each, whatever the machine has."""

    def __init__(self, node_count):
        self._nodes = [f"n{number}" for number in range(node_count)]
        self._folder = tempfile.mkdtemp(prefix="tutti-slurm-")
        self._environment = {**ENVIRONMENT, "SLURM_CONF": f"{self._folder}/slurm.conf"}
        self._daemons = []

    def __enter__(self):
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self._daemons):
            daemon.stop()
        shutil.rmtree(self._folder)

    def run(self, *words, environment=None):
        """Runs srun with these words to its end."""
        return subprocess.run(["srun", *words], capture_output=True, text=True, check=False, timeout=120,
                              env={**self._environment, **(environment or {})})

    def process_managers(self):
        """The usable values of --mpi: plugins whose libraries are installed too."""
        names = re.findall(r"^\t(\w+)$", self.run("--mpi=list").stdout, re.MULTILINE)
        return [name for name in names
                if "can not load" not in self.run("-n", "1", f"--mpi={name}", "true").stderr]

    def said(self):
        """All output of the daemons, for a failure's text."""
        return "".join(line for daemon in self._daemons for line in daemon.said)

    def _start(self, ready_mark, *words):
        daemon = Daemon(words, self._environment, ready_mark)
        self._daemons.append(daemon)
        daemon.await_ready()

    def _start_all(self):
        folder = pathlib.Path(self._folder)
        folder.chmod(0o755)  # munged wants its folder readable by all and writable by the owner only
        host = socket.gethostname().split(".")[0]
        ports = free_ports(len(self._nodes) + 1)
        nodes = [f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN"
                 for node, port in zip(self._nodes, ports[1:])]
        (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, port=ports[0], folder=folder,
                                                                nodes="\n".join(nodes)))
        key = folder / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        self._start("Created socket", "munged", "--foreground", f"--key-file={key}", f"--socket={folder}/munge.socket",
                    f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed")
        self._start("Running as primary controller", "slurmctld", "-D")
        for node in self._nodes:
            (folder / node).mkdir()
            self._start("slurmd started", "slurmd", "-D", "-N", node)
