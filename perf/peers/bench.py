#!/usr/bin/env python3
"""Compares tutti with the installed peers: same method, same machine, interleaved.

For every (collective, size) the libraries take turns for several rounds. A library's figure is the median over rounds
of the median over batches of the time per call, where the cores stayed at one placement. Writes peers.json (rows),
limits.json (limits), peers.txt (tables) and peers.svg (plot). Uses only Python's standard library.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import time

import jobs
import limits
import plot
import report

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "ping_pong",
               "barrier"]
SIZES = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20]
QUICK_COLLECTIVES = ["all_reduce", "all_gather", "broadcast", "ping_pong"]
QUICK_SIZES = [8, 4 << 10, 256 << 10, 16 << 20]
OUTPUTS = ["peers.json", "limits.json", "peers.txt", "peers.svg"]
# Without mpich-gather: MPICH itself chooses release-gather where it helps. Asking for it gave the same figures.
DEFAULT_LIBRARIES = {"shm": ["tutti", "openmpi", "openmpi-ucx", "openmpi-ucc", "openmpi-sm", "mpich", "impi", "mpich5",
                             "openmpi5", "openmpi5-xhc", "gloo", "gloo-bcube"],
                     "tcp": ["tutti", "openmpi", "openmpi-ucc", "mpich", "impi", "openmpi5", "gloo"]}
# With more ranks than cores, a library with longer calls gets one turn a cell. This bounds a full run.
SLOW_CALL_US = 20e3
# The host of a virtual machine moves its cores, often many times a second. A line that takes longer than this times
# another one was measured elsewhere.
PLACEMENT_RATIO = 1.5
LEAST_BATCHES = 5  # of a library at one placement
PLACEMENTS_DIFFER = 10  # far cores take at most so many times as long as threads of one core
# A contender is at most CONTENDER_RATIO slower than the fastest. Turns agree if they differ by at most AGREEMENT_RATIO.
CONTENDER_RATIO = 1.5
AGREEMENT_RATIO = 1.1
MOST_ROUNDS = 4  # times the wanted rounds, if turns do not agree
FAILURES_ALLOWED = 2  # of one library at one rank count; then the library is left out


def parse_bytes(text):
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text[:-1] if scale > 1 else text) * scale


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.split("\n")[0])
    words = lambda text: [word for word in text.split(",") if word]
    parser.add_argument("--quick", action="store_true", help="fewer sizes, collectives and rounds: under a minute")
    parser.add_argument("--collectives", type=words, help="comma separated, of " + ",".join(COLLECTIVES))
    parser.add_argument("--sizes", type=lambda text: [parse_bytes(word) for word in words(text)], help="e.g. 8,4K,16M")
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in words(text)],
                        help="default 2,4,8 (quick: 2)")
    parser.add_argument("--libraries", type=words, help="names of configurations; 'all' for every one known")
    parser.add_argument("--types", type=words, default=["float32"], help="float32,float16,bfloat16 (peers: float32)")
    parser.add_argument("--transport", choices=sorted(jobs.LAUNCHES), default="shm")
    parser.add_argument("--memory", choices=["malloc", "library", "preloaded"], default="malloc",
                        help="library: the library's own allocator (symmetric heap, MPI_Alloc_mem); preloaded: malloc, "
                             "behind libtutti_malloc.so and Intel MPI's own heap")
    parser.add_argument("--hot", action="store_true", help="the same buffers every call: caches make this faster")
    parser.add_argument("--rounds", type=int, help="turns of every library per cell (default 3, quick 1)")
    parser.add_argument("--realtime", action="store_true",
                        help="for a busy machine, needs root: ranks run under chrt -r 1")
    parser.add_argument("--no-limits", action="store_true", help="do not measure floors, overheads and CPU times")
    parser.add_argument("--only-limits", action="store_true", help="measure only floors, overheads and CPU times")
    parser.add_argument("--drivers", default="build/perf/peers", help="folder of the drivers")
    parser.add_argument("--before", metavar="DRIVERS",
                        help="compare with the tutti of another build (its perf/peers), not with other libraries")
    parser.add_argument("--out", default="build/bench")
    options = parser.parse_args(argv)
    options.collectives = options.collectives or (QUICK_COLLECTIVES if options.quick else COLLECTIVES)
    options.sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    options.ranks = options.ranks or ([2] if options.quick else [2, 4, 8])
    options.rounds = options.rounds or (1 if options.quick else 3)
    unknown = set(options.collectives) - set(COLLECTIVES)
    if unknown:
        parser.error("unknown collective: " + ", ".join(sorted(unknown)))
    options.launches = list(jobs.LAUNCHES[options.transport])
    if options.memory == "preloaded":
        if options.transport != "shm":
            parser.error("--memory preloaded is for --transport shm")
        preloaded = {launch.name: launch for launch in (jobs.tutti_preloaded(options.drivers),
                                                        jobs.intel_preloaded(options.drivers))}
        options.launches = [preloaded.get(launch.name, launch) for launch in options.launches]
    if options.before:
        options.launches.append(jobs.tutti_of(options.before, options.transport))
        options.libraries = options.libraries or ["tutti", "before"]
    known = [launch.name for launch in options.launches]
    options.libraries = options.libraries or DEFAULT_LIBRARIES[options.transport]
    options.libraries = known if options.libraries == ["all"] else options.libraries
    if set(options.libraries) - set(known):
        parser.error(f"libraries over {options.transport} are: {', '.join(known)}")
    return options


class Field:
    """The jobs of one rank count. Restarts a failed job until FAILURES_ALLOWED is reached."""

    def __init__(self, launches, ranks, options, log):
        self.options = options
        self.ranks = ranks
        self.log = log
        self.failures = {}
        self.jobs = {}
        self.turns = 0
        for launch in launches:
            reason = launch.missing(options.drivers)
            if reason:
                log(f"skipped {launch.name}: {reason}")
            else:
                self.failures[launch.name] = 0
                self._start(launch)

    def _start(self, launch):
        try:
            self.jobs[launch.name] = jobs.Job(launch, self.ranks, self.options.drivers, self.options.realtime)
        except jobs.JobFailed as failure:
            self.log(f"skipped {launch.name} with {self.ranks} ranks: {failure}")
            self.failures[launch.name] = FAILURES_ALLOWED

    def ask(self, name, verb, **words):
        """The answer of one library. None: it does not support the request, failed, or is left out."""
        job = self.jobs.get(name)
        if job is None:
            return None
        try:
            answer = job.request(verb, **words)
        except jobs.JobFailed as failure:
            self.log(f"{failure} (in {verb} {words})")
            job.close()
            del self.jobs[name]
            self.failures[name] += 1
            if self.failures[name] < FAILURES_ALLOWED:
                self._start(job.launch)
            return None
        return None if "error" in answer else answer

    def close(self):
        for job in self.jobs.values():
            job.close()


def take_turn(field, collective, type_name, size, check, done, options):
    """Measures every library once, each time another one first. Returns {library: answer}. `done`: the answers of
    earlier turns."""
    oversubscribed = field.ranks > len(os.sched_getaffinity(0))
    answers = {}
    names = list(field.jobs)
    first = field.turns % max(len(names), 1)
    field.turns += 1
    for name in names[first:] + names[:first]:
        if name == "gloo-bcube" and collective != "all_reduce":
            continue  # only its all_reduce has another algorithm
        if oversubscribed and any(turn.get(name, {"median_us": 0})["median_us"] > SLOW_CALL_US for turn in done):
            continue
        answer = field.ask(name, "measure", limit_s=30, collective=collective, type=type_name, bytes=size,
                           memory="library" if options.memory == "library" else "malloc", slots=int(options.hot),
                           batches=7 if options.quick else 11, batch_us=2000 if options.quick else 3000,
                           budget_us=3e5 if oversubscribed else 5e5 if options.quick else 1.2e6, check=int(check))
        if answer:
            if isinstance(answer["batches"], int):  # a driver from before batches had lines
                answer["batches"] = [[answer["median_us"], 0, 0]] * answer["batches"]
            answers[name] = answer
            if answer["wrong"]:
                field.log(f"{name}: {collective} {size} B {type_name}: {answer['wrong']} wrong elements")
    return answers


def placements_of(lines):
    """{nanoseconds of a line: placement}. Lines that differ by less than PLACEMENT_RATIO are of one placement."""
    groups = []
    for line in sorted(lines):
        if not groups or line > PLACEMENT_RATIO * groups[-1][0]:
            groups.append([])
        groups[-1].append(line)
    return {line: report.placement_of(statistics.median(group)) for group in groups for line in group}


def batches_by_placement(turns):
    """{placement: {library: [microseconds of each batch, turn by turn]}}, of the placements at which every library that
    may be the fastest has batches enough; and {placement: nanoseconds of lines}. Batches during which the host moved
    the cores do not count. Without such a placement, and where ranks share cores: all batches, at None."""
    everything, steady, lines = {}, {}, {}
    is_steady = lambda before, after: min(before, after) > 0 and max(before, after) <= PLACEMENT_RATIO * min(before, after)
    batches = [batch for turn in turns for answer in turn.values() for batch in answer["batches"]]
    placements = placements_of(after for _, before, after in batches if is_steady(before, after))
    for turn in turns:
        for name, answer in turn.items():
            everything.setdefault(name, []).append([us for us, _, _ in answer["batches"]])
            by_placement = {}
            for us, before, after in answer["batches"]:
                if is_steady(before, after):
                    by_placement.setdefault(placements[after], []).append(us)
                    lines.setdefault(placements[after], []).append(after)
            for placement, own in by_placement.items():
                steady.setdefault(placement, {}).setdefault(name, []).append(own)
    enough = {placement: own for placement, own in steady.items() if is_complete(own, everything)}
    return (enough, lines) if enough else ({None: everything}, {})


def is_complete(own, everything):
    """Whether a library with fewer than LEAST_BATCHES at a placement cannot be the fastest there. `own`: its batches of
    each library; `everything`: those of all placements."""
    flat = {name: sum(turns, []) for name, turns in own.items()}
    known = [statistics.median(batches) for batches in flat.values() if len(batches) >= LEAST_BATCHES]
    if not known:
        return False
    few = [name for name in everything if len(flat.get(name, [])) < LEAST_BATCHES]
    return all(min(flat[name]) > CONTENDER_RATIO * min(known) if name in flat
               else min(sum(everything[name], [])) > PLACEMENTS_DIFFER * min(known) for name in few)


def agree(times):
    """Whether each of the fastest libraries took about equally long in all its turns, undisturbed by other work.
    `times`: {library: [batches of each turn]}."""
    medians = {name: [statistics.median(own) for own in turns] for name, turns in times.items()}
    fastest = min((statistics.median(own) for own in medians.values()), default=0)
    return all(max(own) <= AGREEMENT_RATIO * min(own) for own in medians.values()
               if statistics.median(own) <= CONTENDER_RATIO * fastest)


def measure_cell(field, collective, type_name, size, options):
    """Measures one (collective, type, size). A cache line is measured between batches, and tells where the host has
    placed the cores; each placement has figures of its own. If the host moves them all the time, or if turns disagree,
    there are up to four times the rounds. Returns [{...}], one for each library and placement."""
    oversubscribed = field.ranks > len(os.sched_getaffinity(0))
    wanted = min(options.rounds, 2) if oversubscribed else options.rounds
    turns = []
    while len(turns) < MOST_ROUNDS * wanted:
        turns.append(take_turn(field, collective, type_name, size, not turns, turns, options))
        by_placement, _ = batches_by_placement(turns)
        is_placed = oversubscribed or None not in by_placement
        if len(turns) >= wanted and is_placed and all(map(agree, by_placement.values())):
            break
    by_placement, lines = batches_by_placement(turns)
    return [{"configuration": name, "placement": placement,
             "microseconds": statistics.median(statistics.median(own) for own in batches),
             "best_microseconds": min(map(min, batches)),
             "wrong_elements": sum(turn[name]["wrong"] for turn in turns if name in turn),
             "cache_line_microseconds": statistics.median(lines[placement]) / 1e3 if placement in lines else None}
            for placement, times in by_placement.items() for name, batches in times.items()]


def cells_of(ranks, options):
    """The cells of one rank count. With more ranks than cores, only all_reduce has every size."""
    oversubscribed = ranks > len(os.sched_getaffinity(0))
    for type_name in options.types:
        for collective in options.collectives:
            if collective == "ping_pong" and ranks != 2:
                continue
            sizes = [0] if collective == "barrier" else options.sizes
            if oversubscribed and collective != "all_reduce":
                sizes = [size for size in sizes if size in (0, 8, 4 << 10, 256 << 10, 16 << 20)]
            for size in sizes:
                yield collective, type_name, size


def compare(launches, ranks, options, log, progress):
    """Measures all cells of one rank count. Returns rows."""
    rows = []
    field = Field(launches, ranks, options, log)
    with contextlib.closing(field):
        cells = list(cells_of(ranks, options))
        for number, (collective, type_name, size) in enumerate(cells):
            progress(f"{ranks} ranks {collective} {type_name} {report.size_text(size)} ({number + 1}/{len(cells)})")
            versions = {name: (job.library, job.version, job.launch.note) for name, job in field.jobs.items()}
            for figures in measure_cell(field, collective, type_name, size, options):
                library, version, note = versions[figures["configuration"]]
                rows.append({"library": library, "version": version, "note": note,
                             "transport": "tcp" if library == "gloo" else options.transport, "memory": options.memory, "hot": options.hot,
                             "collective": collective, "type": type_name, "ranks": ranks, "bytes": size, **figures})
    return rows


def write_outputs(folder, rows, facts, notes, machine):
    """Writes the four files. Returns the text report."""
    text = report.text(rows, facts, notes, machine)
    contents = [json.dumps(rows, indent=1), json.dumps(facts, indent=1), text, plot.svg(rows, machine)]
    for name, content in zip(OUTPUTS, contents):
        with open(os.path.join(folder, name), "w") as out:
            out.write(content + "\n")
    return text


def exit_status(options, rows, facts, log):
    """0: everything that was asked for was measured, and all results were right."""
    without = [ranks for ranks in ([] if options.only_limits else options.ranks)
               if not any(row["ranks"] == ranks and row["configuration"] == "tutti" for row in rows)]
    if "tutti" in options.libraries and without:
        log("tutti has no figures with " + " and ".join(map(str, without)) + " ranks")
        return 1
    if not rows and not facts:
        log("nothing was measured")
        return 1
    return 1 if any(row["wrong_elements"] for row in rows) else 0


def main(argv):
    options = parse_arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # raises an exception, so that the jobs are closed
    os.makedirs(options.out, exist_ok=True)
    started = time.monotonic()
    notes = []
    to_terminal = sys.stderr.isatty()

    def progress(text):
        if to_terminal:
            print(f"\r\033[K[{time.monotonic() - started:4.0f} s] {text}", end="", file=sys.stderr, flush=True)

    def log(text):
        notes.append(text)
        print(("\r\033[K" if to_terminal else "") + text, file=sys.stderr, flush=True)

    launches = [launch for launch in options.launches if launch.name in options.libraries]
    machine = report.machine_text(options.realtime)
    rows, facts = [], {}
    if not options.no_limits:
        facts = (limits.measure_tcp if options.transport == "tcp" else limits.measure)(options, log, progress)
    for ranks in [] if options.only_limits else options.ranks:
        rows += compare(launches, ranks, options, log, progress)
        write_outputs(options.out, rows, facts, notes, machine)  # now, so that a stopped run leaves its rows
    progress("")
    text = write_outputs(options.out, rows, facts, notes, machine)
    print(text)
    print(f"Written to {options.out} in {time.monotonic() - started:.0f} s: " + ", ".join(OUTPUTS))
    return exit_status(options, rows, facts, log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
