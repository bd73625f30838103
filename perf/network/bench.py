#!/usr/bin/env python3
"""Collectives between two emulated hosts of two ranks each, over a link of limited rate, as shares of that rate.

Writes network.txt and network.json. Needs root and iproute2 (perf/network/hosts.py). The line rate counts every bit on
the wire. A full frame of 1514 bytes has 1448 bytes of payload, so no program can exceed 95.6 %.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import hosts

RANKS_PER_HOST = 2
RANKS = 2 * RANKS_PER_HOST
# Bytes that the busier host must send for a message of n bytes (the table's size), and algorithms to compare.
CASES = [
    ("all_reduce", 1.0, ["", "ring", "recursive_halving_doubling"]),
    ("reduce_scatter", 0.5, ["", "recursive_halving"]),
    ("all_gather", 0.5, ["", "ring"]),
    ("broadcast", 1.0, ["", "scatter_all_gather"]),
    ("reduce", 1.0, ["", "binomial"]),
    ("alltoall", 1.0, [""]),
]


def measure(pair, tools, collective, algorithm, size):
    """Returns the microseconds of a call, and the algorithm that ran."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-b", str(size), "-e", str(size), "-n", "5", "-w", "2", "-c", "0", "--hot"]
        chosen = {"TUTTI_ALGORITHM": algorithm} if algorithm else {}
        results = hosts.finish(pair.launch(tools / f"{collective}_perf", RANKS_PER_HOST, pathlib.Path(folder) / "id",
                                           *flags, environment=chosen))
    status, out, err = results[0]
    if status != 0:
        sys.exit(f"{collective}_perf ended with status {status}: {err or out}")
    row = next(line.split() for line in out.splitlines() if line and not line.startswith("#"))
    return float(row[5]), row[13]


def main():
    parser = argparse.ArgumentParser(prog="./dev bench network", description=__doc__.split("\n")[0])
    parser.add_argument("--tools", type=pathlib.Path, required=True, help="folder of the perf tools")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rate", type=int, default=1000, help="Mbit/s of the link, each way")
    parser.add_argument("--size", type=int, default=16 << 20, help="bytes of a message")
    arguments = parser.parse_args()
    if why := hosts.missing():
        sys.exit(f"cannot emulate hosts: {why}")
    rows = []
    with hosts.Hosts(rate=f"{arguments.rate}mbit") as pair:
        for collective, share, algorithms in CASES:
            for asked in algorithms:
                microseconds, ran = measure(pair, arguments.tools, collective, asked, arguments.size)
                least = share * arguments.size * 8 / arguments.rate
                rows.append({"collective": collective, "algorithm": ran, "chosen": not asked, "ranks": RANKS, "hosts": 2,
                             "mbit_per_s": arguments.rate, "bytes": arguments.size, "microseconds": microseconds,
                             "share_of_line_rate": round(least / microseconds, 3)})
                print(f"{collective}, {ran}: {microseconds / 1000:.1f} ms", file=sys.stderr)
    table = ["| collective | algorithm | ms | share of the line rate |", "| --- | --- | --- | --- |"]
    table += [f"| {row['collective']} | {row['algorithm']}{' (chosen)' if row['chosen'] else ''} "
              f"| {row['microseconds'] / 1000:.1f} | {100 * row['share_of_line_rate']:.0f} % |" for row in rows]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "network.json").write_text(json.dumps(rows, indent=1) + "\n")
    (arguments.out / "network.txt").write_text("\n".join(table) + "\n")
    print("\n".join(table))


if __name__ == "__main__":
    main()
