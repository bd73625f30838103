#!/usr/bin/env python3
"""Runs torch's own distributed suite over a backend: suite.py {gloo|tutti} RANKS [WORDS in a case's name...].

The suite knows Gloo by name, so tutti is put in Gloo's place. Ranks live for many cases: a case costs a new process
group, not an import of torch. A case that hangs or kills a rank costs new ranks. Prints a line for each case.
"""

import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading

SECONDS_MAX = 100  # for a case


def prepare(backend, ranks, folder):
    """What the suite wants to find; returns its class of cases."""
    for name in ("barrier", "test_dir", "init_dir"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=folder, MASTER_ADDR="127.0.0.1",
                      INIT_METHOD=f"file://{folder}/init_dir/shared")
    import torch.distributed as dist
    if backend == "tutti":
        import tutti.torch
        dist.Backend._plugins["GLOO"] = dist.Backend._BackendPlugin(tutti.torch._create, True)
    from torch.testing._internal.distributed import distributed_test as suite
    if backend == "tutti":  # the profiler's ranges have the backend's own name, and the suite compares Gloo's
        find = suite.get_profiling_event

        def get_profiling_event(name, profiler, *more, **named):
            events = profiler.events() if hasattr(profiler, "events") else profiler.function_events
            for event in events:
                event.name = event.name.replace("tutti:", "gloo:")
            return find(name, profiler, *more, **named)

        suite.get_profiling_event = get_profiling_event

    class Cases(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        """torch's cases."""

    return suite, Cases


def run_case(suite, cases, rank, name, path):
    """The outcome of one case on this rank: passed, skipped, or the error."""
    import datetime
    import unittest

    import torch.distributed as dist
    from torch.testing._internal.common_utils import set_rng_seed
    suite.Barrier.barrier_id = 0
    set_rng_seed(1234)  # as the suite's own set-up
    case = cases(name)
    case.rank, case.file_name = rank, path
    seconds = suite.CUSTOM_PG_TIMEOUT.get(name, suite.default_pg_timeout)
    try:
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=int(case.world_size),
                                timeout=datetime.timedelta(seconds=seconds))
        case._barrier()
        getattr(case, name)()
        case._barrier()
        return "passed"
    except (SystemExit, unittest.SkipTest):
        return "skipped"
    except BaseException as error:  # a failed case
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def be_rank(backend, ranks, rank, folder):
    suite, cases = prepare(backend, ranks, folder)
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if rank == 0:
        names = [name for name in sorted(dir(cases)) if name.startswith("test_")]
        print(json.dumps(names), file=results, flush=True)
    for line in sys.stdin:
        name, path = json.loads(line)
        print(json.dumps(run_case(suite, cases, rank, name, path)), file=results, flush=True)


class Ranks:
    """The ranks, and what they answer."""

    def __init__(self, backend, count, folder):
        self.errors = open(os.path.join(folder, "errors"), "w+", encoding="utf-8")
        self.processes = [subprocess.Popen([sys.executable, __file__, "--rank", backend, str(count), str(rank), folder],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                           text=True) for rank in range(count)]
        self.lines = [queue.Queue() for _ in self.processes]
        for process, lines in zip(self.processes, self.lines):
            threading.Thread(target=self.read, args=(process, lines), daemon=True).start()
        names = self.lines[0].get(timeout=600)
        if names is None:
            self.end()
            self.errors.seek(0)
            sys.exit(f"the ranks cannot start (pip install expecttest?):\n{self.errors.read()[-2000:]}")
        self.names = json.loads(names)

    @staticmethod
    def read(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def run(self, name, path):
        """The outcome of a case, and whether the ranks can go on."""
        for process in self.processes:
            process.stdin.write(json.dumps([name, path]) + "\n")
            process.stdin.flush()
        outcomes = []
        for lines in self.lines:
            try:
                line = lines.get(timeout=SECONDS_MAX)
            except queue.Empty:
                return "hangs", False
            if line is None:
                return "a rank ended", False
            outcomes.append(json.loads(line))
        errors = [outcome for outcome in outcomes if outcome not in ("passed", "skipped")]
        if errors:
            return errors[0], True
        return ("skipped" if "skipped" in outcomes else "passed"), True

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def main(backend, count, words):
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(backend, count, folder)
        names = [name for name in ranks.names if not words or any(word in name for word in words)]
        for number, name in enumerate(names):
            for path in pathlib.Path(folder, "barrier").iterdir():
                path.unlink()
            pathlib.Path(folder, "init_dir", "shared").unlink(missing_ok=True)
            outcome, can_go_on = ranks.run(name, f"{folder}/store{number}")
            print(f"{name}\t{outcome}", flush=True)
            if not can_go_on:
                ranks.end()
                ranks = Ranks(backend, count, folder)
        ranks.end()


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        be_rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
