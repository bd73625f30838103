#!/usr/bin/env python3
"""Makes the reference of the C interface from include/tutti/tutti.h: man pages of section 3.

Usage: reference.py HEADER                   prints the names of all pages: tutti, then one for each function
       reference.py HEADER VERSION FOLDER    writes FOLDER/NAME.3

A comment and the functions below it, up to the next comment or empty line, make one page. It is named after the
first of the functions; the names of the others lead to it (.so). tutti(3) has the rules, the types and the list.
"""

import pathlib
import re
import sys

from mdoc import head, plain

GROUP = re.compile(r"/\* ---- (.+?) -+\s*(?:\n|\*/)")
FUNCTION = re.compile(r"^(?:TUTTI_API|static inline) ([^;{}()]*?)(\w+)\(([^)]*)\)(?: TUTTI_NOEXCEPT;| \{)")


class Part:
    """A comment of the header and the declarations that it is about."""

    def __init__(self, group, comment):
        self.group = group
        self.comment = comment
        self.lines = []

    @property
    def functions(self):
        """(result, name, arguments) of each function that users call."""
        text = re.sub(r"\n +", " ", "\n".join(self.lines))
        found = [FUNCTION.match(line) for line in text.splitlines()]
        return [tuple(part.strip() for part in match.groups()) for match in found
                if match and not match.group(2).endswith("_")]

    @property
    def others(self):
        """The declarations that are no functions, as they stand."""
        kept, skips = [], False
        for line in self.lines:
            if re.match(r"TUTTI_API|static inline", line):
                skips = True
            if not skips:
                kept.append(line)
            if skips and (line.endswith(";") and not line.startswith(" ") or line.endswith("TUTTI_NOEXCEPT;") or
                          line == "}"):
                skips = False
        return "\n".join(kept).strip("\n")


def text_of(comment):
    """A comment's text without its frame."""
    body = re.sub(r"^/\*+ ?|\s*\*/$", "", comment)
    return re.sub(r"\n ?\* ?", "\n", body).strip()


def parse(header):
    """(opening comment, parts) of the header."""
    opening = re.match(r"/\*.*?\*/", header, re.DOTALL).group()
    # The guard, the includes and the C++ frame are of no use to a reader.
    body = header[len(opening):]
    body = re.sub(r" *\\\n *", " ", body)
    parts, group, part = [], "version", Part("version", "")
    tokens = re.findall(r"(?<![^\n])/\*.*?\*/|[^\n]*", body, re.DOTALL)
    for token in tokens:
        if token.startswith("/*"):
            match = GROUP.match(token)
            if match:
                group = match.group(1)
                rest = text_of("/* " + token[match.end():]) if "\n" in token else ""
                parts.append(Part(group, rest))
            else:
                parts.append(Part(group, text_of(token)))
            part = parts[-1]
        elif token.strip():
            part.lines.append(token)
    return text_of(opening), parts


def sentences(text):
    """The text, a line for each sentence, as mdoc wants it."""
    return plain(re.sub(r"(?<=\S[.?!:]) (?=[A-Z*`])", "\n", " ".join(text.split())))


def paragraphs(text):
    """A comment's paragraphs and lists."""
    lines, in_list = [], False
    for block in re.split(r"\n\s*\n", text):
        items = re.split(r"^- ", block, flags=re.MULTILINE)
        if lines and not in_list:
            lines.append(".Pp")
        if items[0].strip():
            lines.append(sentences(items[0]))
        if len(items) > 1:
            lines.append(".Bl -bullet")
            lines += [".It\n" + sentences(item) for item in items[1:]]
            lines.append(".El")
    return "\n".join(lines)


def literal(code):
    return f".Bd -literal\n{plain(code)}\n.Ed" if code else ""


def sentence(text, name):
    """What the list says of a page: the first sentence of its comment."""
    first = re.split(r"(?<=[\w)\]`])[.:;](?=\s|$)", " ".join(text.split()))[0] or name
    return plain(first[0].lower() + first[1:] if first[1:2].islower() or first[1:2] == " " else first)


def synopsis(functions):
    lines = [".In tutti/tutti.h"]
    for result, name, arguments in functions:
        lines += [f".Ft {result}", f".Fo {name}"]
        # "T* name" is written "T *name" in manuals.
        written = [re.sub(r"([*]+) ", r" \1", part.strip()) for part in arguments.split(",")]
        lines += [f'.Fa "{argument}"' for argument in written]
        lines.append(".Fc")
    return "\n".join(lines)


def function_page(part, version):
    names = [name for _, name, _ in part.functions]
    lines = [head(names[0], 3, version) + ".Sh NAME"]
    lines += [f".Nm {name}" + (" ," if name != names[-1] else "") for name in names]
    lines += [f".Nd {sentence(part.comment, names[0])}", ".Sh SYNOPSIS", synopsis(part.functions), ".Sh DESCRIPTION",
              paragraphs(part.comment) or "See the NAME section.", literal(part.others)]
    if any(result == "tutti_result_t" for result, _, _ in part.functions):
        lines.append(".Sh RETURN VALUES\nTUTTI_SUCCESS, or the code of an error, which\n"
                     ".Xr tutti_last_error 3\nexplains.\nThe codes and the rules for every call are in\n.Xr tutti 3 .")
    lines.append(".Sh SEE ALSO\n.Xr tutti 3")
    return "\n".join(line for line in lines if line) + "\n"


def overview(opening, parts, version):
    lines = [head("tutti", 3, version) + ".Sh NAME\n.Nm tutti\n.Nd collective communication between processes",
             ".Sh LIBRARY\nlibtutti (-ltutti; pkg-config: tutti)", ".Sh SYNOPSIS\n.In tutti/tutti.h",
             ".Sh DESCRIPTION", paragraphs(opening)]
    group = None
    for part in parts:
        if part.group == "version":
            continue
        if part.group != group:
            group = part.group
            lines.append(f".Sh {group.upper()}")
        if part.functions:
            lines += [f".Pp\n.Xr {name} 3 :\n{sentence(part.comment, name)}." for _, name, _ in part.functions]
        else:
            lines += [".Pp\n" + paragraphs(part.comment) if part.comment else "", literal(part.others)]
    return "\n".join(line for line in lines if line) + "\n"


def tidied(page):
    """Without paragraphs where mdoc begins one by itself."""
    page = re.sub(r"(^\.Sh .*\n)\.Pp\n", r"\1", page, flags=re.MULTILINE)
    return re.sub(r"^\.Pp\n(?=\.Bl)", "", page, flags=re.MULTILINE)


def pages(header, version):
    """The text of each page by its name."""
    opening, parts = parse(header)
    result = {"tutti": tidied(overview(opening, parts, version))}
    for part in parts:
        names = [name for _, name, _ in part.functions]
        for name in names:
            result[name] = tidied(function_page(part, version)) if name == names[0] else f".so man3/{names[0]}.3\n"
    return result


def main():
    header = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    if len(sys.argv) == 2:
        print("\n".join(pages(header, "")))
        return
    for name, text in pages(header, sys.argv[2]).items():
        (pathlib.Path(sys.argv[3]) / f"{name}.3").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
