"""`python -m tutti.info`: the version, this process's place in its job, and what ranks can use here, or why not."""

import importlib.util
import os
import platform
import sys

from . import Communicator, Error, launcher_context, unique_id, version
from ._library import PATH
from .nccl import library as nccl_library

_DEVICES_MAX = 64


def _why_not(device):
    """None if a rank can live on the device (-1: in host memory), else the library's sentence."""
    try:
        Communicator.from_id(unique_id(), 0, 1, device=device).close()
    except Error as error:
        return str(error)
    return None


def _lines():
    yield "tutti", f"{version()} ({PATH})"
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    try:
        rank, count = launcher_context()
        yield "launcher", f"rank {rank} of {count}"
    except Error as error:
        yield "launcher", f"no: {error}"
    yield "host memory", _why_not(-1) or "yes"
    yield "transports", f"shared memory on this host; TCP (interfaces: {os.environ.get('TUTTI_SOCKET_IFNAME', 'all')})"
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
