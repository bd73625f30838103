#!/usr/bin/env python3
"""RDMA for real, without hardware: checks.py on emulated machines with Soft-RoCE devices. Prints TAP.

Usage: fabric_test.py BUILD_FOLDER [CHECK...]. Named checks run alone, on one machine. Run it with `./dev test fabric`:
it takes minutes, so no other suite has it. Needs root and Debian's packages.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Machines, devices of each, checks.
RUNS = (
    # The figures before other checks change a device's MTU.
    (1, 4, ("results", "figures", "registered_buffers", "conformance", "conformance_of_ucx", "network_tool",
            "a_link_that_goes_down", "a_killed_rank", "a_rank_killed_while_it_is_written")),
    # Without figures: perftest retries for ever on Soft-RoCE, and hangs when a packet is lost.
    (2, 2, ("results", "explanation", "a_link_that_goes_down", "a_killed_rank", "a_rank_killed_while_it_is_written",
            "the_trainer", "results_over_ucx", "explanation_of_ucx", "a_killed_rank_over_ucx", "the_trainer_over_ucx")),
)
LIMIT_S = 900


def run(build, machines, devices, names):
    """Returns the lines of TAP, with a failed one for every check without a result."""
    command = [HERE / "soft_roce.sh", "-n", machines, "-d", devices, "-t", LIMIT_S, sys.executable, HERE / "checks.py",
               build, *names]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    results, others = {}, []
    for line in done.stdout.splitlines():
        match = re.match(r"(not ok|ok) (\d+) - (.*)", line)
        if match is None:
            others.append(line if line.startswith("#") else f"# {line}")
        elif not results.get(int(match[2]), "").startswith("not"):
            results[int(match[2])] = f"{match[1]} {match[3]}"
    for number, name in enumerate(names, 1):
        results.setdefault(number, f"not ok {name}: no result")
    return [results[number] for number in sorted(results)], others


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    runs = ((1, 4, sys.argv[2:]),) if sys.argv[2:] else RUNS
    print(f"1..{sum(len(names) for _, _, names in runs)}")
    number = failed = 0
    for machines, devices, names in runs:
        results, others = run(build, machines, devices, names)
        for line in others:
            print(line)
        for result in results:
            number += 1
            verdict, text = re.match(r"(not ok|ok) (.*)", result).groups()
            print(f"{verdict} {number} - {text}")
            failed += verdict != "ok"
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
