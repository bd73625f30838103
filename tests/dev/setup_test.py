#!/usr/bin/env python3
"""dev.d/setup.sh: ./dev installs the packages that a verb needs; where that is impossible, it goes on without optional
ones.

Usage: setup_test.py SOURCE_ROOT. Method: the set-up of ./dev with a list of packages of its own, stand-ins for apt and
sudo, and a PATH that has no others.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
import tap  # noqa: E402

TOOLS = ("bash", "cat", "cut", "dirname", "env", "grep", "nproc", "paste")
APT = '#!/usr/bin/env bash\necho "apt ${*:4}" >&2\n[[ ${*:4} != "$APT_FAILS"* ]]\n'
APT_CACHE = '#!/usr/bin/env bash\n[[ $2 != absent ]]\n'
SUDO = '#!/usr/bin/env bash\necho sudo >&2\n"$@"\n'
SCRIPT = """
source "$1/dev" help >/dev/null
ROOT=$2
is_root() { [[ $TEST_USER == root ]]; }
has_systemd() { [[ $TEST_INIT == systemd ]]; }
find_meson() { :; }
install_packages test
echo "goes on"
"""
NEEDED = "needed test cmd:nothing-of-this-name\n"
OPTIONAL = "nice test,optional cmd:nothing-of-this-name\n"
SERVICE = "daemon test,optional,service cmd:nothing-of-this-name\n"
ABSENT = "absent test,optional cmd:nothing-of-this-name\n"


def install(packages, programs=("apt-get", "apt-cache"), user="root", init="none", apt_fails="nothing"):
    """Returns the status, the lines of output but for headings, and those of the stand-ins and of errors."""
    stand_ins = {"apt-get": APT, "apt-cache": APT_CACHE, "sudo": SUDO}
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        for name in ("bin", "dev.d"):
            (folder / name).mkdir()
        (folder / "dev.d/packages.txt").write_text(packages, encoding="utf-8")
        for name in TOOLS:
            (folder / "bin" / name).symlink_to(shutil.which(name))
        (folder / "bin/python3").symlink_to(sys.executable)
        for name in programs:
            (folder / "bin" / name).write_text(stand_ins[name], encoding="utf-8")
            (folder / "bin" / name).chmod(0o755)
        environment = dict(os.environ, PATH=f"{root}/bin", TEST_USER=user, TEST_INIT=init, APT_FAILS=apt_fails)
        done = subprocess.run([shutil.which("bash"), "-c", SCRIPT, "dev", ROOT, root], capture_output=True, text=True,
                              check=False, env=environment)
        lines = [line for line in done.stdout.splitlines() if line and not line.startswith("==")]
        return done.returncode, lines, done.stderr.splitlines()


def check_install():
    """Missing packages are installed, as root or by sudo; one that the distribution does not offer is passed over"""
    packages = NEEDED + OPTIONAL + ABSENT + "here test cmd:bash\nother bench cmd:nothing-of-this-name\n"
    lines = ["not offered by this distribution, continuing without: absent", "goes on"]
    apt = ["apt update", "apt install --no-install-recommends -y needed nice"]
    assert install(packages) == (0, lines, apt), install(packages)
    found = install(packages, programs=("apt-get", "apt-cache", "sudo"), user="somebody")
    assert found == (0, lines, ["sudo", apt[0], "sudo", apt[1]]), found


def check_nothing_missing():
    """apt is not called if nothing is missing"""
    assert install("here test,optional cmd:bash\n") == (0, ["goes on"], [])


def check_optional():
    """Without apt, or without root and sudo, a verb goes on without optional packages, and says so in one line"""
    found = install(OPTIONAL + ABSENT, programs=())
    assert found == (0, ["this machine has no apt: continuing without nice absent", "goes on"], []), found
    found = install(OPTIONAL, user="somebody")
    assert found == (0, ["neither root nor sudo: continuing without nice", "goes on"], []), found


def check_needed():
    """Without apt, or without root and sudo, a verb stops at packages that it needs, and names them"""
    reasons = {"this machine has no apt": {"programs": ()}, "neither root nor sudo": {"user": "somebody"}}
    for why, options in reasons.items():
        status, lines, errors = install(OPTIONAL + NEEDED, **options)
        assert (status, lines, len(errors)) == (2, [], 1), (status, lines, errors)
        assert errors[0].startswith(f"dev: {why}") and "nice needed" in errors[0], errors


def check_services():
    """Where systemd runs, packages that would start a service are not installed, and ./dev says so"""
    said = "not installed, because they would start services: daemon"
    assert install(SERVICE, init="systemd") == (0, [said, "goes on"], []), install(SERVICE, init="systemd")
    status, lines, errors = install(NEEDED + SERVICE, init="systemd")
    assert (status, lines) == (0, [said, "goes on"]) and errors[-1].endswith(" -y needed"), (status, lines, errors)
    assert install("here test,service cmd:bash\n", init="systemd") == (0, ["goes on"], [])
    assert install(SERVICE)[2][-1].endswith(" -y daemon"), install(SERVICE)


def check_apt_fails():
    """Where apt fails, as without the network, a verb goes on without optional packages, and stops at needed ones"""
    for call in ("update", "install"):
        found = install(OPTIONAL, apt_fails=call)
        assert found[:2] == (0, ["apt failed: continuing without nice", "goes on"]), found
        status, lines, errors = install(NEEDED, apt_fails=call)
        assert status == 2 and not lines and errors[-1].startswith("dev: apt failed"), (status, lines, errors)


def check_python_modules():
    """A package is missing if Python lacks its module"""
    packages = "has test python:json\nlacks test python:nothing_of_this_name\n"
    assert install(packages)[2][-1].endswith(" -y lacks"), install(packages)


def check_environments():
    """Everything that calls `python3 -m venv` installs python3-venv, which Debian leaves out of Python, before"""
    rows = [line.split() for line in (ROOT / "dev.d/packages.txt").read_text(encoding="utf-8").splitlines()]
    groups = [row[1].split(",") for row in rows if row[:1] == ["python3-venv"] and row[2] == "python:ensurepip"]
    assert len(groups) == 1, groups
    # perf/peers/wheels.py is called by prepare_peers.
    places = {"prepare_peers": "dev", "verb_wheel": "dev.d/wheel.sh", "find_meson": "dev.d/setup.sh"}
    for function, path in places.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        body = text[text.index(f"\n{function}() {{"):].partition("\n}\n")[0]
        before = re.split(r"python3 -m venv|wheels\.py", body)
        assert len(before) > 1, f"{function} makes no environment any more"
        installed = re.findall(r"^ *install_(?:groups|packages) (.*)", before[0], re.MULTILINE)
        assert set(" ".join(installed).split()) & set(groups[0]), (function, installed, groups)


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
