#!/usr/bin/env python3
"""dev.d/setup.sh, meson.build: Meson finds the nvcc that ./dev fetched whenever it reads its files again.

Usage: cuda_tools_test.py SOURCE_ROOT. Method: ./dev "fetches" a stand-in for the toolkit. Then Meson runs the lines of
meson.build that look for nvcc, in a project of their own. There CUDA_HOME and PATH lead to no nvcc, because the machine
may have a toolkit of its own.
"""

import os
import pathlib
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
import tap  # noqa: E402

FETCH = """
source "$1/dev" help >/dev/null
ROOT=$2
BUILD=build
cd "$ROOT"
find_nvcc() { false; }
# What pip would write.
fetch_wheels() {
  mkdir -p "$1/nvidia/cu13/bin" "$1/nvidia/cu13/lib"
  printf '#!/bin/sh\\necho fetched\\n' >"$1/nvidia/cu13/bin/nvcc"
  chmod +x "$1/nvidia/cu13/bin/nvcc"
}
fetch_cuda_tools
"""


def project(folder):
    """Writes a project that only looks for nvcc, in the words of meson.build."""
    text = (ROOT / "meson.build").read_text(encoding="utf-8")
    look = re.search(r"^cuda_home = .*?^nvcc = find_program\(.*?\)$", text, re.MULTILINE | re.DOTALL).group()
    lines = ["project('look')", look, "message('nvcc:', nvcc.found() ? nvcc.full_path() : 'none')"]
    (folder / "meson.build").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copy(ROOT / "meson_options.txt", folder)


def nvcc_of(folder, cuda_home):
    """The nvcc that Meson finds."""
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(name for name in folders if not pathlib.Path(name, "nvcc").exists())
    for name in ("meson", "ninja", "sh"):
        if shutil.which(name, path=path) is None:
            raise tap.Skip(f"no {name} outside folders with an nvcc")
    with tempfile.TemporaryDirectory() as build:
        output = tap.command("meson", "setup", build, folder, env=dict(os.environ, PATH=path, CUDA_HOME=str(cuda_home)))
    return re.search(r"^Message: nvcc: (.*)$", output, re.MULTILINE).group(1)


def check_fetched():
    """The fetched nvcc is found without CUDA_HOME; the machine's own goes before"""
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root).resolve()
        project(folder)
        own = folder / "own/bin/nvcc"
        own.parent.mkdir(parents=True)
        own.write_text("#!/bin/sh\n", encoding="utf-8")
        own.chmod(0o755)
        assert nvcc_of(folder, folder / "nowhere") == "none"
        tap.command("bash", "-c", FETCH, "dev", ROOT, folder)
        assert nvcc_of(folder, folder / "nowhere") == str(folder / ".cache/cuda-toolkit/nvidia/cu13/bin/nvcc")
        assert nvcc_of(folder, folder / "own") == str(own)


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
