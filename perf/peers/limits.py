"""The lines of the benchmark without peers: the limits of the machine, and the cost of a call, a wait, a type and a
communicator. Both sides of a ratio alternate within seconds, because the speed of a virtual machine changes.
"""

import statistics

import jobs

LARGE_BYTES = 128 << 20
COPY_BYTES = jobs.FOOTPRINT_BYTES // 2  # from one buffer to another
MESSAGE_BYTES = 4 << 20
CALL_OVERHEAD_BYTES = 8
LATE_MS = 1000
SET_UP_RANKS = 8
SET_UP_STARTS = 5  # of eight processes; each makes 4 more communicators
TYPE_SIZES = [4 << 10, 256 << 10, 16 << 20]


def _tutti():
    return jobs.LAUNCHES["shm"][0]


def _start(launch, ranks, options, log):
    reason = launch.missing(options.drivers)
    if reason:
        log(f"skipped the limits of {launch.name}: {reason}")
        return None
    try:
        return jobs.Job(launch, ranks, options.drivers, options.realtime)
    except jobs.JobFailed as failure:
        log(f"skipped the limits of {launch.name} with {ranks} ranks: {failure}")
        return None


def _ask(job, log, verb, **words):
    """One figure, or None. A failed job is not restarted: `job.dead` is set."""
    if job is None or getattr(job, "dead", False):
        return None
    try:
        answer = job.request(verb, **words)
    except jobs.JobFailed as failure:
        log(str(failure))
        job.dead = True
        return None
    if answer.get("wrong"):
        log(f"{job.launch.name}: wrong result in {words}")
        return None
    return answer.get("cpu_ms", answer.get("median_us"))


def _median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def floors_and_ratios(options, log, progress):
    """Cache line and copy bandwidth, in turns with tutti's smallest and largest all_reduce of 2 ranks, and with a
    long message."""
    floor = _start(jobs.FLOOR, 2, options, log)
    tutti = _start(_tutti(), 2, options, log)
    preloaded = _start(jobs.tutti_preloaded(options.drivers), 2, options, log)
    small = {"collective": "all_reduce", "bytes": 8}
    large = {"collective": "all_reduce", "bytes": LARGE_BYTES, "batches": 5, "budget_us": 5e5}
    message = {"collective": "ping_pong", "bytes": MESSAGE_BYTES}
    series = {}
    try:
        for turn in range(2 if options.quick else 5):
            progress(f"floors, turn {turn + 1}")
            requests = {
                "cache_line_us": (floor, "cache_line", {}),
                "all_reduce_8_us": (tutti, "measure", {**small, "check": int(turn == 0)}),
                "all_reduce_8_repeated_us": (tutti, "measure", {**small, "slots": 1}),
                "all_reduce_large_us": (tutti, "measure", {**large, "check": int(turn == 0)}),
                "all_reduce_large_heap_us": (tutti, "measure", {**large, "memory": "library"}),
                "all_reduce_large_preloaded_us": (preloaded, "measure", {**large, "check": int(turn == 0)}),
                "message_us": (tutti, "measure", {**message, "check": int(turn == 0)}),
                "message_preloaded_us": (preloaded, "measure", {**message, "check": int(turn == 0)}),
            }
            for method in ("memcpy", "streaming"):
                for ranks in (1, 2):
                    words = {"bytes": COPY_BYTES, "method": method, "ranks": ranks, "batches": 3, "budget_us": 3e5}
                    requests[f"copy_{method}_{ranks}_us"] = (floor, "copy", words)
            for name, (job, verb, words) in requests.items():
                series.setdefault(name, []).append(_ask(job, log, verb, **words))
    finally:
        for job in (floor, tutti, preloaded):
            if job:
                job.close()
    facts = {name: _median(values) for name, values in series.items()}
    ratios = [a / b for a, b in zip(series["all_reduce_8_us"], series["cache_line_us"]) if a and b]
    facts["all_reduce_8_over_cache_line"] = _median(ratios)
    for method in ("memcpy", "streaming"):
        for ranks in (1, 2):
            us = facts.pop(f"copy_{method}_{ranks}_us")
            facts[f"copy_{method}_{ranks}_GBps"] = ranks * COPY_BYTES / us / 1e3 if us else None
    one_copy = max(facts[f"copy_{method}_1_GBps"] or 0 for method in ("memcpy", "streaming"))
    for key in ("message", "message_preloaded"):
        if one_copy and facts[key + "_us"]:
            facts[key + "_share_of_copy"] = MESSAGE_BYTES / facts[key + "_us"] / 1e3 / one_copy
    best_copy = max((facts[k] or 0 for k in facts if k.startswith("copy_")), default=0)
    if best_copy:
        # Out of place, 2 ranks: 2n bytes are read and 2n written. At best this lasts as long as copying 2n bytes.
        facts["large_limit_us"] = 2 * LARGE_BYTES / best_copy / 1e3
        for key in ("all_reduce_large", "all_reduce_large_heap", "all_reduce_large_preloaded"):
            us = facts.get(key + "_us")
            facts[key + "_share_of_limit"] = facts["large_limit_us"] / us if us else None
    return facts


def call_overhead(options, log):
    """A repeated 1-rank all_reduce, in nanoseconds. The lowest of five medians: the call needs no peer, no memory and
    no system call, so other programs can only add time."""
    job = _start(_tutti(), 1, options, log)
    if job is None:
        return {}
    try:
        answers = [_ask(job, log, "measure", collective="all_reduce", bytes=CALL_OVERHEAD_BYTES, slots=1)
                   for _ in range(5)]
        us = min((answer for answer in answers if answer), default=None)
    finally:
        job.close()
    return {"call_overhead_ns": us * 1e3 if us else None}


def waiting_and_creating(options, log, progress):
    """CPU time of ranks that wait 1 s in a barrier, and the time to create a communicator, per rank count."""
    facts = {}
    for ranks in (2, 4, 8):
        progress(f"waiting and creating, {ranks} ranks")
        job = _start(_tutti(), ranks, options, log)
        if job is None:
            return facts
        try:
            facts[f"late_barrier_cpu_ms_{ranks}"] = _median(
                [_ask(job, log, "late_barrier", late_ms=LATE_MS) for _ in range(1 if options.quick else 3)])
            us = _median([_ask(job, log, "create") for _ in range(5)])
            facts[f"create_ms_{ranks}"] = us / 1e3 if us else None
        finally:
            job.close()
    return facts


def types(options, log, progress):
    """Time of a float16 or bfloat16 sum over that of a float32 sum of the same bytes, 2 ranks."""
    job = _start(_tutti(), 2, options, log)
    if job is None:
        return {}
    facts = {}
    try:
        for size in TYPE_SIZES:
            progress(f"types, {size} bytes")
            series = {}
            for turn in range(1 if options.quick else 3):
                for name in ("float32", "float16", "bfloat16"):
                    series.setdefault(name, []).append(
                        _ask(job, log, "measure", collective="all_reduce", bytes=size, type=name, check=int(turn == 0)))
            base = _median(series["float32"])
            for name in ("float16", "bfloat16"):
                us = _median(series[name])
                facts[f"{name}_over_float32_{size}"] = us / base if us and base else None
    finally:
        job.close()
    return facts


def sockets_and_ratios(options, log, progress):
    """Plain sockets with tutti's default number of connections, in turns with tutti's smallest and largest all_reduce
    of 2 ranks over TCP. Each of two ranks must send all its bytes once, and receive as many."""
    floor = _start(jobs.FLOOR, 2, options, log)
    tutti = _start(jobs.LAUNCHES["tcp"][0], 2, options, log)
    large = {"bytes": LARGE_BYTES, "batches": 5, "budget_us": 1e6}
    requests = {
        "socket_round_trip_us": (floor, "socket_round_trip", {"bytes": 8, "connections": 1}),
        "all_reduce_8_us": (tutti, "measure", {"collective": "all_reduce", "bytes": 8}),
        "socket_exchange_us": (floor, "socket_exchange", {**large, "connections": 1}),
        "all_reduce_large_us": (tutti, "measure", {"collective": "all_reduce", **large}),
    }
    series = {name: [] for name in requests}
    try:
        for turn in range(2 if options.quick else 7):
            progress(f"sockets, turn {turn + 1}")
            for name, (job, verb, words) in requests.items():
                series[name].append(_ask(job, log, verb, **words))
    finally:
        for job in (floor, tutti):
            if job:
                job.close()
    facts = {name: _median(values) for name, values in series.items()}
    ratio = lambda above, below: _median([a / b for a, b in zip(series[above], series[below]) if a and b])
    facts["all_reduce_8_over_round_trip"] = ratio("all_reduce_8_us", "socket_round_trip_us")
    facts["all_reduce_large_share_of_sockets"] = ratio("socket_exchange_us", "all_reduce_large_us")
    return facts


def set_up(options, log, progress):
    """Time to create a communicator of 8 processes on one, two and eight hosts: the first communicator of the
    processes, and later ones, each a median. Between hosts every connection is authenticated."""
    facts = {}
    for hosts in (1, 2, SET_UP_RANKS):
        launch = jobs.tutti_on_hosts(SET_UP_RANKS // hosts)
        first, further = [], []
        for start in range(2 if options.quick else SET_UP_STARTS):
            progress(f"set-up, {hosts} hosts, start {start + 1}")
            job = _start(launch, SET_UP_RANKS, options, log)
            if job is None:
                return facts
            try:
                first.append(_ask(job, log, "create", first=1))
                further += [_ask(job, log, "create") for _ in range(4)]
            finally:
                job.close()
        for name, values in (("first_create", first), ("create", further)):
            us = _median(values)
            facts[f"{name}_ms_{SET_UP_RANKS}_on_{hosts}"] = us / 1e3 if us else None
    return facts


def measure_tcp(options, log, progress):
    return {**sockets_and_ratios(options, log, progress), **set_up(options, log, progress)}


def measure(options, log, progress):
    facts = floors_and_ratios(options, log, progress)
    facts.update(call_overhead(options, log))
    facts.update(types(options, log, progress))
    facts.update(waiting_and_creating(options, log, progress))
    return facts
