"""The glibc that a library asks for."""

import os
import re

import tap

# That of RHEL 9; Ubuntu 22.04 has 2.35. From 2.34 on, threads and dlopen are in libc itself, and what is linked there asks
# for 2.34 at least.
MOST = (2, 34)
# A newer glibc may bring newer versions of functions that libraries call.
NEWEST_BUILD = (2, 36)


def version(text):
    return tuple(int(part) for part in text.split("."))


def expect_old(library):
    """The library loads with glibc MOST."""
    if version(os.confstr("CS_GNU_LIBC_VERSION").split()[1]) > NEWEST_BUILD:
        raise tap.Skip("built with a newer glibc than releases are")
    asked = re.findall(r"GLIBC_(2\.[\d.]+)\)?\s+(\S+)", tap.command("objdump", "-T", library))
    assert asked, f"{library} asks for no glibc: has objdump's form changed?"
    newer = sorted(f"{name} of {found}" for found, name in asked if version(found) > MOST)
    assert not newer, f"{library}: {newer}"
