#!/usr/bin/env python3
"""dev.d/bundle.sh: copies the licences of libraries from packages; libraries without a package do no harm.

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

SCRIPT = pathlib.Path(sys.argv[1]) / "dev.d/bundle.sh"


def licences(*libraries):
    """The names of the files that bundle_licences writes."""
    with tempfile.TemporaryDirectory() as folder:
        command = f'set -euo pipefail; source "{SCRIPT}"; bundle_licences "$@"'
        subprocess.run(["bash", "-c", command, "bash", folder, *libraries], check=True)
        return sorted(os.listdir(folder))


def check_libraries_without_a_package_are_passed_over():
    """A library without a package, and one that its package knows by another path, do not stop the bundling"""
    assert licences("/nowhere/lib/libnobody.so.1") == []
    libgcc = pathlib.Path("/lib/x86_64-linux-gnu/libgcc_s.so.1")
    if shutil.which("dpkg-query") and libgcc.exists():
        found = licences("/nowhere/lib/libnobody.so.1", str(libgcc))
        assert len(found) == 1 and found[0].startswith("libgcc"), found


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
