#!/usr/bin/env python3
"""Prints what ninja must build for some Meson tests, which exist (test_names.py). Nothing if they need nothing.

Usage: test_programs.py MESON FOLDER NAME...
"""

import json
import os
import subprocess
import sys


def introspect(meson, folder, what):
    done = subprocess.run([meson, "introspect", folder, what], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    meson, folder, names = sys.argv[1], os.path.abspath(sys.argv[2]), set(sys.argv[3:])
    files = {target["id"]: target["filename"] for target in introspect(meson, folder, "--targets")}
    tests = [test for test in introspect(meson, folder, "--tests") if test["name"] in names]
    needed = {path for test in tests for target in test["depends"] for path in files[target]}
    print("\n".join(sorted(os.path.relpath(path, folder) for path in needed)))


if __name__ == "__main__":
    main()
