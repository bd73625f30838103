"""The glibc that a library asks for."""

import os
import pathlib
import re

import tap

# That of RHEL 9; Ubuntu 22.04 has 2.35. From 2.34 on, threads and dlopen are in libc itself, and what is linked there asks
# for 2.34 at least.
MOST = (2, 34)
# A newer glibc may bring newer versions of functions that libraries call.
NEWEST_BUILD = (2, 36)
# That of RHEL 8, which the wheel and the bundle serve.
OLDEST = (2, 28)
# Names since OLDEST that they have all the same: of src/core/old_glibc.cc, and in each glibc's libc_nonshared.a.
REPLACED = {"__libc_single_threaded", "arc4random", "pthread_cond_clockwait"}
REPLACED |= {name + bits for name in ("stat", "fstat", "lstat", "fstatat") for bits in ("", "64")}


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


def names_since(oldest):
    """Names that glibc got after a version, by the version in which each first was. Read from this system's own."""
    first = {}
    for mapping in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        library = mapping.split()[-1]
        if re.search(r"/lib(c|m)\.so\.6$", library) and library not in first:
            first[library] = {}
            for since, name in re.findall(r"\bGLIBC_(2\.[\d.]+)\)?\s+(\S+)", tap.command("objdump", "-T", library)):
                first[library][name] = min(version(since), first[library].get(name, (9,)))
    names = {name: since for library in first.values() for name, since in library.items()}
    return {name for name, since in names.items() if since > oldest}


def expect_old_names(archive):
    """Objects of the archive use no name that is newer than glibc OLDEST, unless a build for it replaces the name."""
    newer = names_since(OLDEST)
    assert "arc4random" in newer and "malloc" not in newer, "objdump's form has changed"
    used = set(re.findall(r" U (\S+)", tap.command("nm", "--undefined-only", archive)))
    assert "malloc" in used or "memcpy" in used, f"{archive} uses nothing of glibc"
    unserved = sorted(used & newer - REPLACED)
    assert not unserved, f"{archive}: {unserved} came after glibc 2.28: use an older call, or see src/core/old_glibc.cc"
