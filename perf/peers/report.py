"""Turns rows into text tables: microseconds per library, the ratio of the fastest peer to tutti, geometric means."""

import math
import os
import platform

SUBJECT = "tutti"
# What a line takes at most, in nanoseconds, between threads of one core (EPYC: 20 to 33) and between cores that share a
# cache (50 to 130). Far cores need 200 and more.
PLACEMENTS = {"one core": 42, "near": 150}


def placement_of(line_ns):
    return next((name for name, most in PLACEMENTS.items() if line_ns <= most), "far")


def size_text(size):
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def time_text(us):
    if us is None:
        return "-"
    return f"{us:.3f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def ratio_text(ratio):
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def geometric_mean(values):
    values = [value for value in values if value]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def table(header, lines):
    """A table that is readable as plain text and as markdown."""
    widths = [max(len(str(row[c])) for row in [header] + lines) for c in range(len(header))]
    form = lambda row: "| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |"
    return "\n".join([form(header), "|" + "|".join("-" * (width + 2) for width in widths) + "|"] + [form(l) for l in lines])


def machine_text(realtime):
    model = "unknown CPU"
    try:
        with open("/proc/cpuinfo") as info:
            model = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (f"{model}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}, load "
            f"{os.getloadavg()[0]:.1f}" + (", ranks under chrt -r 1" if realtime else ""))


class Cells:
    """Rows of one (ranks, type). A cell is a collective, bytes and placement of the cores."""

    def __init__(self, rows, ranks, type_name):
        self.rows = [r for r in rows if r["ranks"] == ranks and r["type"] == type_name]
        self.collectives = list(dict.fromkeys(r["collective"] for r in self.rows))
        self.configurations = list(dict.fromkeys(r["configuration"] for r in self.rows))
        cell = lambda r: (r["collective"], r["bytes"], r["placement"])
        self.line_us = {cell(r): r["cache_line_microseconds"] for r in self.rows}
        self.by_key = {(cell(r), r["configuration"]): r["microseconds"] for r in self.rows}

    def cells(self, collective=None, size=None):
        """In the order of collectives and sizes."""
        order = lambda cell: (self.collectives.index(cell[0]), cell[1])
        return [cell for cell in sorted(self.line_us, key=order)
                if collective in (None, cell[0]) and size in (None, cell[1])]

    def time(self, cell, configuration):
        return self.by_key.get((cell, configuration))

    def fastest_peer(self, cell):
        peers = [(us, c) for (k, c), us in self.by_key.items() if k == cell and c != SUBJECT]
        return min(peers, default=(None, None))

    def ratio(self, cell, against=None):
        """Time of a peer (default: the fastest at this cell) over tutti's."""
        own = self.time(cell, SUBJECT)
        peer = self.time(cell, against) if against else self.fastest_peer(cell)[0]
        return peer / own if own and peer else None

    def mean(self, cells, against=None):
        return geometric_mean([self.ratio(cell, against) for cell in cells])


def times_table(cells, collective):
    own = cells.cells(collective)
    names = [c for c in cells.configurations if any(cells.time(cell, c) for cell in own)]
    has_subject = SUBJECT in names
    lines = []
    for cell in own:
        line = [size_text(cell[1])] + [time_text(cells.time(cell, name)) for name in names]
        if has_subject:
            line += [cells.fastest_peer(cell)[1] or "-", ratio_text(cells.ratio(cell))]
        line_us = cells.line_us[cell]
        lines.append(line + [f"{cell[2]}, {line_us * 1e3:.0f}" if line_us else "-"])
    header = [f"{collective}, us"] + names + (["fastest peer", "peer/tutti"] if has_subject else [])
    return table(header + ["cores, ns a line"], lines)


def ratios_table(cells):
    """Rows are sizes, columns collectives: fastest peer over tutti, in the mean of the placements."""
    lines = []
    for size in sorted({cell[1] for cell in cells.cells()}):
        if size:
            lines.append([size_text(size)] + [ratio_text(cells.mean(cells.cells(c, size))) for c in cells.collectives])
    means = [cells.mean(cells.cells(collective)) for collective in cells.collectives]
    lines.append(["geometric mean"] + [ratio_text(mean) for mean in means])
    return table(["fastest peer / tutti"] + cells.collectives, lines)


def summary(cells, ranks):
    """The comparison in one sentence, then that of each placement, with the cells where a peer is faster."""
    every = [cell for cell in cells.cells() if cells.ratio(cell)]
    out = [f"{ranks} ranks: geometric mean over {len(every)} cells {cells.mean(every):.2f}; a peer is faster in "
           f"{sum(cells.ratio(cell) < 1 for cell in every)} of them"] if every else []
    for placement in dict.fromkeys(cell[2] for cell in cells.cells()):
        part = [cell for cell in cells.cells() if cell[2] == placement and cells.ratio(cell)]
        if not part:
            continue
        behind = [f"{cell[0]} {size_text(cell[1])} ({cells.ratio(cell):.2f})" for cell in part if cells.ratio(cell) < 1]
        out.append(f"{ranks} ranks, cores {placement or 'of any placement'}: geometric mean over {len(part)} cells "
                   f"{cells.mean(part):.2f}; a peer is faster in {len(behind)} of them"
                   + (": " + ", ".join(behind) if behind else ""))
    gloo = cells.mean(cells.cells("all_reduce"), "gloo")
    if gloo:
        out.append(f"{ranks} ranks: all_reduce against Gloo, geometric mean {gloo:.1f}")
    return out


def limits_text(facts):
    """The lines of limits.json in words, each with its target."""
    known = lambda key: facts.get(key) is not None
    lines = []
    if known("cache_line_us"):
        lines.append(f"cache line, one way: {facts['cache_line_us'] * 1e3:.0f} ns")
    for method in ("memcpy", "streaming"):
        for ranks in (1, 2):
            key = f"copy_{method}_{ranks}_GBps"
            if known(key):
                lines.append(f"copy bandwidth, {method}, {ranks} process(es): {facts[key]:.1f} GB/s of payload")
    if known("all_reduce_8_over_cache_line"):
        lines.append(f"8-byte all_reduce of 2 ranks: {facts['all_reduce_8_us']:.3f} us = "
                     f"{facts['all_reduce_8_over_cache_line']:.2f} x the cache line (target 1.8); with the same buffers "
                     f"every call {facts['all_reduce_8_repeated_us']:.3f} us")
    for key, words, target in (("all_reduce_large", "malloc memory", 80), ("all_reduce_large_heap", "tutti_mem_alloc", 85),
                               ("all_reduce_large_preloaded", "malloc memory, libtutti_malloc.so preloaded", 80)):
        if known(key + "_share_of_limit"):
            lines.append(f"128 MiB all_reduce from {words}: {facts[key + '_us'] / 1e3:.2f} ms = "
                         f"{facts[key + '_share_of_limit'] * 100:.0f} % of the copy limit (target {target} %)")
    for key, words in (("message", ""), ("message_preloaded", ", libtutti_malloc.so preloaded")):
        if known(key + "_share_of_copy"):
            lines.append(f"ping-pong of 4 MiB, one way{words}: {facts[key + '_us']:.0f} us = "
                         f"{facts[key + '_share_of_copy'] * 100:.0f} % of what one process copies (target 85 %)")
    if known("all_reduce_8_over_round_trip"):
        lines.append(f"8-byte all_reduce of 2 ranks over TCP: {facts['all_reduce_8_us']:.2f} us = "
                     f"{facts['all_reduce_8_over_round_trip']:.2f} x a round trip of 8 bytes over a socket, "
                     f"{facts['socket_round_trip_us']:.2f} us (target 1)")
    if known("all_reduce_large_share_of_sockets"):
        lines.append(f"128 MiB all_reduce over TCP: {facts['all_reduce_large_us'] / 1e3:.1f} ms = "
                     f"{facts['all_reduce_large_share_of_sockets'] * 100:.0f} % of a plain socket's exchange of "
                     f"as many bytes both ways, {facts['socket_exchange_us'] / 1e3:.1f} ms (target 80 %)")
    for hosts in (1, 2, 8):
        if known(f"create_ms_8_on_{hosts}"):
            lines.append(f"communicator of 8 processes on {hosts} host(s): their first "
                         f"{facts[f'first_create_ms_8_on_{hosts}']:.1f} ms, later ones "
                         f"{facts[f'create_ms_8_on_{hosts}']:.1f} ms (target 100)")
    if known("call_overhead_ns"):
        lines.append(f"repeated 1-rank all_reduce: {facts['call_overhead_ns']:.1f} ns a call (target 25)")
    for key in facts:
        if "_over_float32_" in key and known(key):
            name, size = key.split("_over_float32_")
            lines.append(f"{name} sum of {size_text(int(size))}: {facts[key]:.2f} x float32 of the same bytes (target 1.3)")
    for ranks in (2, 4, 8):
        if known(f"late_barrier_cpu_ms_{ranks}"):
            lines.append(f"waiting 1 s in a barrier, {ranks} ranks: {facts[f'late_barrier_cpu_ms_{ranks}']:.1f} ms of CPU "
                         "per waiting process (target 20)")
        if known(f"create_ms_{ranks}"):
            lines.append(f"communicator of {ranks} processes: {facts[f'create_ms_{ranks}']:.1f} ms"
                         + (" (target 50)" if ranks == 8 else ""))
    return lines


def text(rows, facts, notes, machine):
    """The whole report."""
    parts = [f"Machine: {machine}"]
    configurations = {(r["configuration"], r["version"], r["note"]) for r in rows}
    parts.append("\n".join(f"{name}: version {version}, {note}" for name, version, note in sorted(configurations)))
    for ranks, type_name in dict.fromkeys((r["ranks"], r["type"]) for r in rows):
        cells = Cells(rows, ranks, type_name)
        parts.append(f"== {ranks} ranks, {type_name}, median microseconds a call")
        parts += [times_table(cells, collective) for collective in cells.collectives]
        if SUBJECT in cells.configurations:
            parts += [ratios_table(cells), "\n".join(summary(cells, ranks))]
    if facts:
        parts.append("== limits\n" + "\n".join(limits_text(facts)))
    if notes:
        parts.append("== notes\n" + "\n".join(notes))
    return "\n\n".join(part for part in parts if part)
