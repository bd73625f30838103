#!/usr/bin/env python3
"""The command line of tutti-sim: tables, plots, scale and refusals. Prints TAP.

Usage: tutti_sim_test.py PROGRAM MACHINES
"""

import pathlib
import resource
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

PROGRAM = sys.argv[1]
DGX = str(pathlib.Path(sys.argv[2]) / "dgx_8_gpus.topo")
CLUSTER = "2048 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails, fat tree 2:1"


def run(*flags, status=0):
    """Runs the tool, which must end with `status`. Returns its output and its messages."""
    done = subprocess.run([PROGRAM, *flags], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status, f"{flags}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def rows_of(output):
    return [line.split() for line in output.splitlines() if line and line.split()[0].isdigit()]


def check_table():
    """Every algorithm has a column, the fastest one is named, and long messages are near the link's speed"""
    output, _ = run("all_reduce", DGX, "-b", "1K", "-e", "1G", "-f", "1024")
    head = output.splitlines()[1].split()
    assert head[:2] == ["ranks", "bytes"] and "ring" in head and "direct_one_shot" in head, head
    rows = rows_of(output)
    assert [row[1] for row in rows] == ["1K", "1M", "1G"], output
    assert rows[0][-2] == "direct_one_shot" and 350 < float(rows[2][-1]) < 450, output


def check_largest_sizes():
    """Sizes end before their product passes 64 bits: the table went on for ever"""
    output, _ = run("all_reduce", "-d", "4 gpus, nvswitch 450 GB/s", "-b", "16", "-e", "16384G", "-f", "1048576", "-a",
                    "ring")
    assert len(rows_of(output)) == 3, output


def check_every_collective():
    """Every collective is predicted, between cores and between hosts"""
    for collective in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather",
                       "scatter", "barrier"):
        for machine in ("8 cores", "4 hosts x 2 gpus, nic 25 GB/s"):
            output, _ = run(collective, "-d", machine, "-b", "64K", "-e", "64K")
            assert len(rows_of(output)) == 1, output


def check_plot():
    """A plot over sizes has a panel for each rank count; with one size the rank counts are the axis"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "plot.svg"
        run("all_reduce", DGX, "--ranks", "2,8", "-a", "ring,direct_two_shot", "--svg", str(path))
        texts = [text.text for text in ElementTree.fromstring(path.read_text()).iter() if text.text]
        assert "2 ranks" in texts and "8 ranks" in texts and texts.count("ring") == 1, texts
        run("all_reduce", DGX, "--ranks", "2,4,8", "-b", "1M", "-e", "1M", "--svg", str(path))
        texts = [text.text for text in ElementTree.fromstring(path.read_text()).iter() if text.text]
        assert "1M bytes" in texts and "ranks" in texts, texts
        run("all_reduce", DGX, "-e", "8", "--svg", str(pathlib.Path(folder) / "no" / "file"), status=2)


def check_plot_of_any_file():
    """A plot is well-formed whatever the file is called"""
    with tempfile.TemporaryDirectory() as folder:
        machine = pathlib.Path(folder) / "a&b<c.topo"
        machine.write_text(pathlib.Path(DGX).read_text())
        path = pathlib.Path(folder) / "plot.svg"
        run("all_reduce", str(machine), "-b", "1M", "-e", "1M", "-a", "ring", "--svg", str(path))
        texts = [text.text for text in ElementTree.fromstring(path.read_text()).iter() if text.text]
        assert any(text.endswith("a&b<c.topo") for text in texts), texts


def check_scale():
    """16,384 ranks take seconds and little memory"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    output, _ = run("all_reduce", "-d", CLUSTER, "-b", "32M", "-e", "32M",
                    "-a", "ring,hierarchical,recursive_halving_doubling,hierarchical_leaders")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(rows_of(output)) == 1 and ">" not in output.splitlines()[2], output
    assert used.ru_utime - before < 10, f"{used.ru_utime - before} s"
    assert used.ru_maxrss < 4 << 20, f"{used.ru_maxrss} KiB"


def check_refusals():
    """Wrong machines end with status 1, wrong arguments with status 2"""
    assert "line 1" in run("all_reduce", "-d", "8 cats", status=1)[1]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "no_host.topo"
        path.write_text("tutti topology 1\npackage p\ncore c0 in p\ncore c1 in p\n"
                        "link p c0 inside 10 GB/s file 10 ns file\nlink p c1 inside 10 GB/s file 10 ns file\n")
        assert "lie in hosts; of 2, 0 do" in run("all_reduce", str(path), "-n", "2", status=1)[1]
    assert "places for 8" in run("all_reduce", DGX, "--ranks", "9", status=1)[1]
    assert "has no algorithm 'rong'" in run("all_reduce", DGX, "-a", "rong", status=2)[1]
    assert "no range of bytes" in run("all_reduce", DGX, "-b", "1M", "-e", "1K", status=2)[1]
    # Their rounds were counted in 32 bits, and divided by.
    assert "no range of bytes" in run("all_reduce", DGX, "-b", "16777216G", "-e", "16777216G", status=2)[1]
    assert "is not a collective" in run("all_reuce", DGX, status=2)[1]
    run("all_reduce", status=2)
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([PROGRAM, "all_reduce", DGX], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                              timeout=60)
    assert done.returncode == 2 and "cannot write the output" in done.stderr, done.stderr


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
