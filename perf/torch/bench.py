"""torch.distributed over tutti and over Gloo: the same calls, in turn, in the same processes.

Usage: python -m tutti.launch -n RANKS bench.py [SECONDS]. Rank 0 prints a table in Markdown: median times of rank 0 in
microseconds, and Gloo's time over tutti's.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

ROUNDS = 15
SIZES = (8, 64 << 10, 16 << 20)


def model():
    torch.manual_seed(1)
    layers = [torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(2)]
    return torch.nn.Sequential(torch.nn.Embedding(512, 128), *layers, torch.nn.Linear(128, 512))


def steps(group):
    """DDP's step of a small transformer."""
    parallel = torch.nn.parallel.DistributedDataParallel(model(), process_group=group)
    tokens = torch.randint(512, (2, 32))

    def step():
        parallel.zero_grad()
        parallel(tokens).square().mean().backward()

    return step


def cases(groups):
    """(name, function of each group)."""
    for size in SIZES:
        buffer = torch.ones(size // 4)

        def reduce(group, buffer=buffer):
            dist.all_reduce(buffer, dist.ReduceOp.MAX, group=group)

        yield f"all_reduce {size} B", {name: (lambda group=group: reduce(group)) for name, group in groups.items()}
    buffer = torch.ones(2)
    yield "all_reduce 8 B, async", {
        name: (lambda group=group: dist.all_reduce(buffer, dist.ReduceOp.MAX, group=group, async_op=True).wait())
        for name, group in groups.items()}
    yield "barrier", {name: (lambda group=group: dist.barrier(group)) for name, group in groups.items()}
    yield "DDP step", {name: steps(group) for name, group in groups.items()}


def measure(call, seconds):
    """Microseconds of a call, in batches of about `seconds`; all ranks make the same number of calls."""
    call()
    start = time.perf_counter()
    call()
    once = torch.tensor([time.perf_counter() - start])
    dist.all_reduce(once, dist.ReduceOp.MAX)
    count = max(1, min(1000, int(seconds / max(once.item(), 1e-6))))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def main(seconds):
    dist.init_process_group("tutti")
    # More threads than cores wait for each other in torch's arithmetic: with real-time priority a step takes seconds.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // dist.get_world_size()))
    groups = {"tutti": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, torch {torch.__version__}\n")
        print("| call | tutti us | Gloo us | Gloo / tutti |\n| --- | --- | --- | --- |")
    for name, calls in cases(groups):
        times = {backend: [] for backend in groups}
        for _ in range(ROUNDS):
            for backend, call in calls.items():
                times[backend].append(measure(call, seconds))
        tutti_us, gloo_us = (statistics.median(times[backend]) for backend in groups)
        if dist.get_rank() == 0:
            print(f"| {name} | {tutti_us:.1f} | {gloo_us:.1f} | {gloo_us / tutti_us:.2f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.02)
