#!/usr/bin/env python3
"""dev.d/bundle.sh: terms are copied for libraries that a package knows, and others do not end the bundling.

Usage: bundle_test.py SOURCE_ROOT. Method: its functions called by hand, as strictly as ./dev calls them.
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
    """Names of the files that bundle_licences writes."""
    with tempfile.TemporaryDirectory() as folder:
        command = f'set -euo pipefail; source "{SCRIPT}"; bundle_licences "$@"'
        subprocess.run(["bash", "-c", command, "bash", folder, *libraries], check=True)
        return sorted(os.listdir(folder))


def check_libraries_without_a_package_are_passed_over():
    """A library of no package, and one whose package knows it by another path, do not end the bundling"""
    assert licences("/nowhere/lib/libnobody.so.1") == []
    libgcc = pathlib.Path("/lib/x86_64-linux-gnu/libgcc_s.so.1")
    if shutil.which("dpkg-query") and libgcc.exists():
        found = licences("/nowhere/lib/libnobody.so.1", str(libgcc))
        assert len(found) == 1 and found[0].startswith("libgcc"), found


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
