#!/usr/bin/env python3
"""Step time and hidden communication of the trainer over bucket sizes and links, as table, JSON and plot.

Two ranks train the same transformer on the same batches. Links: `memory` (both on this machine), `veth` (each rank in
its own network namespace, as if on another host: TCP), and a number: veth, limited to that many Mbit/s by a token
bucket. Namespaces need root; without root these links are skipped, with a line of output. If python3-torch is
installed, PyTorch's DistributedDataParallel over Gloo is measured too. Uses only Python's standard library.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KIB = 1024
BUCKETS = [0, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB, 16384 * KIB, 65536 * KIB]
# 1.8 million parameters, 7.2 MB of gradients.
MODEL = {"width": 192, "depth": 4, "heads": 4, "context": 64, "batch": 16}
LAUNCHER_PREFIXES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "PMI_", "PMIX_", "MPI_", "SLURM_",
                     "OMPI_", "TUTTI_", "GLOO_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
ADDRESSES = ("198.18.0.1", "198.18.0.2")
LIMIT_S = 600
# The scheduler weighs each session as a group, so the group gets the weight. Real-time priority does not work here: a
# thread that reduces gradients must interrupt the thread that computes.
GO_FIRST = ["sh", "-c", "echo -20 > /proc/self/autogroup; exec nice -n -20 \"$@\"", "sh"]


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


@contextlib.contextmanager
def namespaces(link):
    """Joins two network namespaces by a link of `link` Mbit/s (0: no limit). Yields their names."""
    names = [f"tutti{os.getpid()}{side}" for side in "ab"]
    made = []
    try:
        for name in names:
            run("ip", "netns", "add", name)
            made.append(name)
        run("ip", "link", "add", "va", "netns", names[0], "type", "veth", "peer", "name", "vb", "netns", names[1])
        for name, device, address in zip(names, ("va", "vb"), ADDRESSES):
            run("ip", "-n", name, "addr", "add", address + "/24", "dev", device)
            for up in ("lo", device):
                run("ip", "-n", name, "link", "set", up, "up")
            if link:
                run("tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{link}mbit", "burst", "256kb",
                    "latency", "50ms")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def start_ranks(words, link, folder, first):
    """Starts both ranks. `words`: the command of one rank."""
    id_path = str(pathlib.Path(folder) / "id")
    pathlib.Path(id_path).unlink(missing_ok=True)
    processes = []
    for rank in range(2):
        prefix = GO_FIRST if first else []
        environment = {**ENVIRONMENT, "RANK": str(rank), "WORLD_SIZE": "2", "TUTTI_ID_FILE": id_path,
                       "MASTER_ADDR": ADDRESSES[0] if link else "127.0.0.1", "MASTER_PORT": "29511", "OMP_NUM_THREADS": "1"}
        if link:
            environment["TUTTI_HOSTID"] = f"host{rank}"
            environment["GLOO_SOCKET_IFNAME"] = ("va", "vb")[rank]
            prefix = ["ip", "netns", "exec", link[rank], *prefix]
        processes.append(subprocess.Popen([*prefix, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True, start_new_session=True))
    return processes


def measure(words, link, first):
    """Runs two ranks. Returns rank 0's output. Exits if a rank fails."""
    with tempfile.TemporaryDirectory() as folder:
        processes = start_ranks(words, link, folder, first)
        try:
            results = [process.communicate(timeout=LIMIT_S) for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
    if any(process.returncode for process in processes):
        sys.exit(f"{' '.join(words)}\n" + "".join(output + errors for output, errors in results))
    return results[0][0]


def trainer_words(arguments, extra):
    words = [str(arguments.trainer), "--device", "host", "--steps", str(arguments.steps),
             "--report-every", str(arguments.steps // 4), "--evaluate-every", str(arguments.steps), "--sample", "0"]
    for name, value in MODEL.items():
        words += [f"--{name}", str(value)]
    return [*words, *extra, "--data", *map(str, arguments.data)]


def read_steps(output):
    """Milliseconds a step and percent hidden: medians of the progress lines after the first."""
    lines = [line.split() for line in output.splitlines() if re.match(r" +\d+ ", line)]
    times = [1e3 * MODEL["batch"] / float(line[-2]) for line in lines[1:]]
    return statistics.median(times), statistics.median(float(line[-1]) for line in lines[1:])


def measure_rows(arguments, link, names, python):
    """One row for each bucket size and configuration on one link, interleaved over rounds."""
    cases = []
    for bucket in arguments.buckets:
        flags = ["--bucket-bytes", str(bucket), "--first-bucket-bytes", str(bucket)]
        cases.append(("tutti", bucket, trainer_words(arguments, flags)))
    cases.append(("tutti", None, trainer_words(arguments, [])))
    cases += [(f"tutti, {name}", None, trainer_words(arguments, ["--compression", name])) for name in arguments.compressions]
    if python is not None:
        model = [word for name, value in MODEL.items() for word in (f"--{name}", str(value))]
        words = [python, str(HERE / "ddp.py"), "--steps", str(arguments.steps), *model]
        cases += [("PyTorch DDP, Gloo", bucket, [*words, "--bucket-bytes", str(bucket)]) for bucket in arguments.buckets]
    results = {}
    for _ in range(arguments.rounds):
        for library, bucket, words in cases:
            output = measure(words, names, arguments.first)
            results.setdefault((library, bucket), []).append(read_steps(output))
    rows = []
    for (library, bucket), found in results.items():
        milliseconds, hidden = (statistics.median(column) for column in zip(*found))
        rows.append({"library": library, "link": link, "bucket_bytes": bucket, "step_ms": round(milliseconds, 2),
                     "hidden_percent": round(hidden, 1) if library.startswith("tutti") else None})
        print(line_of(rows[-1]), flush=True)
    return rows


def size_text(count):
    if count is None:
        return "1, 25 MiB"
    if count == 0:
        return "per tensor"
    return f"{count // KIB} KiB" if count < KIB * KIB else f"{count // KIB // KIB} MiB"


def link_text(link):
    return f"{link} Mbit/s" if str(link).isdigit() else link


def line_of(row):
    hidden = "" if row["hidden_percent"] is None else f"{row['hidden_percent']:8.0f}"
    words = f"{row['library']:<20} {link_text(row['link']):>12} {size_text(row['bucket_bytes']):>12}"
    return f"{words} {row['step_ms']:12.1f} {hidden:>8}"


def plot(rows):
    """Plots step time over bucket size, one line for each library and link. Both axes are logarithmic."""
    width, height, left, top = 640, 360, 60, 20
    rows = [row for row in rows if row["bucket_bytes"] is not None]
    steps = [row["step_ms"] for row in rows]
    low, high = math.log10(min(steps)) - 0.05, math.log10(max(steps)) + 0.05
    sizes = sorted({row["bucket_bytes"] for row in rows})
    x_of = {size: left + (width - left - 200) * index / max(len(sizes) - 1, 1) for index, size in enumerate(sizes)}
    y_of = lambda ms: top + (height - top - 40) * (high - math.log10(ms)) / (high - low)
    text = '<text x="{:.0f}" y="{:.0f}" font-size="11" text-anchor="{}">{}</text>'.format
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           text(left, 14, "start", "milliseconds a step over bucket size")]
    out += [text(x_of[size], height - 20, "middle", size_text(size).replace(" ", "")) for size in sizes]
    for power in range(math.floor(low), math.ceil(high) + 1):
        for value in (10.0**power, 2 * 10.0**power, 5 * 10.0**power):
            if low <= math.log10(value) <= high:
                out.append(text(left - 6, y_of(value) + 4, "end", f"{value:g}"))
                y = f"{y_of(value):.1f}"
                out.append(f'<line x1="{left}" x2="{width - 200}" y1="{y}" y2="{y}" stroke="#ddd"/>')
    colors = ["#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#7f7f7f", "#bcbd22"]
    groups = sorted({(row["library"], str(row["link"])) for row in rows})
    for (library, link), color in zip(groups, colors):
        line = sorted((row["bucket_bytes"], row["step_ms"]) for row in rows
                      if (row["library"], str(row["link"])) == (library, link))
        dash = "" if library == "tutti" else ' stroke-dasharray="5 3"'
        points = " ".join(f"{x_of[size]:.1f},{y_of(ms):.1f}" for size, ms in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        label = text(x_of[line[-1][0]] + 8, y_of(line[-1][1]) + 4, "start", f"{library}, {link_text(link)}")
        out.append(f'<g fill="{color}">{label}</g>')
    return "\n".join(out + ["</svg>", ""])


def find_torch():
    """A Python with PyTorch: this one, else the distribution's, else None."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for trainer.json, trainer.txt, trainer.svg")
    parser.add_argument("--steps", type=int, default=12, help="steps of each run, 8 or more")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each row; the row shows their median")
    parser.add_argument("--links", default="memory,veth,1000,100", help="memory, veth, or Mbit/s")
    parser.add_argument("--buckets", type=lambda text: [int(word) for word in text.split(",")], default=BUCKETS,
                        help="bytes; 0: one bucket for each tensor")
    parser.add_argument("--compressions", type=lambda text: text.split(",") if text else [],
                        default=["bf16", "topk", "powersgd"])
    parser.add_argument("--first", action="store_true",
                        help="ranks run before all other programs (nice -20): needs root")
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    parser.add_argument("--data", type=pathlib.Path, nargs="+", default=sorted(HERE.parent.glob("docs/*.md")))
    arguments = parser.parse_args()
    if arguments.steps < 8:
        parser.error("--steps: 8 or more")
    return arguments


def main():
    arguments = parse_arguments()
    python = find_torch() if arguments.torch else None
    if arguments.torch and python is None:
        print("without PyTorch (python3-torch is not installed)")
    print(f"{'library':<20} {'link':>12} {'bucket':>12} {'ms a step':>12} {'hidden %':>8}")
    rows = []
    for link in arguments.links.split(","):
        if link == "memory":
            rows += measure_rows(arguments, link, None, python)
        elif os.geteuid() != 0:
            print(f"{link_text(link)}: skipped, network namespaces need root")
        else:
            with namespaces(0 if link == "veth" else int(link)) as names:
                rows += measure_rows(arguments, link, names, python)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "trainer.json").write_text(json.dumps(rows, indent=1) + "\n")
    (arguments.out / "trainer.txt").write_text("".join(line_of(row) + "\n" for row in rows))
    (arguments.out / "trainer.svg").write_text(plot(rows))
    print(f"written: {arguments.out}/trainer.json, trainer.txt, trainer.svg")


if __name__ == "__main__":
    main()
