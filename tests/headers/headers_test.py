#!/usr/bin/env python3
"""Public headers alone: each compiles as C11 and C++20 with GCC and Clang at their strictest, without warnings.

Goal: our headers give no warning under a user's flags, and no header depends on another one before it.
"""

import itertools
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wundef", "-Werror", "-fsyntax-only"]
DIALECTS = {"c11": ("gcc", "clang"), "c++20": ("g++", "clang++")}


def check_alone(header, include, dialect, compiler):
    def check():
        if shutil.which(compiler) is None:
            raise tap.Skip(f"no {compiler}")
        suffix = ".c" if dialect == "c11" else ".cc"
        extra = ["-Wstrict-prototypes"] if dialect == "c11" else ["-Wold-style-cast", "-Wno-c++98-compat"]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / f"alone{suffix}"
            # Included twice: the guard is part of the contract.
            source.write_text(f"#include <{header}>\n" * 2 + "int main(void) { return 0; }\n", encoding="utf-8")
            tap.command(compiler, f"-std={dialect}", *STRICT, *extra, "-I", include, source)

    return check


def main():
    root = pathlib.Path(sys.argv[1])
    headers = [(f"tutti/{path.name}", root / "include") for path in sorted((root / "include/tutti").iterdir())]
    headers += [(name, root / "plugins/nccl") for name in ("nccl.h", "nccl_device.h")]
    checks = []
    for (header, include), dialect in itertools.product(headers, DIALECTS):
        if header.endswith(".hpp") and dialect == "c11":
            continue
        for compiler in DIALECTS[dialect]:
            checks.append((f"{header} alone as {dialect} with {compiler}",
                           check_alone(header, include, dialect, compiler)))
    tap.run(checks)


if __name__ == "__main__":
    main()
