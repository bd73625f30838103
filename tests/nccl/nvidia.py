"""NVIDIA's NCCL and CUDA headers, if this machine has them."""

import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Installation:
    """One nccl.h, and the library beside it if there is one."""

    def __init__(self, include, version):
        self.include = include
        self.version = version
        candidates = [include.parent / folder / "libnccl.so.2" for folder in ("lib", "lib64", "lib/x86_64-linux-gnu")]
        self.library = next((path for path in candidates if path.exists()), None)


def places(package):
    """Folders that may hold include/ and lib/ of a package by NVIDIA."""
    homes = [os.environ[name] for name in (f"{package.upper()}_HOME", "CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    names = {"nccl": ["nccl"], "cuda": ["cuda_runtime", "cu13"]}[package]
    wheels = [pathlib.Path(path) / "nvidia" / name for path in sys.path if path for name in names]
    return [pathlib.Path(home) for home in homes] + wheels + [pathlib.Path("/usr"), pathlib.Path("/usr/local"),
                                                              pathlib.Path("/usr/local/cuda")]


def installations():
    """Every NVIDIA header on this machine, once."""
    found = {}
    for place in places("nccl"):
        header = place / "include/nccl.h"
        if not header.exists():
            continue
        text = header.read_text(encoding="utf-8", errors="replace")
        parts = [re.search(rf"#define NCCL_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
        if all(parts) and "tutti" not in text:
            found.setdefault(header.resolve(), Installation(header.parent, tuple(int(part.group(1)) for part in parts)))
    return list(found.values())


def cuda_includes():
    """CUDA's headers, else the few lines of them that nccl.h needs."""
    for place in places("cuda"):
        if (place / "include/cuda_runtime.h").exists():
            return [place / "include"]
    return [HERE / "cuda_stub"]
