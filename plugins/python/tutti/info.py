"""`python -m tutti.info`: the version, this process's place in its job, and what ranks can use here, or why not."""

import importlib.util
import os
import platform
import subprocess
import sys

from . import Communicator, Error, launcher_context, unique_id, version
from ._library import PATH
from .nccl import library as nccl_library

_DEVICES_MAX = 64
_NETWORK_TRANSPORTS = ("tcp", "rdma", "ucx")
_SETUP_MS = 10_000


def _why_not(device):
    """None if a rank can live on the device (-1: in host memory), else the library's sentence."""
    try:
        Communicator.from_id(unique_id(), 0, 1, device=device).close()
    except Error as error:
        return str(error)
    return None


def _join(transport, identifier, rank):
    """One rank of two that take each other for ranks of different hosts, in a process of its own."""
    program = ("import sys, tutti\n"
               "try:\n"
               f"    tutti.Communicator.from_id(bytes.fromhex(sys.argv[1]), {rank}, 2, setup_timeout_ms={_SETUP_MS}).close()\n"
               "except tutti.Error as error:\n"
               "    sys.exit(str(error))\n")
    environment = dict(os.environ, TUTTI_TRANSPORT=transport, TUTTI_HOSTID=f"tutti.info {rank}",
                       PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.Popen([sys.executable, "-c", program, identifier.hex()], env=environment, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _why_not_by(transport):
    """None if the transport joins two ranks of this machine, else the library's sentence."""
    identifier = unique_id()
    ranks = [_join(transport, identifier, rank) for rank in range(2)]
    errors = [rank.communicate()[1] for rank in ranks]
    reasons = [text.strip().splitlines()[-1] for rank, text in zip(ranks, errors) if rank.returncode and text.strip()]
    return reasons[0] if reasons else None


def _lines():
    yield "tutti", f"{version()} ({PATH})"
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    try:
        rank, count = launcher_context()
        yield "launcher", f"rank {rank} of {count}"
    except Error as error:
        yield "launcher", f"no: {error}"
    yield "host memory", _why_not(-1) or "yes"
    yield "in one host", "shared memory"
    for transport in _NETWORK_TRANSPORTS:
        reason = _why_not_by(transport)
        yield transport.upper(), "yes" if reason is None else f"no: {reason}"
    yield "interfaces", os.environ.get("TUTTI_SOCKET_IFNAME", "all (TUTTI_SOCKET_IFNAME)")
    for device in range(_DEVICES_MAX):
        reason = _why_not(device)
        if reason is None:
            yield f"CUDA device {device}", "yes"
            continue
        if device == 0:
            yield "CUDA devices", f"no: {reason}"
        break
    yield "libnccl.so.2", nccl_library() or "no: not in this installation"
    for name in ("numpy", "torch", "cupy"):
        yield name, "installed" if importlib.util.find_spec(name) else "not installed"


def main():
    for name, text in _lines():
        print(f"{name:14} {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
