#!/usr/bin/env python3
"""The figures of ./dev bench: which batches count for which placement of the cores. Prints TAP."""

import argparse
import contextlib
import io
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "perf/peers"))
import bench  # noqa: E402
import caches  # noqa: E402
import report  # noqa: E402
import tap  # noqa: E402


def turn(**batches):
    """Each library's batches: (microseconds, line before, line after)."""
    return {name: {"batches": own, "wrong": 0, "median_us": 1} for name, own in batches.items()}


def near(us, count=6):
    return [(us, 60, 65)] * count


def far(us, count=6):
    return [(us, 250, 270)] * count


def check_placements():
    """Each placement has its own figures, and batches during which the cores moved have none"""
    turns = [turn(tutti=near(1) + [(9, 60, 270), (9, 60, 0)] + far(4), impi=near(2) + far(3))]
    by_placement, lines = bench.batches_by_placement(turns)
    assert by_placement == {"near": {"tutti": [[1] * 6], "impi": [[2] * 6]},
                            "far": {"tutti": [[4] * 6], "impi": [[3] * 6]}}, by_placement
    assert set(lines["near"]) == {65} and set(lines["far"]) == {270}, lines


def check_a_placement_without_a_rival_does_not_count():
    """A library that was elsewhere might be the fastest; one that is far behind need not be waited for"""
    without = [turn(tutti=near(1), impi=far(3), gloo=near(200, 1))]
    assert list(bench.batches_by_placement(without)[0]) == [None]
    slow = [turn(tutti=near(1), impi=near(2), gloo=near(200, 1))]
    assert list(bench.batches_by_placement(slow)[0]) == ["near"]


def check_unknown_lines():
    """Where ranks share cores, and of drivers of older builds, all batches count"""
    by_placement, lines = bench.batches_by_placement([turn(tutti=[(1, 0, 0)] * 3), turn(tutti=[(2, 0, 0)])])
    assert by_placement == {None: {"tutti": [[1] * 3, [2]]}} and lines == {}, by_placement


def check_lines_at_a_limit():
    """Lines about a limit between two names are of one placement"""
    most = report.PLACEMENTS["near"]
    names = bench.placements_of([20, most - 1, most + 1, most + 1])
    assert len({names[most - 1], names[most + 1]}) == 1 and names[20] == "one core", names


def check_footprint():
    """Buffers rotate over twice the largest L3 of any CPU, and over 256 MiB at least. Some L3 caches have 480 MiB"""
    with tempfile.TemporaryDirectory() as cpus:
        for cpu, level, size in ((0, 2, "600M"), (0, 3, "32768K"), (1, 3, "480M"), (2, 3, "")):
            cache = pathlib.Path(cpus, f"cpu{cpu}", "cache", f"index{level}")
            cache.mkdir(parents=True)
            (cache / "level").write_text(f"{level}\n")
            (cache / "size").write_text(f"{size}\n")
        assert caches.footprint_bytes(cpus) == 960 << 20, caches.largest_l3_bytes(cpus)
        assert caches.footprint_bytes(cpus + "/cpu0") == 256 << 20


def check_agreement():
    """Turns of the fastest libraries agree if they differ by a tenth; those of slow ones do not matter"""
    assert bench.agree({"tutti": [[1, 1], [1.05]], "gloo": [[100], [300]]})
    assert not bench.agree({"tutti": [[1], [1.3]], "impi": [[1.2], [1.2]]})


def check_exit_status():
    """A run that measured nothing, or not tutti, has failed. It had not"""
    options = argparse.Namespace(only_limits=False, ranks=[2, 4], libraries=["tutti", "gloo"])
    row = lambda ranks, name, wrong=0: {"ranks": ranks, "configuration": name, "wrong_elements": wrong}
    status = lambda *rows: bench.exit_status(options, list(rows), {}, lambda text: None)
    assert status(row(2, "tutti"), row(4, "tutti"), row(4, "gloo")) == 0
    assert status(row(2, "tutti"), row(4, "gloo")) == 1
    assert status(row(2, "tutti"), row(4, "tutti", 3)) == 1
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), \
            contextlib.redirect_stderr(io.StringIO()):
        assert bench.main(["--quick", "--no-limits", "--drivers", folder, "--out", folder + "/out"]) == 1


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
