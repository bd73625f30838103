#!/usr/bin/env python3
"""Lowers the version that PTX asks for, so that older drivers and assemblers take it.

Usage: lower_ptx.py IN OUT VERSION. nvcc writes its own newest version, whatever the code needs. ptxas checks that
VERSION has all that the code uses.
"""

import pathlib
import re
import sys

VERSION = re.compile(r"^\.version\s+(\d+)\.(\d+)\s*$", re.MULTILINE)


def lower(text, wanted):
    found = VERSION.search(text)
    if found is None:
        raise SystemExit("lower_ptx.py: no .version in the PTX")
    version = min((int(found[1]), int(found[2])), tuple(int(part) for part in wanted.split(".")))
    return text[:found.start()] + f".version {version[0]}.{version[1]}" + text[found.end():]


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(lower(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[3]), encoding="utf-8")
