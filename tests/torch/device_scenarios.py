"""What the ranks of torch_test.py do with CUDA tensors: device_scenarios.py NAME..., started by tutti.launch.

On the stand-ins for CUDA (docs/cuda.md) torch's own kernels do not run. So tensors are made on the CPU and copied, and
only tutti reduces.
"""

import datetime
import os
import pathlib
import sys
import threading
import time

sys.setdlopenflags(os.RTLD_LAZY)  # the stand-in lacks functions that torch names and never calls here

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import tutti.torch  # noqa: E402, F401


def cuda(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).to("cuda")


def collectives(rank, size):
    """Every collective, on the current stream and beside it; lists are packed by copies."""
    for asynchronous in (False, True):
        def done(work):
            if asynchronous:
                work.wait()

        x = cuda([rank + 1.0] * 5)
        done(dist.all_reduce(x, async_op=asynchronous))
        assert x.tolist() == [size * (size + 1) / 2] * 5
        x = cuda([float(rank)] * 3)
        done(dist.broadcast(x, 1, async_op=asynchronous))
        assert x.tolist() == [1.0] * 3
        x = cuda([rank + 1] * 3, torch.int64)
        done(dist.reduce(x, 1, dist.ReduceOp.MAX, async_op=asynchronous))
        assert rank != 1 or x.tolist() == [size] * 3
        parts = [torch.empty(2, device="cuda") for _ in range(size)]
        done(dist.all_gather(parts, cuda([float(rank)] * 2), async_op=asynchronous))
        assert [t.tolist() for t in parts] == [[float(r)] * 2 for r in range(size)]
        uneven = [torch.empty(r + 1, device="cuda") for r in range(size)]
        done(dist.all_gather(uneven, cuda([float(rank)] * (rank + 1)), async_op=asynchronous))
        assert [t.tolist() for t in uneven] == [[float(r)] * (r + 1) for r in range(size)]
        flat = torch.empty(size * 2, device="cuda")
        done(dist.all_gather_into_tensor(flat, cuda([float(rank)] * 2), async_op=asynchronous))
        assert flat.tolist() == [float(r) for r in range(size) for _ in range(2)]
        into = [torch.empty(2, device="cuda") for _ in range(size)] if rank == 1 else None
        done(dist.gather(cuda([float(rank)] * 2), into, 1, async_op=asynchronous))
        assert rank != 1 or [t.tolist() for t in into] == [[float(r)] * 2 for r in range(size)]
        part = torch.empty(2, device="cuda")
        given = [cuda([float(r)] * 2) for r in range(size)] if rank == 1 else None
        done(dist.scatter(part, given, 1, async_op=asynchronous))
        assert part.tolist() == [rank] * 2
        done(dist.reduce_scatter(part, [cuda([float(r)] * 2) for r in range(size)], async_op=asynchronous))
        assert part.tolist() == [rank * size] * 2
        whole = cuda([float(i) for i in range(2 * size)])
        done(dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.AVG, async_op=asynchronous))
        assert part.tolist() == [2 * rank, 2 * rank + 1]
        swapped = torch.empty(size, dtype=torch.int64, device="cuda")
        done(dist.all_to_all_single(swapped, cuda([r + 10 * rank for r in range(size)], torch.int64),
                                    async_op=asynchronous))
        assert swapped.tolist() == [10 * r + rank for r in range(size)]
        outputs = [torch.empty(rank + 1, device="cuda") for _ in range(size)]
        done(dist.all_to_all(outputs, [cuda([float(rank)] * (q + 1)) for q in range(size)], async_op=asynchronous))
        assert [t.tolist() for t in outputs] == [[float(r)] * (rank + 1) for r in range(size)]
    x = cuda([3.0] * 2)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert x.tolist() == [1.5 * size] * 2
    with dist._coalescing_manager(device=torch.device("cuda")):
        several = [cuda([float(i)]) for i in range(3)]
        for tensor in several:
            dist.all_reduce(tensor)
    assert [t.item() for t in several] == [0.0, size, 2.0 * size]
    dist.barrier()
    dist.barrier(device_ids=[torch.cuda.current_device()])


def both(rank, size):
    """One group serves tensors of the CPU and of the device; what cannot be is an error that names it."""
    x, y = torch.full((3,), float(rank)), cuda([float(rank)] * 3)
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)]
    for work in works:
        work.wait()
    assert x.tolist() == y.tolist() == [sum(range(size))] * 3
    everybody = [None] * size
    dist.all_gather_object(everybody, rank)
    assert everybody == list(range(size))
    for call, word in ((lambda: dist.recv(torch.empty(1, device="cuda")), "from any rank"),
                       (lambda: dist.all_gather_into_tensor(torch.empty(size), cuda([1.0])), "are on one device")):
        try:
            call()
        except Exception as error:  # torch has several classes
            assert word in str(error), error
        else:
            raise AssertionError(f"nothing was raised: {word}")


def order(rank, size):
    """Calls keep the order of the current stream, and works tell their end."""
    side = torch.cuda.Stream()
    host = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
    for number in range(10):
        with torch.cuda.stream(side):
            x = torch.empty(1 << 16, device="cuda")
            x.copy_(host, non_blocking=True)
            work = dist.all_reduce(x, async_op=number % 2 == 1)
            if work:
                work.wait()
            back = x.to("cpu", non_blocking=True)
        side.synchronize()
        assert torch.equal(back, host * size), number
    x = cuda([1.0])
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future().then(lambda future: future.value()[0].cpu() + 1)
    assert future.wait().item() == size + 1
    assert work.wait(datetime.timedelta(seconds=60)) and work.is_completed()


def barriers(rank, size):
    """A barrier on a device ends after the current stream's work, and blocks the program."""
    # Regression: c10d passes the ids of devices only, and every barrier was one of the CPU.
    device = torch.device("cuda", torch.cuda.current_device())
    host, x = torch.zeros(1 << 22).pin_memory(), torch.empty(1 << 22, device=device)
    bound = dist.new_group(device_id=device)
    only_cuda = dist.new_group(backend="cuda:tutti")
    dist.all_reduce(cuda([1.0]), group=only_cuda)
    for group, options in ((None, {"device_ids": [device.index]}), (bound, {}), (only_cuda, {})):
        for asynchronous in (False, True):
            for _ in range(8):
                x.copy_(host, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
            work = dist.barrier(group, async_op=asynchronous, **options)
            if work:
                work.wait()
            assert copied.query(), (options, asynchronous)


def compressed(rank, size):
    """The thread of PowerSGD works after the program's stream, which then waits for it. Its own kernels do not run here,
    so copies take their place."""
    # Regression: the thread used its own current stream, and read gradients that were not there yet.
    import tutti.ddp

    host, nothing = torch.ones(1 << 22).pin_memory(), torch.zeros(1 << 22).pin_memory()
    x, y = nothing.to("cuda"), nothing.to("cuda")

    class Bucket:
        buffer, gradients, parameters = (lambda self: y), (lambda self: [x]), (lambda self: [x])

    def reduce(pairs):
        for source in (*[nothing] * 8, x):
            y.copy_(source, non_blocking=True)

    state = tutti.ddp._PowerSgd(1, dist.group.WORLD)
    state._reduce = reduce
    with torch.cuda.stream(torch.cuda.Stream()):
        for source in (*[nothing] * 8, host):
            x.copy_(source, non_blocking=True)
        assert torch.equal(state.hook(Bucket()).wait().cpu(), host)


def messages(rank, size):
    """Messages in the order of calls; a batch sends and receives at once."""
    right, left = (rank + 1) % size, (rank - 1) % size
    big, into = cuda([float(rank)] * (1 << 16)), torch.empty(1 << 16, device="cuda")
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, big, right), dist.P2POp(dist.irecv, into, left)]):
        work.wait()
    assert into.cpu().eq(left).all()
    if rank == 0:
        dist.send(big, 1, tag=7)
    elif rank == 1:
        dist.recv(into, 0, tag=7)
        assert into.cpu().eq(0).all()


def groups(rank, size):
    """A part of the ranks has a communicator of its own on the device."""
    pair = dist.new_group([0, 1])
    if rank < 2:
        x = cuda([rank + 1.0])
        dist.all_reduce(x, group=pair)
        assert x.item() == 3
    dist.barrier()


def abandoned(rank, size):
    """abort ends the first call with CUDA tensors of a rank, while the other ranks make none."""
    # Regression: the call waited until the group's timeout, half an hour, and the end of the group waited for it.
    for caller in (0, 1):  # rank 0 waits for the other ranks, rank 1 for rank 0
        group = dist.new_group()
        if rank == caller:
            x, errors = cuda([1.0]), []

            def call(x=x, group=group, errors=errors):
                try:
                    dist.all_reduce(x, group=group)
                except Exception as error:  # torch has several classes
                    errors.append(str(error))

            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            deadline = time.monotonic() + 60
            backend = group._get_backend(torch.device("cuda"))
            while backend._get_sequence_number_for_group() == 0 and time.monotonic() < deadline:
                pass  # the call has not begun
            if rank == 0:  # looks, because the thread cannot use the store during a wait
                store = dist.distributed_c10d._world.pg_map[group][1]
                while not any("id/device" in key for key in store.list_keys()) and time.monotonic() < deadline:
                    pass  # the call has not come to the other ranks
            backend.abort()
            thread.join(30)
            assert not thread.is_alive(), "abort did not end the call"
            assert len(errors) == 1 and "aborted" in errors[0], errors
        dist.destroy_process_group(group)
    dist.barrier()


def killed(rank, size):
    """A rank dies while the others wait on their streams: the works and later calls name it."""
    dist.all_reduce(cuda([1.0]))
    if rank == 1:
        os.kill(os.getpid(), 9)
    for _ in range(1000):
        try:
            work = dist.all_reduce(cuda([1.0]), async_op=True)
            work.wait(datetime.timedelta(seconds=60))
        except Exception as error:  # torch has several classes
            assert "rank 1" in str(error), error
            print(error, flush=True)
            return
    raise AssertionError("the other ranks never heard of it")


class LastLook:
    """Lives until the interpreter ends. Then it lets the other rank go on, and waits for the works."""

    def __init__(self, works, path):
        self.works, self.path, self.open = works, path, open

    def __del__(self):
        self.open(self.path, "w").close()
        while not all(work.is_completed() for work in self.works):
            pass


def ending(rank, size):
    """Rank 0's works complete while its interpreter ends, unless it leaves the group before."""
    path = pathlib.Path(os.environ["MEETING"] + ".ending")
    dist.all_reduce(cuda([1.0]))
    if rank == 0:
        globals()["last_look"] = LastLook([dist.all_reduce(cuda([1.0]), async_op=True) for _ in range(20)], path)
        return
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        pass
    try:
        for _ in range(20):
            dist.all_reduce(cuda([1.0]), async_op=True).wait()
    except Exception as error:  # torch has several classes
        assert "rank 0" in str(error), error


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    # Without a launcher the ranks meet in a file.
    place = f"file://{os.environ['MEETING']}" if "MEETING" in os.environ else "env://"
    dist.init_process_group("cpu:tutti,cuda:tutti", init_method=place, rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=60))
    for name in sys.argv[1:]:
        globals()[name](rank, size)
    if not {"killed", "ending"} & set(sys.argv):
        dist.destroy_process_group()


main()
