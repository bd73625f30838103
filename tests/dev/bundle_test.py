#!/usr/bin/env python3
"""dev.d/bundle.sh: copies the licences of libraries from packages; libraries without a package do no harm.
dev.d/glibc.sh: a binary that older systems cannot run is refused.

Usage: bundle_test.py SOURCE_ROOT. Method: calls its functions with the same shell settings as ./dev.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

PARTS = pathlib.Path(sys.argv[1]) / "dev.d"


def licences(*libraries):
    """The names of the files that bundle_licences writes."""
    with tempfile.TemporaryDirectory() as folder:
        command = f'set -euo pipefail; source "{PARTS}/bundle.sh"; bundle_licences "$@"'
        subprocess.run(["bash", "-c", command, "bash", folder, *libraries], check=True)
        return sorted(os.listdir(folder))


def check_libraries_without_a_package_are_passed_over():
    """A library without a package, and one that its package knows by another path, do not stop the bundling"""
    assert licences("/nowhere/lib/libnobody.so.1") == []
    libgcc = pathlib.Path("/lib/x86_64-linux-gnu/libgcc_s.so.1")
    if shutil.which("dpkg-query") and libgcc.exists():
        found = licences("/nowhere/lib/libnobody.so.1", str(libgcc))
        assert len(found) == 1 and found[0].startswith("libgcc"), found


def refusal(dynamic="", relocations=""):
    """What expect_old_glibc says of a file, of which objdump prints these lines."""
    command = f'''set -euo pipefail; source "{PARTS}/setup.sh"; source "{PARTS}/glibc.sh"
objdump() {{ if [[ $1 == -T ]]; then echo "$dynamic"; else echo "$relocations"; fi; }}; expect_old_glibc file'''
    environment = dict(os.environ, dynamic=dynamic, relocations=relocations)
    done = subprocess.run(["bash", "-c", command], env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode == 0) == (done.stderr == ""), done
    return done.stderr


def check_binaries_for_newer_systems_are_refused():
    """A file may ask for glibc 2.28, but not for a newer one, not for the C++ runtime, and not for a copy of environ"""
    old = "0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.28) fcntl64"
    copy = "0000000000c592d0 R_X86_64_COPY     {}@GLIBC_2.2.5"
    assert refusal(old, copy.format("stdout")) == ""
    assert "asks for glibc 2.34" in refusal(old + "\n" + old.replace("2.28", "2.34").replace("fcntl64", "dlopen"))
    assert "C++ runtime" in refusal(old + "\n" + old.replace("GLIBC_2.28", "GLIBCXX_3.4.21"))
    assert "copy of environ" in refusal(old, copy.format("environ"))


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
