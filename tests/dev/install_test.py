#!/usr/bin/env python3
"""./dev install PREFIX: the libraries lie in PREFIX/lib, as the tutorial says and where Debian's loader looks.

Usage: install_test.py SOURCE_ROOT. Method: calls the verb with stand-ins for installing packages and building.
"""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

ROOT = pathlib.Path(sys.argv[1]).resolve()
SCRIPT = """
source "$1/dev" help >/dev/null
install_packages() { :; }
fetch_cuda_tools() { :; }
build_release() { printf 'option %s\\n' "$@"; }
MESON=(echo meson)
verb_install "${@:2}"
"""


def install(*words, folder="/"):
    return subprocess.run(["bash", "-c", SCRIPT, "dev", ROOT, *words], capture_output=True, text=True, check=False,
                          cwd=folder)


def check_folders():
    """The folder of libraries is the same on every system, whatever Meson's default is"""
    done = install("/opt/tutti/.")
    assert done.returncode == 0, done.stderr
    assert "option --prefix=/opt/tutti\noption --libdir=lib\n" in done.stdout, done.stdout
    assert "meson install" in done.stdout, done.stdout
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    assert "./dev install $HOME/tutti\nexport PKG_CONFIG_PATH=$HOME/tutti/lib/pkgconfig\n" in page


def check_relative_folder():
    """A relative folder is one of the caller, not of the source tree, and the whole path is printed"""
    with tempfile.TemporaryDirectory() as root:
        caller = pathlib.Path(root).resolve() / "caller"
        caller.mkdir()
        for words, wanted in (("tutti", caller / "tutti"), ("../there", caller.parent / "there"), (".", caller)):
            done = install(words, folder=caller)
            assert done.returncode == 0, done.stderr
            assert f"option --prefix={wanted}\n" in done.stdout, done.stdout
            assert f"== installing into {wanted} (" in done.stdout, done.stdout


def check_no_folder():
    """Without a folder nothing is built"""
    done = install()
    assert done.returncode == 2 and "install needs a folder" in done.stderr and "option" not in done.stdout, done


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
