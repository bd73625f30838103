"""Where the time of an all_reduce from Python goes: each layer between C and torch.distributed.

Usage: python -m tutti.launch -n RANKS layers.py [CALLS [BYTES]]. Rank 0 prints a table in Markdown: microseconds of a
call (8 B unless told), median of 15 rounds. Without torch, the layers of torch are left out.
"""

import importlib.util
import os
import statistics
import sys
import time

import numpy

import tutti
from tutti._library import BLOCKING, ffi, lib

ROUNDS = 15


def package_layers(comm, count):
    """(name, call) of the package tutti."""
    array = numpy.ones(count, numpy.float32)
    pointer, function, handle = ffi.from_buffer(array), lib.tutti_all_reduce, comm._handle
    kind, op = lib.TUTTI_FLOAT32, lib.TUTTI_SUM
    yield "`tutti_all_reduce` through cffi", lambda: function(
        pointer, pointer, count, kind, op, handle, BLOCKING)
    yield "`comm.all_reduce`, NumPy", lambda: comm.all_reduce(array)


def torch_layers(comm, count):
    """(name, call) of torch.distributed over tutti."""
    import torch
    import torch.distributed as dist

    import tutti.torch  # noqa: F401
    dist.init_process_group("tutti")
    torch.set_num_threads(1)
    tensor = torch.ones(count)
    options = dist.AllreduceOptions()
    options.asyncOp = False
    group = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    yield "`backend.allreduce` of this backend", lambda: backend.allreduce([tensor], options)
    yield "`group.allreduce` of torch", lambda: group.allreduce([tensor], options)
    alone = [dist.new_group([rank]) for rank in range(comm.size)][comm.rank]
    yield "`dist.all_reduce` of torch", lambda: dist.all_reduce(tensor)
    yield "the same in a group of this rank alone", lambda: dist.all_reduce(tensor, group=alone)
    yield "`dist.all_reduce`, async, and `wait`", lambda: dist.all_reduce(tensor, async_op=True).wait()


def measure(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def main(count, size):
    comm = tutti.Communicator.from_launcher()
    layers = list(package_layers(comm, size // 4))
    if importlib.util.find_spec("torch"):
        layers += torch_layers(comm, size // 4)
    # Only now: a communicator asks how many cores there are. With real-time priority nobody moves a thread that yields.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[comm.rank % len(cores)]})
    times = {name: [] for name, _ in layers}
    for _ in range(ROUNDS):
        for name, call in layers:
            comm.barrier()
            times[name].append(measure(call, count))
    if comm.rank == 0:
        print(f"{comm.size} ranks\n\n| layer | us |\n| --- | --- |")
        for name, samples in times.items():
            print(f"| {name} | {statistics.median(samples):.2f} |")


if __name__ == "__main__":
    main(*map(int, (sys.argv[1:] + ["500", "8"][len(sys.argv) - 1:])))
