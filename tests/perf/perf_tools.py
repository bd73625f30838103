"""Runs the perf tools as processes and checks their tables, for the tests of the tools."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "perf/network"))
from hosts import ENVIRONMENT  # noqa: E402

TOOLS = pathlib.Path(sys.argv[1])
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "alltoallv", "gather",
               "scatter", "sendrecv", "hypercube")
WITHOUT_IN_PLACE = ("alltoallv", "sendrecv")
# Small rings and few iterations: the tests check results, not speed.
QUICK = ("--hot", "-n", "3", "-T", "60")


def run(collective, *flags, environment=None, status=0):
    """Runs a tool, which must end with `status`. Returns its output."""
    words = [str(TOOLS / f"{collective}_perf"), *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120,
                          env={**ENVIRONMENT, **(environment or {})})
    shown = f"{' '.join(words)}\nstatus {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == status, shown
    return done


def rows(output):
    """The table's rows as lists of words."""
    return [line.split() for line in output.splitlines() if line and not line.startswith("#")]


def expect_right(collective, output, row_count):
    table = rows(output)
    assert len(table) == row_count, f"{len(table)} rows, expected {row_count}\n{output}"
    for row in table:
        assert len(row) == 14, f"{len(row)} columns\n{row}"
        assert row[8] == "0", f"wrong elements\n{output}"
        assert row[12] == ("N/A" if collective in WITHOUT_IN_PLACE else "0"), f"wrong elements in place\n{output}"
        assert row[13] != "-", f"no algorithm\n{output}"
    assert "# Out of bounds values : 0 OK" in output, output
