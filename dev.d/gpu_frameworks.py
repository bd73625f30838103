#!/usr/bin/env python3
"""Two processes on device 0 sum numbers with CuPy's or PyTorch's NCCL, which LD_PRELOAD has replaced.

Usage: gpu_frameworks.py cupy|torch (dev.d/gpu_test.sh). Exit status: 0 good, 77 the package or a GPU is missing.
"""

import importlib
import multiprocessing
import sys
import tempfile

RANKS = 2
COUNT = 1 << 20
MISSING = 77


def sum_with_cupy(rank, folder, queue):
    import cupy
    from cupy.cuda import nccl

    cupy.cuda.Device(0).use()
    if rank == 0:
        name = nccl.get_unique_id()
        for _ in range(RANKS):
            queue.put(name)
    communicator = nccl.NcclCommunicator(RANKS, queue.get(timeout=60), rank)
    numbers = cupy.full(COUNT, rank + 1, dtype=cupy.float32)
    communicator.allReduce(numbers.data.ptr, numbers.data.ptr, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
    cupy.cuda.Device(0).synchronize()
    return bool((numbers == sum(range(1, RANKS + 1))).all())


def sum_with_torch(rank, folder, queue):
    import torch
    import torch.distributed

    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    numbers = torch.full((COUNT,), float(rank + 1), device="cuda")
    torch.distributed.all_reduce(numbers)
    is_right = bool((numbers == sum(range(1, RANKS + 1))).all())
    torch.distributed.destroy_process_group()
    return is_right


SUMS = {"cupy": sum_with_cupy, "torch": sum_with_torch}


def run_rank(name, rank, folder, queue):
    sys.exit(0 if SUMS[name](rank, folder, queue) else 1)


def is_usable(name):
    try:
        package = importlib.import_module(name)
        return package.cuda.is_available()
    except Exception as error:  # a package that lacks its libraries raises all kinds
        print(f"{name}: {error}")
        return False


def main():
    name = sys.argv[1]
    if not is_usable(name):
        return MISSING
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run_rank, args=(name, rank, folder, queue)) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    return 0 if all(rank.exitcode == 0 for rank in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
