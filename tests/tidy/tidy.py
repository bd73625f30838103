#!/usr/bin/env python3
"""The tidy test: rules of this tree that no compiler checks, one TAP line each.

Usage: tidy.py ROOT. Rules are functions from a Tree to complaints "path:line: text". What a rule must let
through stands in exceptions.txt with its reason; lengths there may only shrink: an entry above the present
length, or one that is needed no longer, is a complaint as well.
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from cpp_shape import function_lengths, without_comments  # noqa: E402

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
PAGE_LINE_MAX = 120
ALL_PAGES_WORDS_MAX = 22000
PAGE_WORDS_MAX = 2500
# Pages with a limit of their own: a path, or the folder of such pages. Raw figures have none.
PAGE_WORDS = {"README.md": 900, "ARCHITECTURE.md": 1300, "docs/decisions/": 400, "docs/measurements/": None}
CPP = {".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh"}
CODE = CPP | {".py", ".sh", ".build"}
HEADERS = {".h", ".hpp", ".cuh"}

# The allowed includes: a layer may include itself and the layers named here.
MAY_INCLUDE = {
    "core": set(),
    "plan": {"core"},
    "topology": {"core", "plan"},
    "reduce": {"core"},
    "algorithms": {"core", "plan", "topology"},
    "cuda": {"core"},
    "transports": {"core", "cuda"},
    "net": {"core"},
    "bootstrap": {"core", "net"},
    "engine": {"core", "cuda", "plan", "topology", "reduce", "algorithms", "transports"},
}
MAY_INCLUDE["health"] = MAY_INCLUDE["engine"] | {"engine", "net", "bootstrap"}
MAY_INCLUDE["device"] = MAY_INCLUDE["health"] | {"health"}
MAY_INCLUDE["comm"] = MAY_INCLUDE["device"] | {"device"}
MAY_INCLUDE["api"] = MAY_INCLUDE["comm"] | {"comm", "include"}
TOP_LAYERS = ("plugins", "perf", "trainer", "tools", "tests")
for _top in TOP_LAYERS:
    MAY_INCLUDE[_top] = MAY_INCLUDE["api"] | {"api"}
# Like any user, plus the code that starts processes.
MAY_INCLUDE["trainer"] = {"include", "core", "perf"}
MAY_INCLUDE["tests"] = MAY_INCLUDE["tests"] | set(TOP_LAYERS)
# Layers that only decide: they see no socket, thread, mapping or device.
PURE_LAYERS = {"plan", "algorithms"}
IMPURE_HEADER = re.compile(r"^(sys/|netinet/|arpa/|infiniband/|cuda|unistd\.h|pthread\.h|thread$|mutex$|fcntl\.h)")

# Written in pieces, so that this file passes its own rules.
BANNED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b|/wo" r"rk/")
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b")
SLEEP = re.compile(r"\b(?:sleep|usleep|nanosleep|clock_nanosleep|sleep_for|sleep_until)\s*\(")


class Tree:
    """The files of a checkout: files that git tracks or would track, else files outside build and hidden folders."""

    def __init__(self, root, exceptions=None):
        self.root = pathlib.Path(root)
        self.texts = {}
        for path in self._paths():
            data = (self.root / path).read_bytes()
            if b"\0" not in data:
                self.texts[path] = data.decode("utf-8", errors="replace")
        if exceptions is None:
            exceptions = self.texts.get("tests/tidy/exceptions.txt", "")
        self.exceptions = parse_exceptions(exceptions)
        self.used = set()

    def _paths(self):
        names = self._git_listing()
        if names is None:
            names = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
            names = [name for name in names if not re.match(r"build|\.git/|\.cache/|.*__pycache__/", name)]
        return sorted(name for name in set(names)
                      if (self.root / name).is_file() and not (self.root / name).is_symlink())

    def _git_listing(self):
        """None without git, outside a clone, or if git distrusts the owner (a run with sudo)."""
        words = ["git", "-C", str(self.root), "ls-files", "-z", "-co", "--exclude-standard"]
        try:
            listing = subprocess.run(words, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return [name for name in listing.stdout.decode().split("\0") if name]

    def files(self, suffixes, under=""):
        """(path, text) of files with one of the suffixes."""
        return [(path, text) for path, text in self.texts.items()
                if pathlib.PurePath(path).suffix in suffixes and path.startswith(under)]

    def allows(self, rule, subject):
        """Whether exceptions.txt allows the subject. Records that the entry was needed."""
        if (rule, subject) in self.exceptions:
            self.used.add((rule, subject))
            return True
        return False

    def limit(self, rule, subject, default):
        self.used.add((rule, subject))
        return self.exceptions.get((rule, subject), default)


def parse_exceptions(text):
    """Lines `rule subject [number]  # reason`."""
    entries = {}
    for line in text.splitlines():
        words = line.partition(" #")[0].split()
        if not words or words[0].startswith("#"):
            continue
        entries[(words[0], words[1])] = int(words[2]) if len(words) > 2 else 0
    return entries


def layer_of(path):
    """The layer of a file or an included path; None outside the architecture."""
    parts = pathlib.PurePath(path).parts
    if path.startswith("perf/micro/"):
        return "tests"  # microbenchmarks share the tests' case tables
    if parts[0] == "src":
        parts = parts[1:]
    if parts[0] == "tutti":
        return "include"
    return parts[0] if parts[0] in MAY_INCLUDE or parts[0] == "include" else None


def numbered(text):
    return enumerate(text.splitlines(), 1)


def includes_point_one_way(tree):
    """Includes point one way"""
    for path, text in tree.files(CPP):
        layer = layer_of(path)
        if layer is None:
            continue
        allowed = MAY_INCLUDE.get(layer, set()) | {layer}
        for number, line in numbered(text):
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if not match:
                continue
            quoted, target = match.group(1) == '"', match.group(2)
            if ".." in target:
                yield f"{path}:{number}: include {target} from the root, src/ or include/, without '..'"
            elif quoted and "/" in target and layer_of(target) not in allowed | {None}:
                yield f"{path}:{number}: {layer} may not include {layer_of(target)} ({target})"
            elif not quoted and layer in PURE_LAYERS and IMPURE_HEADER.match(target):
                yield f"{path}:{number}: {layer} only decides; it may not include <{target}>"


def shrink_only(tree, rule, subject, lines, lines_max):
    """Complaints about one length: over its limit, or below an exception that should have shrunk too."""
    limit = tree.limit(rule, subject, lines_max)
    if lines > limit:
        yield f"{subject}: {lines} lines, at most {limit}"
    elif limit > lines_max and lines < limit:
        yield f"{subject}: has shrunk to {lines} lines; set its entry in exceptions.txt to that, or drop it"


def files_are_short(tree):
    """Files are at most 800 lines"""
    for path, text in tree.files(CODE):
        yield from shrink_only(tree, "file_length", path, len(text.splitlines()), FILE_LINES_MAX)


def functions_are_short(tree):
    """Functions are at most 70 lines"""
    for path, text in tree.files(CPP):
        for name, number, lines in function_lengths(text):
            subject = f"{path}:{name}"
            for complaint in shrink_only(tree, "function_length", subject, lines, FUNCTION_LINES_MAX):
                yield f"{complaint} (line {number})"


def nothing_is_left_for_later(tree):
    """No notes of unfinished work, no paths of one machine"""
    for path, text in tree.texts.items():
        for number, line in numbered(text):
            if match := BANNED.search(line):
                yield f"{path}:{number}: '{match.group()}'"


def environment_is_read_in_one_file(tree):
    """The environment is read in one file"""
    for path, text in tree.files(CPP):
        for number, line in numbered(without_comments(text)):
            if ENVIRONMENT.search(line) and not tree.allows("environment", path):
                yield f"{path}:{number}: only src/core/config.cc reads the environment"


def tests_do_not_sleep(tree):
    """Tests wait for events, not for time"""
    for path, text in tree.files(CPP, under="tests/"):
        for number, line in numbered(without_comments(text)):
            if SLEEP.search(line) and not tree.allows("sleep", path):
                yield f"{path}:{number}: a test must not sleep to wait for something"


def headers_are_guarded(tree):
    """Headers are guarded"""
    for path, text in tree.files(HEADERS):
        # Highway includes files named -inl again for every SIMD target.
        if path.endswith("-inl.h") and re.search(r"^#if defined\((\w+)\) == defined\(HWY_TARGET_TOGGLE\)", text, re.M):
            continue
        if "#pragma once" not in text and not re.search(r"^#ifndef (\w+)\n#define \1\b", text, re.MULTILINE):
            yield f"{path}: no #pragma once"


def files_open_with_a_comment(tree):
    """Modules open with a comment that says what they are"""
    for path, text in tree.files(CODE - {".build"}):
        # A module is a header and its source. Only the header has the opening comment.
        if path.endswith(".cc") and path[:-3] + ".h" in tree.texts:
            continue
        if not text.lstrip().startswith(("//", "/*", "#!", "# ", '"""')):
            yield f"{path}:1: opens without a comment"


def file_names_are_snake_case(tree):
    """File names are snake_case"""
    for path, _ in tree.files(CODE - {".build"}):
        if not re.fullmatch(r"[a-z0-9_]+(-inl)?", pathlib.PurePath(path).stem):
            yield f"{path}: not snake_case"


def lines_end_clean(tree):
    """No trailing white space, every file ends with one newline"""
    for path, text in tree.texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip(" \t\r"):
                yield f"{path}:{number}: trailing white space"
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            yield f"{path}: must end with one newline"


def page_words_max(path):
    """The most words of a page; None: any number."""
    for start, words_max in PAGE_WORDS.items():
        if path.startswith(start):
            return words_max
    return PAGE_WORDS_MAX


def pages_are_short(tree):
    """Pages are short, each and all together"""
    total = 0
    for path, text in tree.files({".md"}):
        words_max = page_words_max(path)
        words = len(text.split())
        if words_max is None:
            continue
        total += words
        if words > words_max:
            yield f"{path}: {words} words, more than {words_max}"
    if total > ALL_PAGES_WORDS_MAX:
        yield f"all pages outside docs/measurements: {total} words, more than {ALL_PAGES_WORDS_MAX}"


def page_lines_are_short(tree):
    """Lines of pages are short, but for tables and code"""
    for path, text in tree.files({".md"}):
        in_code = False
        for number, line in enumerate(text.split("\n"), 1):
            if line.lstrip().startswith("```"):
                in_code = not in_code
            if not in_code and not line.lstrip().startswith("|") and len(line) > PAGE_LINE_MAX:
                yield f"{path}:{number}: {len(line)} characters, more than {PAGE_LINE_MAX}"


def links_between_pages_resolve(tree):
    """Links between pages lead to files"""
    for path, text in tree.files({".md"}):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not (tree.root / pathlib.PurePath(path).parent / target).exists():
                yield f"{path}: no file {target}"


def exceptions_are_needed(tree):
    """Exceptions are needed; run last"""
    for rule, subject in sorted(tree.exceptions.keys() - tree.used):
        yield f"exceptions.txt: {rule} {subject} is not needed any more; drop it"


RULES = (includes_point_one_way, files_are_short, functions_are_short, nothing_is_left_for_later,
         environment_is_read_in_one_file, tests_do_not_sleep, headers_are_guarded, files_open_with_a_comment,
         file_names_are_snake_case, lines_end_clean, pages_are_short, page_lines_are_short, links_between_pages_resolve,
         exceptions_are_needed)


def as_check(rule, tree):
    def check():
        complaints = list(rule(tree))
        assert not complaints, "\n".join(complaints)

    return check


if __name__ == "__main__":
    checkout = Tree(sys.argv[1])
    tap.run((rule.__doc__, as_check(rule, checkout)) for rule in RULES)
