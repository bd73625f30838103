#!/usr/bin/env python3
"""Makes a tool's man page: a written frame, and the options as the tool's own --help lists them.

Usage: tool_page.py FRAME VERSION PROGRAM > PAGE. `@OPTIONS@` in the frame stands for the options.
"""

import pathlib
import re
import subprocess
import sys

from mdoc import head, plain

TEXT_COLUMN = 30
VALUES = {"TEXT": "text", "INT": "number", "UINT": "number", "FLOAT": "number", "BOOLEAN": "0|1"}


def options(help_text):
    """(names, value, default, description) of each option, in the order of --help."""
    found = []
    for line in help_text.splitlines():
        if re.match(r"  +-\S", line) and len(line) - len(line.lstrip()) < TEXT_COLUMN:
            # The description stands at its column, or below where the option is longer.
            is_short = len(line) > TEXT_COLUMN and line[TEXT_COLUMN - 1] == " " and line[TEXT_COLUMN] != " "
            before, text = (line[:TEXT_COLUMN], line[TEXT_COLUMN:]) if is_short else (line, "")
            names = re.match(r" +((?:-[\w-]+)(?:, *-[\w-]+)*)", before)
            rest = before[names.end():]
            value = re.match(r" +([A-Z]+)\b", rest)
            default = re.search(r"=(\S+)", rest)
            found.append([re.split(r", *", names.group(1)), VALUES.get(value.group(1)) if value else None,
                          default.group(1) if default else None, text.strip()])
        elif found and line.startswith(" " * TEXT_COLUMN):
            found[-1][3] = f"{found[-1][3]} {line.strip()}".strip()
        elif found and not line.strip():
            break
    return found


def as_mdoc(found):
    lines = [".Bl -tag -width Ds"]
    for names, value, default, text in found:
        argument = f" Ar {value}" if value else ""
        # "-x" is .Fl x, and "--name" is .Fl -name.
        lines.append(".It " + " , ".join(f"Fl {name[1:]}{argument}" for name in names))
        text = text[:1].upper() + text[1:]
        lines.append(plain(text + ("" if text.endswith(".") else ".")))
        if default:
            lines.append(plain(f"Default: {default}."))
    return "\n".join(lines + [".El"])


def main():
    frame, version, program = sys.argv[1:4]
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    page = pathlib.Path(frame)
    sys.stdout.write(head(page.stem, 1, version) + page.read_text(encoding="utf-8").replace(
        "@OPTIONS@", as_mdoc(options(text))))


if __name__ == "__main__":
    main()
