#!/usr/bin/env python3
"""What the pages for users quote is in the sources: names of calls and variables, and texts of errors. The
pictures are those that docs/pictures.py draws.

Usage: pages_test.py SOURCE_ROOT.
"""

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

SOURCE = pathlib.Path(sys.argv[1]).resolve()


def read(path):
    return (SOURCE / path).read_text(encoding="utf-8")


def words_of(path):
    return set(re.findall(r"\w+", read(path)))


def rows_of(path):
    """The cells of every row of the page's tables, but for the rows of dashes."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in read(path).splitlines() if line.startswith("|")]
    return [row for row in rows if not all(re.fullmatch("-+", cell) for cell in row)]


def check_names_of_calls():
    """docs/coming_from.md names calls that exist"""
    ours = words_of("include/tutti/tutti.h")
    nccl = words_of("plugins/nccl/nccl.h")
    rows = rows_of("docs/coming_from.md")
    last = [code for row in rows for code in re.findall(r"`([a-z_]+)`", row[-1])]
    assert len(last) >= 30, last
    missing = [name for name in last if f"tutti_{name}" not in ours]
    missing += [name for row in rows for name in re.findall(r"`(nccl\w+)", " ".join(row)) if name not in nccl]
    assert not missing, missing


def check_variables():
    """The pages name variables that docs/configuration.md or the header has"""
    known = words_of("docs/configuration.md") | words_of("include/tutti/tutti.h")
    for page in ("README.md", *(f"docs/{name}.md" for name in ("coming_from", "errors", "faq", "tutorial"))):
        missing = [name for name in re.findall(r"\bTUTTI_[A-Z_]+\b", read(page)) if name not in known]
        assert not missing, (page, missing)


def literals_of(path):
    """The file's string literals as texts: neighbours are one, and what is formatted in between is NUL."""
    code = re.sub(r"//.*", "", read(path))
    text = re.sub(r'"\s*"', "", code)
    found = re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    return "\0".join(re.sub(r"%[-+ #0-9.*]*(?:z|l|ll)?[a-z]", "\0", literal) for literal in found)


def check_error_texts():
    """docs/errors.md quotes texts that the library has; '...' stands for a value"""
    sources = [path.relative_to(SOURCE) for folder in ("src", "transports") for path in (SOURCE / folder).rglob("*")
               if path.suffix in (".cc", ".h")]
    texts = [literals_of(path) for path in sources]
    rows = [row for row in rows_of("docs/errors.md") if re.fullmatch("`[a-z].*`", row[0])]
    assert len(rows) >= 25, len(rows)
    for row in rows:
        parts = [re.escape(part.strip()) for part in row[0].strip("`").split("...")]
        pattern = re.compile(r"[^a-z]*\0[^a-z]*".join(parts))
        assert any(pattern.search(text) for text in texts), f"no source has the text {row[0]}"
        assert len(row) == 3 and all(row), f"why, and what to do: {row}"


def check_error_codes():
    """docs/errors.md explains every code of tutti_result_t"""
    codes = set(re.findall(r"^  (TUTTI_[A-Z_]+) = \d+", re.search(
        r"typedef enum tutti_result_t.*?\}", read("include/tutti/tutti.h"), re.DOTALL).group(), re.MULTILINE))
    explained = {row[0].strip("`") for row in rows_of("docs/errors.md") if row[0].startswith("`TUTTI_")}
    assert len(codes) > 10 and explained == codes - {"TUTTI_SUCCESS"}, explained ^ codes


def check_pictures():
    """The pictures are those that docs/pictures.py draws, and pages show them"""
    pages = read("ARCHITECTURE.md") + "".join(path.read_text(encoding="utf-8") for path in SOURCE.glob("docs/*.md"))
    with tempfile.TemporaryDirectory() as folder:
        tap.command(sys.executable, SOURCE / "docs/pictures.py", folder)
        drawn = sorted(pathlib.Path(folder).iterdir())
        assert len(drawn) == 3, drawn
        for path in drawn:
            same = path.read_text(encoding="utf-8") == read(f"docs/{path.name}")
            assert same, f"docs/{path.name} is another: python3 docs/pictures.py docs"
            assert path.name in pages, f"no page shows docs/{path.name}"


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
