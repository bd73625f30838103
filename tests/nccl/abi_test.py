#!/usr/bin/env python3
"""libnccl.so.2's binary interface: exported names and their binding, values, structures, against abi.txt. If
NVIDIA's own header and library are installed, they are compared with the same list, so that the list is right.

Usage: abi_test.py SOURCE_ROOT LIBRARY.
"""

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import glibc  # noqa: E402
import nvidia  # noqa: E402
import tap  # noqa: E402

SOURCE, LIBRARY = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
HERE = pathlib.Path(__file__).resolve().parent
NEWEST = (2, 32, 3)


DEVICE_HEADER = "nccl_device.h"


def version_of(text):
    return tuple(int(part) for part in text.split("."))


class Interface:
    """abi.txt."""

    def __init__(self):
        self.symbols = {}  # name: (since, has a twin)
        self.values = {}  # name: (value, since)
        self.sizes = {}  # struct: bytes
        self.fields = {}  # (struct, field): (offset, bytes, since)
        for line in (HERE / "abi.txt").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == "symbol":
                self.symbols[words[1]] = (version_of(words[2]), words[3:] != ["alone"])
            elif words[0] == "value":
                self.values[words[1]] = (int(words[2]), version_of(words[3]))
            elif words[0] == "struct":
                self.sizes[words[1]] = int(words[2])
            else:
                self.fields[words[1], words[2]] = (int(words[3]), int(words[4]), version_of(words[5]))

    def exports(self, version):
        """The lines that `nm -D` must show for a library of this version: {(name, letter)}."""
        shown = set()
        for name, (since, twin) in self.symbols.items():
            if since <= version:
                shown |= {(name, "W"), ("p" + name, "T")} if twin else {(name, "T")}
        return shown


INTERFACE = Interface()


def exports_of(library):
    listing = tap.command("nm", "-D", "--defined-only", "--format=posix", library)
    return {tuple(line.split()[:2]) for line in listing.splitlines()}


def compare(found, wanted, what):
    assert found == wanted, f"{what}: missing {sorted(wanted - found)}, further {sorted(found - wanted)}"


def measured(include_folders, version):
    """Values, sizes and fields of a header of this version, as lines like those of abi.txt."""
    lines = []
    for name, (_, since) in INTERFACE.values.items():
        if since <= version:
            lines.append(f'printf("value {name} %lld\\n", (long long)({name}));')
    for struct in INTERFACE.sizes:
        fields = [field for (owner, field), known in INTERFACE.fields.items() if owner == struct and known[2] <= version]
        if fields:
            lines.append(f'printf("struct {struct} %zu\\n", sizeof({struct}));')
        for field in fields:
            lines.append(f'printf("field {struct} {field} %zu %zu\\n", offsetof({struct}, {field}), '
                         f"sizeof((({struct}*)0)->{field}));")
    body = "\n  ".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "measure.cc"
        source.write_text(f"#include <nccl.h>\n#include <{DEVICE_HEADER if version == NEWEST else 'nccl.h'}>\n"
                          "#include <stddef.h>\n#include <stdio.h>\n"
                          f"int main(void) {{\n  {body}\n  return 0;\n}}\n", encoding="utf-8")
        program = pathlib.Path(folder) / "measure"
        tap.command("g++", "-w", "-fpermissive", *[f"-I{path}" for path in include_folders], source, "-o", program)
        return set(tap.command(program).splitlines())


def wanted_lines(version):
    lines = {f"value {name} {value}" for name, (value, since) in INTERFACE.values.items() if since <= version}
    for (struct, field), (offset, size, since) in INTERFACE.fields.items():
        if since <= version:
            lines.add(f"field {struct} {field} {offset} {size}")
    if version == NEWEST:
        lines |= {f"struct {struct} {size}" for struct, size in INTERFACE.sizes.items()}
    return lines


def check_exports():
    """The library exports NCCL's names (weak) and their twins (strong), and nothing else"""
    compare(exports_of(LIBRARY), INTERFACE.exports(NEWEST), "exports")


def check_soname():
    """Its soname is libnccl.so.2; it has no run path and needs neither CUDA nor libtutti"""
    dynamic = tap.command("readelf", "-d", LIBRARY)
    assert "[libnccl.so.2]" in dynamic, dynamic
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic, dynamic
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert not [name for name in needed if re.match(r"lib(cu|tutti|nv)", name)], needed


def check_glibc():
    """It loads with the glibc of RHEL 9 and Ubuntu 22.04"""
    glibc.expect_old(LIBRARY)


def check_header():
    """tutti's nccl.h has the values and layouts of the list"""
    found = measured([SOURCE / "plugins/nccl"], NEWEST)
    compare(found, wanted_lines(NEWEST), "nccl.h")


def check_declarations():
    """Every name of the list is declared, and every declared call is in the list"""
    text = "".join((SOURCE / "plugins/nccl" / name).read_text(encoding="utf-8") for name in ("nccl.h", DEVICE_HEADER))
    declared = set(re.findall(r"^NCCL_DECLARE_\([^,]+,\s*(\w+),", text, re.MULTILINE))
    compare(declared, {name for name, (_, twin) in INTERFACE.symbols.items() if twin}, "declarations")


def check_documented():
    """docs/nccl.md has a row for every name"""
    text = (SOURCE / "docs/nccl.md").read_text(encoding="utf-8")
    missing = sorted(name for name in INTERFACE.symbols if not re.search(rf"`{name}`", text))
    assert not missing, missing


def header_check(installed):
    def check():
        # An older header has fewer names. A newer header has grown only at the ends.
        known = min(installed.version, NEWEST)
        found = measured([installed.include, *nvidia.cuda_includes()], known)
        wanted = wanted_lines(known)
        if installed.version != NEWEST:
            # Sizes and the number of codes change from version to version.
            changing = ("struct ", "value ncclNumResults ")
            found, wanted = ({line for line in lines if not line.startswith(changing)} for lines in (found, wanted))
        compare(found, wanted, str(installed.include))
        if installed.version <= NEWEST:
            text = (installed.include / "nccl.h").read_text(encoding="utf-8", errors="replace")
            declared = set(re.findall(r"^\s*(?:ncclResult_t|const char\*|void)\s+(nccl[A-Z]\w*)\s*\(", text, re.MULTILINE))
            assert len(declared) > 40, declared
            missing = declared - set(INTERFACE.symbols)
            assert not missing, missing

    return check


def library_check(installed):
    def check():
        if installed.library is None:
            raise tap.Skip("the header is there without its library")
        if installed.version not in {since for since, _ in INTERFACE.symbols.values()}:
            raise tap.Skip(f"version {installed.version} is not in the list")
        compare(exports_of(installed.library), INTERFACE.exports(installed.version), str(installed.library))

    return check


def main():
    checks = tap.checks_of(globals())
    installations = nvidia.installations()
    for installed in installations:
        name = ".".join(map(str, installed.version))
        checks.append((f"NVIDIA's header {name} has the values and layouts of the list", header_check(installed)))
        checks.append((f"NVIDIA's library {name} exports the names of the list", library_check(installed)))
    if not installations:
        def missing():
            raise tap.Skip("NVIDIA's nccl.h is not installed (NCCL_HOME, pip's nvidia-nccl, /usr/include)")
        checks.append(("NVIDIA's header has the values and layouts of the list", missing))
    tap.run(checks)


if __name__ == "__main__":
    main()
