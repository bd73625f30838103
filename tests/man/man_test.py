#!/usr/bin/env python3
"""Man pages and bash completion: complete, without a complaint of mandoc, and in accord with header and programs.

Usage: man_test.py SOURCE_ROOT BUILD_ROOT.
"""

import pathlib
import re
import shutil
import subprocess
import sys

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "tests/support"))
sys.path.insert(0, str(SOURCE / "man"))
import tap  # noqa: E402
from reference import pages  # noqa: E402
from tool_page import options  # noqa: E402

HEADER = (SOURCE / "include/tutti/tutti.h").read_text(encoding="utf-8")
PROGRAMS = {name: BUILD / folder / name for name, folder in
            {"tutti-plan": "tools", "tutti-inspect": "tools", "tutti-topo": "tools", "tutti-sim": "tools",
             "tutti-tune": "tools",
             "all_reduce_perf": "perf"}.items()}


def check_mandoc():
    """mandoc has no complaint about any page"""
    if shutil.which("mandoc") is None:
        raise tap.Skip("no mandoc")
    written = [path for path in sorted((BUILD / "man").glob("*.[13]"))
               if not path.read_text(encoding="utf-8").startswith(".so")]
    assert len(written) > 40, written
    done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *written], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout


def check_every_function():
    """Every function of tutti.h has a page that declares it, with all arguments, and tutti(3) lists it"""
    texts = pages(HEADER, "0")
    declared = re.findall(r"^TUTTI_API[^;(]*?\b(tutti_\w+)\s*\(([^)]*)\)", HEADER, re.MULTILINE)
    assert len(declared) > 40
    for name, arguments in declared:
        page = texts[name]
        if page.startswith(".so"):
            page = texts[re.match(r"\.so man3/(\w+)\.3", page).group(1)]
        body = re.search(rf"^\.Fo {name}\n(.*?)^\.Fc$", page, re.MULTILINE | re.DOTALL).group(1)
        assert body.count(".Fa ") == arguments.count(",") + 1, (name, body)
        assert re.search(rf"^\.Nm {name}( ,)?$", page, re.MULTILINE), page
        assert f".Xr {name} 3" in texts["tutti"], name
    # Inline functions for users have pages too, and those that end in _ are not for users.
    assert "tutti_stream_cuda" in texts and "tutti_stream_make_" not in texts


def check_types_and_codes():
    """tutti(3) has every type, constant and macro that users may name"""
    overview = pages(HEADER, "0")["tutti"]
    everything = "".join(pages(HEADER, "0").values())
    for name in set(re.findall(r"\b(TUTTI_[A-Z0-9_]+)\s*=", HEADER)) | set(re.findall(r"^} (tutti_\w+);", HEADER, re.M)):
        assert name in overview, name
    internal = {"TUTTI_TUTTI_H_", "TUTTI_API", "TUTTI_NOEXCEPT", "TUTTI_ANY_INT"}
    for name in set(re.findall(r"^#define (TUTTI_\w+)", HEADER, re.MULTILINE)) - internal:
        assert name in everything or name.startswith("TUTTI_VERSION"), name


def check_sentences():
    """A comment keeps its words, and each sentence its own line"""
    header = ("/* About. */\n/* ---- group ---- */\n\n/* *out = a.b, at P. Then more.\n *\n * Also:\n * - one\n * - .two */\n"
              "TUTTI_API tutti_result_t tutti_x(int* out) TUTTI_NOEXCEPT;\nTUTTI_API void tutti_y(void) TUTTI_NOEXCEPT;\n")
    texts = pages(header, "0")
    assert "\n*out = a.b, at P.\nThen more.\n" in texts["tutti_x"], texts["tutti_x"]
    assert ".It\none\n.It\n\\&.two\n" in texts["tutti_x"], texts["tutti_x"]
    assert '.Fa "int *out"' in texts["tutti_x"] and texts["tutti_y"] == ".so man3/tutti_x.3\n", texts


def flags_of(program):
    return {name for names, *_ in options(tap.command(program, "--help")) for name in names}


def check_flags():
    """A program's page has every flag of --help"""
    for name, program in PROGRAMS.items():
        page = (BUILD / f"man/{name}.1").read_text(encoding="utf-8")
        in_help = set(re.findall(r"^ +(-[-\w]+)", tap.command(program, "--help"), re.MULTILINE))
        assert len(in_help) > 2 and in_help <= flags_of(program), in_help - flags_of(program)
        for flag in flags_of(program):
            assert re.search(rf"\bFl {re.escape(flag[1:])}(?![\w-])", page), (name, flag)


def complete(program, *words):
    """What bash offers for the last of the words."""
    script = ('source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _tutti "$2"; printf "%s\\n" "${COMPREPLY[@]}"')
    shown = tap.command("bash", "-c", script, "bash", BUILD / "man/tutti-plan", program, *words)
    return set(shown.split())


def check_completion():
    """Bash completes the flags that --help lists, and names"""
    for program in PROGRAMS.values():
        assert complete(program, "-") == flags_of(program), complete(program, "-") ^ flags_of(program)
    assert complete(PROGRAMS["tutti-plan"], "--net") == {"--network-overhead-us", "--network-latency-us",
                                                          "--network-bytes-per-us"}
    assert {"all_reduce", "barrier"} <= complete(PROGRAMS["tutti-plan"], "")
    assert "ring" in complete(PROGRAMS["tutti-plan"], "all_reduce", "-a", "ri")
    assert complete(PROGRAMS["all_reduce_perf"], "-d", "bf") == {"bfloat16"}
    assert complete(PROGRAMS["tutti-topo"], "-f", "h") == {"hwloc"}
    assert complete(PROGRAMS["tutti-topo"], str(SOURCE / "README")) == {str(SOURCE / "README.md")}


tap.run(tap.checks_of(globals()))
