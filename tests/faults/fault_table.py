#!/usr/bin/env python3
"""Makes the fault matrix of docs/measurements/faults.md from the tests.

Usage: fault_table.py check|write TESTS TOOLS DOCUMENT, where TESTS is the executable of tests/faults and TOOLS the folder
of the perf tools.

check prints TAP: the document's table has the rows and outcomes that the tests require (times are from the machine that
wrote it). write runs the tests, cuts a link between emulated hosts if possible, and puts the table with its times into
the document.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/network"), str(ROOT / "perf/network")]
import cut_link  # noqa: E402
import hosts  # noqa: E402
import tap  # noqa: E402

BEGIN = "<!-- written by ./dev faults -->"
END = "<!-- to here -->"
HEADER = ["fault of rank 1 of 4", "when", "what every other rank gets", "one host, ms", "two hosts, ms"]
# tests/network/network_test.py checks a cut link. The times here use the heartbeat of the matrix.
CUT_ROW = ("the link between the hosts goes down", "in long calls", 'TUTTI_PEER_LOST ("lost" or "no sign of life")')
HEARTBEAT_MS = 1000


def rows_of(text):
    """Returns (fault, phase, outcome, hosts) for a parameter that a test prints."""
    words = text.split(" | ")
    assert len(words) == 4, f"no row: {text}"
    return tuple(words)


def rows_of_tests(tests):
    """The rows without hosts, in the order of the tests."""
    listed = tap.command(tests, "--gtest_list_tests")
    rows = [rows_of(text)[:3] for text in re.findall(r"# GetParam\(\) = (.*)$", listed, re.MULTILINE)]
    assert rows, listed
    return list(dict.fromkeys(rows)) + [CUT_ROW]


def measured(tests):
    """Returns {(fault, phase, outcome): {hosts: milliseconds}} for a run."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        tap.command(tests, f"--gtest_output=xml:{report}")
        figures = {}
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            *row, host_count = rows_of(case.get("value_param"))
            milliseconds = case.find("properties/property[@name='milliseconds']").get("value")
            figures.setdefault(tuple(row), {})[host_count] = milliseconds
    return figures


def measured_cut(tools):
    """Milliseconds from the cut to the end of the last process; "-" if hosts cannot be emulated."""
    if hosts.missing():
        return "-"
    results, seconds = cut_link.cut_in_calls(tools, HEARTBEAT_MS)
    assert all(status != 0 for status, _, _ in results), results
    return str(round(seconds * 1000))


def parts_of(document):
    """The text before, in and after the table."""
    before, begin, rest = document.read_text().partition(BEGIN + "\n")
    table, end, after = rest.partition(END)
    assert begin and end, f"{document} has no marks {BEGIN} and {END}"
    return before + begin, table, end + after


def write(tests, tools, document):
    before, _, after = parts_of(document)
    figures = measured(tests)
    figures[CUT_ROW] = {"2": measured_cut(tools)}
    lines = [HEADER, ["---"] * len(HEADER)]
    lines += [[*row, figures[row].get("1", "-"), figures[row].get("2", "-")] for row in rows_of_tests(tests)]
    document.write_text(before + "".join(f"| {' | '.join(line)} |\n" for line in lines) + after)


def check(tests, document):
    def compare():
        table = parts_of(document)[1].splitlines()[2:]
        written = [tuple(line.strip("| ").split(" | ")[:3]) for line in table]
        wanted = rows_of_tests(tests)
        told = "run ./dev faults; it differs in: " + str(sorted(set(wanted) ^ set(written)))
        assert written == wanted, told
    tap.run([("The fault matrix of docs/measurements/faults.md is that of the tests", compare)])


def main():
    verb, tests, tools, document = sys.argv[1:]
    if verb == "write":
        write(tests, pathlib.Path(tools), pathlib.Path(document))
    else:
        check(tests, pathlib.Path(document))


if __name__ == "__main__":
    main()
