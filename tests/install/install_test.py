#!/usr/bin/env python3
"""The installed tree: a small program builds and runs against it through pkg-config and CMake, shared and static;
the shared library exports exactly the C interface; the tools start.

Usage: install_test.py SOURCE_ROOT BUILD_ROOT. The tree is installed into a temporary folder that differs from the
configured prefix, so fixed paths are found.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import glibc  # noqa: E402
import tap  # noqa: E402

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
USER = pathlib.Path(__file__).resolve().parent / "user"


class Installed:
    """The staged tree and its folders."""

    def __init__(self, stage):
        options = json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text(encoding="utf-8"))
        values = {option["name"]: option["value"] for option in options}
        self.prefix = pathlib.Path(stage + values["prefix"])
        self.library = self.prefix / values["libdir"]
        self.header = self.prefix / values["includedir"] / "tutti/tutti.h"
        self.programs = self.prefix / values["bindir"]
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(self.library),
                                PKG_CONFIG_PATH=str(self.library / "pkgconfig"))
        self.environment.pop("DESTDIR", None)

    def flags(self, *arguments, package="tutti"):
        text = tap.command("pkg-config", f"--define-variable=prefix={self.prefix}", *arguments, package,
                           env=self.environment)
        return text.split()


def meson_command():
    """The Meson that configured the build; it may differ from the one on PATH."""
    text = (BUILD / "build.ninja").read_text(encoding="utf-8")
    match = re.search(r"^ command = (.+?) --internal regenerate", text, re.MULTILINE)
    return match.group(1).split() if match else ["meson"]


def build_and_run(tree, compiler, source, flags):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "user"
        tap.command(*compiler, "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags)
        return tap.command(program, env=tree.environment, timeout=60)


def header_version(tree):
    return re.search(r"#define TUTTI_VERSION_CODE (\d+)", tree.header.read_text(encoding="utf-8")).group(1)


def check_c_shared(tree):
    """A C11 program, shared, by pkg-config"""
    output = build_and_run(tree, ["gcc", "-std=c11"], USER / "smoke.c", tree.flags("--cflags", "--libs"))
    assert output.strip() == header_version(tree), output


def check_cpp_shared(tree):
    """A C++20 program, shared, by pkg-config"""
    build_and_run(tree, ["g++", "-std=c++20", "-x", "c++"], USER / "smoke.c", tree.flags("--cflags", "--libs"))


def check_c_static(tree):
    """A C11 program, static, by pkg-config; it does not load libtutti"""
    flags = [str(tree.library / "libtutti.a") if flag == "-ltutti" else flag
             for flag in tree.flags("--static", "--cflags", "--libs")]
    without_shared = dict(tree.environment, LD_LIBRARY_PATH="")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "user"
        tap.command("gcc", "-std=c11", "-DTUTTI_STATIC", USER / "smoke.c", "-o", program, *flags)
        tap.command(program, env=without_shared, timeout=60)


def configure_cmake(tree, folder, wanted="0.1", languages="C;CXX"):
    """Configures user/ with CMake."""
    if shutil.which("cmake") is None:
        raise tap.Skip("no cmake")
    options = [f"-DCMAKE_PREFIX_PATH={tree.prefix}", f"-DWANTED={wanted}", f"-DLANGUAGES={languages}"]
    return subprocess.run(["cmake", "-S", str(USER), "-B", folder, *options], capture_output=True, text=True,
                          check=False)


def build_cmake(tree, languages):
    with tempfile.TemporaryDirectory() as folder:
        done = configure_cmake(tree, folder, languages=languages)
        assert done.returncode == 0, done.stdout + done.stderr
        tap.command("cmake", "--build", folder)
        for program in ("shared", "static"):
            tap.command(pathlib.Path(folder) / program, env=tree.environment, timeout=60)


def check_cmake(tree):
    """A CMake project, shared and static"""
    build_cmake(tree, "C;CXX")


def check_cmake_c(tree):
    """A CMake project of C alone, shared and static"""
    build_cmake(tree, "C")


def check_cmake_version(tree):
    """CMake refuses a version that is not compatible"""
    for wanted in ("0.2", "1.0", "9"):
        with tempfile.TemporaryDirectory() as folder:
            done = configure_cmake(tree, folder, wanted)
            assert done.returncode != 0 and "version" in done.stderr, f"{wanted} was accepted"


def check_version(tree):
    """tutti.pc, tutti.h and the project have the same version"""
    text = tree.header.read_text(encoding="utf-8")
    parts = [int(re.search(rf"#define TUTTI_VERSION_{part} (\d+)", text).group(1))
             for part in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(map(str, parts)) == tree.flags("--modversion")[0], (parts, tree.flags("--modversion"))
    assert parts[0] * 10000 + parts[1] * 100 + parts[2] == int(header_version(tree)), header_version(tree)


def check_exports(tree):
    """The shared library exports exactly the functions that tutti.h declares, as symbols of TUTTI_0"""
    listing = tap.command("nm", "-D", "--defined-only", "--format=posix", tree.library / "libtutti.so")
    exported = {line.split("@")[0].split()[0] for line in listing.splitlines() if " A " not in line}
    versions = set(re.findall(r"@+(\w+)", listing))
    assert versions == {"TUTTI_0"}, versions
    text = tree.header.read_text(encoding="utf-8")
    declared = set(re.findall(r"^TUTTI_API[^;(]*?\b(tutti_\w+)\s*\(", text, re.MULTILINE))
    assert declared, "no declarations found in tutti.h"
    assert exported == declared, (f"declared, not exported: {sorted(declared - exported)}; "
                                  f"exported, not declared: {sorted(exported - declared)}")


def check_no_test_code(tree):
    """No library holds the simulator or the reference kernels, which are for tests"""
    assert not list(tree.library.glob("*testing*")), list(tree.library.iterdir())
    for library in (tree.library / "libtutti.a", BUILD / "libtutti.so"):
        listing = tap.command("nm", "-C", "--defined-only", library)
        found = re.findall(r".*(?:reference_kernel|tutti::Sim[A-Z]).*", listing)
        assert "tutti::" in listing and not found, (library, found[:5])


def check_soname(tree):
    """The shared library has a soname, and no run path of the build machine"""
    dynamic = tap.command("readelf", "-d", tree.library / "libtutti.so")
    assert "[libtutti.so.0]" in dynamic, dynamic
    assert str(BUILD) not in dynamic, dynamic


def check_glibc(tree):
    """The shared library loads with the glibc of RHEL 9 and Ubuntu 22.04"""
    glibc.expect_old(tree.library / "libtutti.so")


def check_old_names(tree):
    """The wheel and the bundle can be linked for glibc 2.28"""
    glibc.expect_old_names(tree.library / "libtutti.a")


def check_paths(tree):
    """No installed text file names the build folder"""
    for path in tree.prefix.rglob("*"):
        if path.suffix in (".pc", ".cmake", ".h"):
            text = path.read_text(encoding="utf-8")
            assert str(BUILD) not in text and str(SOURCE) not in text, path


def check_nccl(tree):
    """A program for NCCL, by pkg-config; no other program finds the library by chance"""
    if not (tree.library / "pkgconfig/tutti-nccl.pc").exists():
        raise tap.Skip("built without libnccl.so.2")
    folder = tree.flags("--variable=nccldir", package="tutti-nccl")[0]
    assert (pathlib.Path(folder) / "libnccl.so.2").exists() and not list(tree.library.glob("libnccl*")), folder
    with tempfile.TemporaryDirectory() as target:
        program = pathlib.Path(target) / "user"
        tap.command("gcc", "-std=c11", SOURCE / "tests/nccl/program.c", "-o", program,
                    *tree.flags("--cflags", "--libs", package="tutti-nccl"))
        # The program finds the library by its run path, and the log says so.
        output = tap.command(program, 2, env=dict(tree.environment, NCCL_DEBUG="VERSION"), timeout=60)
        assert "correct" in output and f" from {folder}/libnccl.so.2" in output, output


def check_malloc(tree):
    """libtutti_malloc.so exports malloc's names and the heap's, and serves programs that do not know it"""
    library = tree.library / "libtutti_malloc.so"
    if not library.exists():
        raise tap.Skip("a sanitizer has a malloc of its own")
    listing = tap.command("nm", "-D", "--defined-only", "--format=posix", library)
    exported = {line.split("@")[0].split()[0] for line in listing.splitlines()}
    wanted = {"malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc",
              "malloc_usable_size", "free_sized", "free_aligned_sized", "tutti_lend_heap"}
    assert exported == wanted, exported ^ wanted
    glibc.expect_old(library)
    # Where memfd_create is refused, the heap is a removed file /dev/shm/tutti-XXXXXX.
    program = ("import re; block = bytearray(1 << 20); "
               "print(bool(re.search('tutti-.* .deleted', open('/proc/self/maps').read())))")
    for setting, is_used in (("", True), ("0", False)):
        output = tap.command("python3", "-c", program, timeout=60,
                             env=dict(tree.environment, LD_PRELOAD=str(library), TUTTI_MALLOC_BYTES=setting))
        assert output.strip() == str(is_used), (setting, output)


def check_tools(tree):
    """The installed programs start, and tell their version"""
    programs = sorted(tree.programs.iterdir()) if tree.programs.is_dir() else []
    assert any(program.name == "all_reduce_perf" for program in programs), programs
    assert any(program.name == "tutti-plan" for program in programs), programs
    # The trainer shows how the library is used; nobody installs it to train.
    assert not any(program.name == "trainer" for program in programs), programs
    for program in programs:
        tap.command(program, "--help", env=tree.environment, timeout=20)
        version = tap.command(program, "--version", env=tree.environment, timeout=20).strip()
        assert version == f"{program.name} (tutti {tree.flags('--modversion')[0]})", version


def package_of(path, patterns):
    """The Debian packages whose patterns take the path or a folder above it."""
    above = [path, *path.parents]
    return [package for package, pattern in patterns if any(folder.match(f"/{pattern}") for folder in above)]


def check_debian(tree):
    """Each installed file belongs to one of the Debian packages, which have the project's version"""
    patterns = [(listing.stem, pattern) for listing in sorted((SOURCE / "debian").glob("*.install"))
                for pattern in listing.read_text(encoding="utf-8").split()]
    assert len({package for package, _ in patterns}) == 4, patterns
    for path in tree.prefix.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        # Debian has usr for the prefix, and one more folder below lib.
        inside = pathlib.Path("/usr/lib/multiarch") / path.relative_to(tree.library) \
            if path.is_relative_to(tree.library) else pathlib.Path("/usr") / path.relative_to(tree.prefix)
        assert len(package_of(inside, patterns)) == 1, (inside, package_of(inside, patterns))
    changes = (SOURCE / "debian/changelog").read_text(encoding="utf-8")
    assert re.match(r"tutti \((.*?)\)", changes).group(1) == tree.flags("--modversion")[0], changes.splitlines()[0]


def main():
    with tempfile.TemporaryDirectory() as stage:
        tap.command(*meson_command(), "install", "-C", BUILD, "--no-rebuild", "--destdir", stage)
        tree = Installed(stage)
        tap.run((name, lambda check=check: check(tree)) for name, check in tap.checks_of(globals()))


if __name__ == "__main__":
    main()
