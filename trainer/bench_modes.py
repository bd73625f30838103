#!/usr/bin/env python3
"""Tables of the trainer's modes: what each sends, holds and waits for, beside its formula.

Every row is a run of a few seconds on this machine. Rows with bytes on the wire are run again with every rank on its own
emulated host, in a network namespace (root): what its loopback interface carries in a step. Writes OUT/MODE.md and
OUT/MODE.svg, the last steps of a run as the trainer draws them. Progress goes to standard error. Rows that do not fit in
--minutes are left out and named, and the exit status is 1.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from bench import GO_FIRST

HERE = pathlib.Path(__file__).resolve().parent
LAUNCHER_PREFIXES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "PMI_", "PMIX_", "MPI_", "SLURM_",
                     "OMPI_", "TUTTI_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
LIMIT_S = 240
MODEL = {"--context": 32, "--width": 64, "--depth": 4, "--heads": 4, "--batch": 16, "--accumulate": 4, "--clip": 0, "--steps": 20}
DATA_MODE = {"--sample": 0, "--evaluate-every": 1000000}
LONG = {"--steps": 160}
ONE = {"--mode": "layers"}  # with one rank, which holds all layers
PLAIN = {**LONG, "--accumulate": 1, "--optimizer": "sgd", "--learning-rate": 0.5, "--momentum": 0}
LOCAL = {**PLAIN, "--context": 16, "--width": 32, "--depth": 1, "--heads": 2, "--batch": 64, "--steps": 3200, "--learning-rate": 0.2}
DILOCO = {"--outer-rate": 0.7, "--outer-momentum": 0.9}
FUSION = {"--accumulate": 1, "--width": 192}
SENT, HELD = "sent bytes a step", "bytes of {} held"
IDLE, ALIVE = ["idle % measured", "idle % by the formula"], "micro-batches alive at most"


def words_of(arguments, flags):
    flags = {**MODEL, **({} if "--mode" in flags else DATA_MODE), **flags}
    words = [*(GO_FIRST if arguments.first else []), str(arguments.trainer), "--device", "host"]
    for name, value in flags.items():
        words += [name] if value is True else [name, str(value)]
    return [*words, "--data", *map(str, arguments.data)]


def run(arguments, ranks, flags):
    """Returns rank 0's output."""
    done = subprocess.run([*words_of(arguments, flags), "--ranks", str(ranks)], env=ENVIRONMENT, capture_output=True, text=True,
                          check=False, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"{' '.join(done.args)}\n{done.stdout}{done.stderr}")
    return done.stdout


def carried_bytes(arguments, ranks, flags):
    """Bytes that the loopback interface of a fresh namespace carries when every rank is a host."""
    with tempfile.TemporaryDirectory() as folder:
        script = f"""ip link set lo up
for rank in $(seq 0 {ranks - 1}); do
  RANK=$rank WORLD_SIZE={ranks} TUTTI_ID_FILE={folder}/id TUTTI_HOSTID=h$rank TUTTI_SOCKET_IFNAME=lo "$@" >&2 & done
wait
awk '/lo:/ {{ print $10 }}' /proc/net/dev"""
        done = subprocess.run(["unshare", "-n", "sh", "-c", script, "sh", *words_of(arguments, flags)], env=ENVIRONMENT,
                              capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode or "rank" in done.stderr and "trainer, rank" in done.stderr:
        sys.exit(done.stdout + done.stderr)
    return int(done.stdout.split()[-1])


def wire_bytes(arguments, ranks, flags):
    """Bytes a step and rank: from runs of 16 and of 32 steps, so that set-up and evaluation cancel out."""
    if os.geteuid() != 0 or ranks == 1:
        return None
    counts = [carried_bytes(arguments, ranks, {**flags, "--steps": steps}) for steps in (16, 32)]
    return (counts[1] - counts[0]) / 16 / ranks


def fact(output, name):
    found = re.search(rf"^{re.escape(name)} +(.*)$", output, re.MULTILINE)
    return [float(word) for word in found.group(1).split()] if found else None


def held_out(output):
    found = re.search(r"held-out loss ([0-9.]+) (nats|bits)", output)
    value = float(found.group(1))
    return value if found.group(2) == "nats" else value * 0.693147


def number(value):
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells_of(arguments, ranks, flags, columns):
    output = run(arguments, ranks, flags)
    cells = []
    for column in columns:
        if column == "bytes on the wire":
            cells.append(number(wire_bytes(arguments, ranks, flags)))
        elif column == "loss falls":
            losses = [float(line.split()[1]) for line in output.splitlines() if re.match(r" +[0-9]+ +[0-9.]+$", line)]
            cells.append(" ".join(f"{loss:.2f}" for loss in losses[::4]))
        elif column == "held-out nats":
            cells.append(f"{held_out(output):.3f}")
        elif column == "samples/s":
            cells.append(number(float(re.search(r"([0-9.]+) samples/s", output).group(1))))
        elif column == "ms a step":
            cells.append(re.search(r"([0-9.]+) ms a step", output).group(1))
        elif column == "pause ms":
            cells.append(", ".join(re.findall(r"go on after ([0-9.]+) ms", output)))
        elif column == "lost steps":
            cells.append(str(sum(int(count) for count in re.findall(r"lost steps ([0-9]+)", output))))
        else:
            values = fact(output, column)
            cells.append("" if values is None else number(values[0]) if len(set(values)) == 1 else
                         ", ".join(number(value) for value in values))
    return cells


def tables():
    """For each mode: columns, and rows of (name, ranks, flags)."""
    zero = {"--mode": "zero", "--accumulate": 1, "--depth": 12}
    paced = {"--mode": "pipeline", "--pace-ms": 10, "--steps": 4, "--accumulate": 8, "--depth": 4}
    server = {**PLAIN, "--mode": "server", "--pace-ms": 4, "--slow": "3:3", "--batch": 15}
    local = {**LOCAL, "--mode": "local"}
    grid = [column for axis in ("data", "pipeline") for column in (f"{SENT}, {axis} axis", f"by the formula, {axis}")]
    return {
        "layers": ([SENT, "by the formula", "parameters held", "held-out nats"],
                   [("one process", 1, ONE), ("2 ranks", 2, {"--mode": "layers"}), ("4 ranks", 4, {"--mode": "layers"})]),
        "pipeline": ([*IDLE, ALIVE, SENT, "by the formula", "held-out nats"],
                     [("GPipe", 4, {**paced, "--schedule": "gpipe"}), ("1F1B", 4, {**paced}),
                      ("1F1B, 2 chunks", 4, {**paced, "--chunks": 2, "--pace-ms": 5}),
                      ("PipeDream", 4, {**paced, "--schedule": "pipedream", "--report-every": 4})]),
        "tensor": ([SENT, "by the formula", "bytes on the wire", "parameters held", "held-out nats"],
                   [("one process", 1, ONE), ("2 ranks", 2, {"--mode": "tensor"}), ("4 ranks", 4, {"--mode": "tensor"}),
                    ("4 ranks, sequence", 4, {"--mode": "tensor", "--sequence": True})]),
        "grid": ([*grid, f"{SENT}, tensor axis", "held-out nats"],
                 [("one process", 1, ONE), ("2 x 2 x 2", 8, {"--mode": "grid"})]),
        "zero": ([SENT, "by the formula", "bytes on the wire", HELD.format("parameters"), HELD.format("gradients"),
                  HELD.format("optimizer state"), "held-out nats"],
                 [("one process", 1, {**ONE, "--accumulate": 1, "--depth": 12})] +
                 [(name, 4, {**zero, **flags}) for name, flags in
                  (("stage 1", {"--zero-stage": 1}), ("stage 2", {"--zero-stage": 2}), ("stage 3", {}),
                   ("stage 3, offload", {"--offload": tempfile.gettempdir()}))]),
        "local": ([SENT, "by the formula", "bytes on the wire", "samples/s", "held-out nats"],
                  [("data parallel", 2, LOCAL)] + [(f"H = {period}", 2, {**local, "--period": period}) for period in (1, 4, 16)] +
                  [("DiLoCo, H = 16", 2, {**local, "--period": 16, **DILOCO})]),
        "server": (["gradients", "steps ahead at most", "samples/s", "sent bytes a gradient", "by the formula", "held-out nats"],
                   [("data parallel", 3, {**PLAIN, "--batch": 15})] +
                   [(name, 4, {**server, "--staleness": bound}) for name, bound in
                    (("synchronous", 0), ("staleness at most 4", 4), ("asynchronous", -1))]),
        "expert": ([f"{SENT}, rows", "by the formula, if even", f"{SENT}, gradients", "parameters held", "held-out nats"],
                   [("one process", 1, {**ONE, "--experts": 4}), ("4 ranks", 4, {"--mode": "expert", "--experts": 4})]),
        "elastic": (["lost steps", "pause ms", "loss falls", "held-out nats"],
                    [("one process", 1, {**ONE, **LONG, "--accumulate": 1}),
                     ("3 ranks, one killed every 40 steps", 3,
                      {**LONG, "--accumulate": 1, "--mode": "elastic", "--kill": "1:40"})]),
        "fusion": (["ms a step", "cycles a step", SENT, "by the formula"],
                   [(f"buckets of {size}", 2, {**FUSION, "--bucket-bytes": size, "--first-bucket-bytes": size})
                    for size in ("0", "256KiB", "25MiB")] +
                   [(f"cycles of {cycle} ms", 2, {**FUSION, "--mode": "fusion", "--fusion-ms": cycle})
                    for cycle in (0, 1, 5, 20)]),
    }


def drawings():
    """For each mode: a run that can be read as a drawing."""
    one = {"--accumulate": 1, "--depth": 2}
    paced = {"--pace-ms": 4}
    return {
        "layers": (4, {"--accumulate": 2, **paced}), "pipeline": (4, {"--accumulate": 8, "--pace-ms": 10}), "tensor": (2, one),
        "grid": (8, {"--depth": 2}), "zero": (2, {**one, "--width": 128}),
        "local": (3, {**one, **paced, "--batch": 15, "--period": 4, "--slow": "2:2", "--drawing-steps": 8}),
        "server": (4, {**one, **paced, "--batch": 15, "--staleness": 2, "--slow": "3:3", "--steps": 40, "--drawing-steps": 8}),
        "expert": (4, {**one, "--experts": 4}),
        "elastic": (3, {"--accumulate": 1, "--steps": 200, "--kill": "1:40"}),
        "fusion": (2, {**FUSION, "--fusion-ms": 5}),
    }


def draw(arguments, mode):
    ranks, flags = drawings()[mode]
    run(arguments, ranks, {"--mode": mode, **flags, "--drawing": arguments.out / f"{mode}.svg"})
    if mode == "pipeline":
        for schedule, more in (("gpipe", {}), ("1f1b", {"--chunks": 2, "--pace-ms": 5}), ("pipedream", {"--report-every": 20})):
            path = arguments.out / f"pipeline_{schedule}{'_chunks' if '--chunks' in more else ''}.svg"
            run(arguments, ranks, {"--mode": mode, **flags, "--schedule": schedule, **more, "--drawing": path})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for a table and a drawing of each mode")
    parser.add_argument("--modes", default=",".join(tables()), help="names, with commas")
    parser.add_argument("--minutes", type=float, default=10, help="time for all; a row that has begun is finished")
    parser.add_argument("--first", action="store_true",
                        help="ranks run before all other programs (nice -20): needs root")
    parser.add_argument("--no-drawings", dest="drawings", action="store_false")
    parser.add_argument("--data", type=pathlib.Path, nargs="+", default=sorted(HERE.parent.glob("docs/*.md")))
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    for mode in modes:
        if mode not in tables():
            parser.error(f"--modes: there is no mode {mode}, only {', '.join(tables())}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    count = sum(len(tables()[mode][1]) for mode in modes)
    done, left_out = 0, []
    for mode in modes:
        columns, rows = tables()[mode]
        lines = ["| " + " | ".join([mode, *columns]) + " |", "|---" * (len(columns) + 1) + "|"]
        print("\n".join(lines), flush=True)
        for name, ranks, flags in rows:
            passed = time.monotonic() - begin
            done += 1
            if passed > 60 * arguments.minutes:
                left_out.append(f"{mode}, {name}")
                continue
            print(f"[{done}/{count}, {passed:.0f} s] {mode}, {name}", file=sys.stderr, flush=True)
            lines.append("| " + " | ".join([name, *cells_of(arguments, ranks, flags, columns)]) + " |")
            print(lines[-1], flush=True)
        (arguments.out / f"{mode}.md").write_text("\n".join(lines) + "\n")
        if arguments.drawings and time.monotonic() - begin < 60 * arguments.minutes:
            draw(arguments, mode)
    print(f"written: {arguments.out}/*.md and *.svg")
    if left_out:
        sys.exit(f"no time was left for: {'; '.join(left_out)}. Set --minutes")


if __name__ == "__main__":
    main()
