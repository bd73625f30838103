"""What the ranks of torch_test.py do: scenarios.py NAME..., started by tutti.launch. A failed assertion fails the rank."""

import copy
import ctypes
import datetime
import hashlib
import math
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

import tutti.torch

MICROBATCHES = 4


def seconds(number):
    return datetime.timedelta(seconds=number)


def fails(call, *words):
    """The call raises, and the text holds the words."""
    try:
        call()
    except Exception as error:  # torch has several classes
        for word in words:
            assert word in str(error), f"{word!r} is not in {str(error)!r}"
        return str(error)
    raise AssertionError(f"nothing was raised: {words}")


def collectives(rank, size):
    """Collectives, in the calling thread and asynchronous."""
    for asynchronous in (False, True):
        def done(work):
            if asynchronous:
                work.wait()
                assert work.is_completed()
                work.get_future().wait()

        x = torch.full((5,), float(rank + 1))
        done(dist.all_reduce(x, async_op=asynchronous))
        assert x.tolist() == [size * (size + 1) / 2] * 5
        x = torch.full((3,), float(rank))
        done(dist.broadcast(x, 1, async_op=asynchronous))
        assert x.tolist() == [1.0] * 3
        x = torch.full((3,), rank + 1)
        done(dist.reduce(x, 1, dist.ReduceOp.MAX, async_op=asynchronous))
        assert rank != 1 or x.tolist() == [size] * 3
        list_ = [torch.empty(2, 2) for _ in range(size)]
        done(dist.all_gather(list_, torch.full((2, 2), float(rank)).t(), async_op=asynchronous))
        assert [t[0, 0].item() for t in list_] == list(range(size))
        views = list(torch.empty(size, 3).unbind())  # one piece already: no packing
        done(dist.all_gather(views, torch.full((3,), float(rank)), async_op=asynchronous))
        assert [t[2].item() for t in views] == list(range(size))
        uneven = [torch.empty(r + 1) for r in range(size)]
        done(dist.all_gather(uneven, torch.full((rank + 1,), float(rank)), async_op=asynchronous))
        assert [t.sum().item() for t in uneven] == [r * (r + 1) for r in range(size)]
        flat = torch.empty(size * 2)
        done(dist.all_gather_into_tensor(flat, torch.full((2,), float(rank)), async_op=asynchronous))
        assert flat[::2].tolist() == list(range(size))
        into = [torch.empty(2) for _ in range(size)] if rank == 1 else None
        done(dist.gather(torch.full((2,), float(rank)), into, 1, async_op=asynchronous))
        assert rank != 1 or [t[1].item() for t in into] == list(range(size))
        part = torch.empty(2)
        parts = [torch.full((2,), float(r)) for r in range(size)] if rank == 1 else None
        done(dist.scatter(part, parts, 1, async_op=asynchronous))
        assert part.tolist() == [rank] * 2
        part = torch.empty(2)
        done(dist.reduce_scatter(part, [torch.full((2,), float(r)) for r in range(size)], async_op=asynchronous))
        assert part.tolist() == [rank * size] * 2
        part = torch.empty(2)
        done(dist.reduce_scatter_tensor(part, torch.arange(2.0 * size), dist.ReduceOp.AVG, async_op=asynchronous))
        assert part.tolist() == [2 * rank, 2 * rank + 1]
        swapped = torch.empty(size, dtype=torch.int64)
        done(dist.all_to_all_single(swapped, torch.arange(size) + 10 * rank, async_op=asynchronous))
        assert swapped.tolist() == [10 * r + rank for r in range(size)]
        swapped = torch.arange(size) + 10 * rank  # in place
        done(dist.all_to_all_single(swapped, swapped, async_op=asynchronous))
        assert swapped.tolist() == [10 * r + rank for r in range(size)]
        # Regression: split sizes on some ranks only were a mismatch.
        splits = [1] * size if rank == 1 else None
        done(dist.all_to_all_single(swapped, torch.arange(size) + 10 * rank, splits, splits, async_op=asynchronous))
        assert swapped.tolist() == [10 * r + rank for r in range(size)]
        # Rank r sends q + 1 rows to rank q.
        splits = [q + 1 for q in range(size)]
        rows = torch.empty(size * (rank + 1), 2)
        done(dist.all_to_all_single(rows, torch.full((sum(splits), 2), float(rank)), [rank + 1] * size, splits,
                                    async_op=asynchronous))
        assert rows[:, 1].tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
        outputs = [torch.empty(rank + 1) for _ in range(size)]
        done(dist.all_to_all(outputs, [torch.full((q + 1,), float(rank)) for q in range(size)],
                             async_op=asynchronous))
        assert [t.sum().item() for t in outputs] == [r * (rank + 1) for r in range(size)]
        done(dist.barrier(async_op=asynchronous))
    dist.barrier(device_ids=[0])  # as programs write it that run with and without CUDA


def types(rank, size):
    """Every type, the operators, complex numbers, layouts; what cannot be done is an error that names it."""
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e5m2):
        x = torch.ones(7, dtype=torch.float32).to(dtype)
        dist.all_reduce(x)
        assert (x.real if x.is_complex() else x).float()[6] == size, dtype
        views = [torch.empty(7, dtype=dtype) for _ in range(size)]
        dist.all_gather(views, x)
    flags = torch.tensor([rank == 0, True, False])
    for op, wanted in ((dist.ReduceOp.BOR, [True, True, False]), (dist.ReduceOp.BAND, [False, True, False]),
                       (dist.ReduceOp.MAX, [True, True, False])):
        x = flags.clone()
        dist.all_reduce(x, op)
        assert x.tolist() == wanted, op
    x = torch.full((2,), 3.0)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert x.tolist() == [1.5 * size] * 2
    # Regression: NaN as a key of the operators that a group keeps was found as any other factor of its type.
    for dtype, factors in ((torch.float64, (math.nan, 0.5)), (torch.float16, (0.5, math.nan))):
        for factor in factors:
            x = torch.full((2,), 3.0, dtype=dtype)
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
            assert torch.equal(x.isnan(), torch.full((2,), math.isnan(factor))), (dtype, factors, x)
            assert math.isnan(factor) or x.tolist() == [1.5 * size] * 2, (dtype, factors, x)
    image = torch.full((2, 3, 4, 4), float(rank)).contiguous(memory_format=torch.channels_last)
    dist.all_reduce(image)
    assert (image == sum(range(size))).all()
    fails(lambda: dist.all_reduce(torch.ones(4, 4)[:, :2]), "gaps", "contiguous()")
    fails(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), "bitwise", "Float")
    dense = torch.zeros(4, 2)
    dense[rank] = 1.0
    sparse = dense.to_sparse(1)
    dist.all_reduce(sparse)
    assert sparse.to_dense().sum().item() == 2 * size and (sparse.to_dense()[:size] == 1).all()


def messages(rank, size):
    """Sends and receives in any order, with tags, from any rank, batched, and larger than any buffer."""
    right, left = (rank + 1) % size, (rank - 1) % size
    big = torch.full((1 << 20,), float(rank))
    into = torch.empty(1 << 20)
    works = [dist.isend(big, right), dist.irecv(into, left)]
    for work in works:
        work.wait()
    assert (into == left).all()
    # The receiver takes the tags in the other order.
    works = [dist.isend(torch.full((2,), float(tag)), right, tag=tag) for tag in range(3)]
    for tag in (2, 0, 1):
        x = torch.empty(2)
        assert dist.recv(x, left, tag=tag) == left and x.tolist() == [tag] * 2
    for work in works:
        work.wait()
    if rank == 0:
        x, seen = torch.empty(1), []
        for _ in range(size - 1):
            source = dist.recv(x, tag=3)
            assert x.item() == source
            seen.append(source)
        assert sorted(seen) == list(range(1, size))
    else:
        dist.send(torch.tensor([float(rank)]), 0, tag=3)
    operations = [dist.P2POp(dist.irecv, into, left), dist.P2POp(dist.isend, big, right)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    # A batch that raises in its middle does not keep the next one from being.
    gaps = torch.ones(4, 4)[:, 0]
    fails(lambda: dist.batch_isend_irecv([dist.P2POp(dist.irecv, gaps, left)]), "gaps or overlaps")
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    empty = torch.empty(0)
    work = dist.isend(empty, right)
    dist.recv(empty, left)
    work.wait()
    # A wrong size is an error of the receiver, and the pair goes on.
    work = dist.isend(torch.ones(3), right, tag=5)
    fails(lambda: dist.recv(torch.empty(2), left, tag=5), f"rank {left} sent 12 bytes with tag 5", "receives 8 bytes")
    work.wait()
    work = dist.isend(torch.ones(3), right, tag=6)
    dist.recv(torch.empty(3), left, tag=6)
    work.wait()


def objects(rank, size):
    """Object collectives."""
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": r} for r in range(size)]
    given = [{"a": 1}, "b"] if rank == 0 else [None, None]
    dist.broadcast_object_list(given)
    assert given == [{"a": 1}, "b"]
    got = [None]
    dist.scatter_object_list(got, list(range(size)) if rank == 0 else None)
    assert got == [rank]
    top = [None] * size if rank == 0 else None
    dist.gather_object("x" * rank, top)
    assert rank != 0 or top == ["x" * r for r in range(size)]


def groups(rank, size):
    """new_group, split_group, options, monitored barrier, sequence numbers, coalescing, callbacks."""
    pair = dist.new_group([0, 1], timeout=seconds(30))
    if rank < 2:
        x = torch.ones(1)
        dist.all_reduce(x, group=pair)
        assert x.item() == 2
    whole = dist.new_group(timeout=seconds(1))
    dist.monitored_barrier(whole, timeout=seconds(60))
    backend = whole._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    dist.barrier(whole)
    assert backend._get_sequence_number_for_group() == before + 1
    assert copy.deepcopy(backend.options).reproducible == backend.options.reproducible
    with dist._coalescing_manager(async_ops=True) as manager:
        many = [torch.full((n + 1,), float(n)) for n in range(3)]
        for x in many:
            dist.all_reduce(x)
    manager.wait()
    assert [x[0].item() for x in many] == [0, size, 2 * size]
    x = torch.ones(2)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda future: future.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * size] * 2
    split = dist.split_group(None, [list(range(size))]) if hasattr(dist, "split_group") else None
    if split is not None:
        x = torch.ones(1)
        dist.all_reduce(x, group=split)
        assert x.item() == size


class NoThreads:
    """Meanwhile no thread of C++ can start: its stack would have more bytes than addresses."""

    def __enter__(self):
        self.libc, self.before, none = ctypes.CDLL(None), ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
        self.libc.pthread_getattr_default_np(self.before)
        self.libc.pthread_getattr_default_np(none)
        self.libc.pthread_attr_setstacksize(none, ctypes.c_size_t(1 << 48))
        assert self.libc.pthread_setattr_default_np(none) == 0

    def __exit__(self, *_):
        self.libc.pthread_setattr_default_np(self.before)


def observers(rank, size):
    """A hook or a callback that raises, or that gets no thread, does not keep the operation from its end."""
    # Regression: wait() hung for ever, and a receiver never received again from the same rank.
    def raises(*_):
        raise ValueError("a hook of the program")

    store = dist.distributed_c10d._get_default_store()
    group = dist.new_group()
    group._register_on_completion_hook(raises)
    right, left = (rank + 1) % size, (rank - 1) % size
    for _ in range(2):
        works = [dist.all_reduce(torch.ones(1), group=group, async_op=True), dist.isend(torch.ones(1), right, group),
                 dist.irecv(torch.ones(1), left, group), dist.barrier(group, async_op=True)]
        for work in works:
            assert work.wait(seconds(30))
    dist.all_reduce(torch.ones(1), group=group)
    group = dist.new_group()
    dist.barrier(group, async_op=True).wait()  # the group's own threads have started
    if rank != 0:
        store.wait(["observers"])
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    future = work.get_future().then(lambda future: future.value()[0].item())
    if rank == 0:
        with NoThreads():
            store.set("observers", "go on")
            assert work.wait(seconds(30))
            assert future.wait() == size
    assert work.wait(seconds(30)) and future.wait() == size


def threads(rank, size):
    """Messages and batches of one thread do not wait for a blocking collective of another thread."""
    # Regression: a message took the lock that the collective held, and the collective waited for the messages.
    group = dist.new_group(timeout=seconds(20))
    backend = group._get_backend(torch.device("cpu"))
    x, a, b = torch.ones(1), torch.zeros(1), torch.zeros(1)

    def call(operation, tensor, peer, batched):
        if batched:
            dist.batch_isend_irecv([dist.P2POp(operation, tensor, peer, group)])[0].wait()
        else:
            operation(tensor, peer, group).wait()

    def exchange(batched, before, errors):
        try:
            while backend._get_sequence_number_for_group() == before:
                time.sleep(0.01)
            time.sleep(0.1)  # the collective has its lock
            call(dist.irecv, a, 1, batched)
            call(dist.isend, b, 1, batched)
        except Exception as error:  # torch has several classes
            errors.append(error)

    for batched in (False, True):
        errors = []
        if rank == 0:
            other = threading.Thread(target=exchange,
                                     args=(batched, backend._get_sequence_number_for_group(), errors))
            other.start()
            dist.all_reduce(x, group=group)
            other.join()
        else:
            call(dist.isend, a, 0, batched)
            call(dist.irecv, b, 0, batched)
            dist.all_reduce(x, group=group)
        assert not errors, errors
    assert x.item() == size * size


class SlowToDelete(dist.Store):
    """A store in which an id stays until another rank has gone on."""

    def __init__(self, store):
        super().__init__()
        self.store = store

    def set(self, key, value):
        self.store.set(key, value)

    def clone(self):
        return self.store.clone()

    def deleteKey(self, key):
        self.store.wait(["joins again"])
        time.sleep(0.3)
        return self.store.delete_key(key)


def renewed(rank, size):
    """A group of the same name and store as an earlier one finds nothing of the earlier one."""
    world = dist.distributed_c10d._get_default_store()

    def join(store, timeout=60):
        return tutti.torch._backend.create(store, rank, size, tutti.torch.Options(timeout=seconds(timeout)))

    def ones(group):
        group.allreduce([torch.ones(1)]).wait()

    # Regression: the keys of a monitored barrier stayed, and the later group's barrier passed at once.
    store = dist.PrefixStore("renewed/monitored", world)
    first = join(store)
    ones(first)
    first.monitored_barrier(seconds(60))
    ones(first)
    assert not any("monitored" in key for key in store.list_keys()), store.list_keys()
    first.shutdown()
    second = join(store)
    if rank == 0:
        fails(lambda: second.monitored_barrier(seconds(0.2)), "Rank 1 failed to pass monitoredBarrier")
    ones(second)
    # Regression: the later group's receiver took the id of an earlier send that no receive had met.
    store = dist.PrefixStore("renewed/messages", world)
    first = join(store)
    ones(first)
    if rank == 0:
        before = len(store.list_keys())
        lost = first.send([torch.ones(1)], 1, 0)
        while len(store.list_keys()) == before:
            time.sleep(0.01)
        dist.barrier()
        first.abort()
        fails(lost.wait, "abort")
    else:
        dist.barrier()
        first.abort()
    second = join(store)
    x = torch.zeros(1)
    (second.send([torch.ones(1)], 1, 0) if rank == 0 else second.recv([x], 0, 0)).wait(seconds(30))
    assert rank == 0 or x.item() == 1
    # Regression: a rank joined again before rank 0 had deleted the old id, and waited with it for nobody.
    store = dist.PrefixStore("renewed/id", world)
    if rank == 0:
        join(SlowToDelete(store))
    else:
        join(store)
        store.set("joins again", "")
    ones(join(store, 20))
    # Regression: the id stayed in the store when not all ranks came.
    store = dist.PrefixStore("renewed/alone", world)
    if rank == 0:
        fails(lambda: join(store, 0.3))
        assert not store.check(["tutti/id"])
    dist.barrier()


def functional(rank, size):
    """Functional collectives and DTensor."""
    from torch.distributed import _functional_collectives as collective
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    world = dist.group.WORLD
    assert collective.all_reduce(torch.ones(2), "sum", world).tolist() == [size] * 2
    assert collective.all_gather_tensor(torch.full((2,), float(rank)), 0, world)[::2].tolist() == list(range(size))
    assert collective.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, world).tolist() == [size] * 2
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(8.0 * size).reshape(-1, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert isinstance(sharded, DTensor)
    assert (sharded.redistribute(mesh, [Replicate()]).to_local() == whole).all()
    assert (sharded.redistribute(mesh, [Shard(1)]).full_tensor() == whole).all()


def _model():
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(50, 32), layer, torch.nn.Linear(32, 50))


def _loss(model, microbatch):
    """Of one quarter of the batch, as a part of the whole batch's mean."""
    torch.manual_seed(100 + microbatch)
    tokens = torch.randint(50, (2, 9))
    return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def _digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def _alone(steps):
    """One process that adds the microbatches' gradients in the canonical order: ((0+1)+(2+3)) / 4."""
    model = _model()
    losses = []
    for _ in range(steps):
        halves = []
        for first in (0, 2):
            model.zero_grad()
            parts = [_loss(model, first + i) for i in range(2)]
            for part in parts:
                part.backward()
            losses += [part.item() for part in parts]
            halves.append([p.grad.clone() for p in model.parameters()])
        with torch.no_grad():
            for p, a, b in zip(model.parameters(), *halves):
                p -= 0.125 * ((a + b) / MICROBATCHES)
    return model, [sum(losses[i:i + 4]) / 4 for i in range(0, len(losses), 4)]


def ddp(rank, size):
    """DDP has the bits of one process, at 2 and at 4 ranks."""
    model = _model()
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
    each = MICROBATCHES // size
    for _ in range(3):
        model.zero_grad()
        for i in range(each):
            parallel.require_backward_grad_sync = i == each - 1
            (_loss(parallel, rank * each + i) / each).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.125 * p.grad
    assert _digest(model) == _digest(_alone(3)[0]), "other bits than one process"


def ddp_hooks(rank, size):
    """DDP with torch's communication hooks, whose callbacks issue calls."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, state in ((default_hooks.bf16_compress_hook, None),
                        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2))):
        model = _model()
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        parallel.register_comm_hook(state, hook)
        for _ in range(4):
            model.zero_grad()
            _loss(parallel, rank).backward()
        checks = [None] * size
        dist.all_gather_object(checks, [p.grad.sum().item() for p in model.parameters()])
        assert all(check == checks[0] for check in checks), hook


def compressed(rank, size):
    """tutti's compression: 16 bits come close to the mean; PowerSGD loses nothing but what it still holds back."""
    import tutti.ddp

    steps = 3
    for method, tolerance in (("f16", 1e-3), ("bf16", 1e-2), ("powersgd", None)):
        wanted = _model()
        _loss(wanted, rank).backward()
        for p in wanted.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        model = _model()
        parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
        tutti.ddp.compress(parallel, method, rank=2)
        totals = [torch.zeros_like(p) for p in model.parameters()]
        for _ in range(steps):
            model.zero_grad()
            _loss(parallel, rank).backward()
            for total, p in zip(totals, model.parameters()):
                total += p.grad
        for total, p, right in zip(totals, model.parameters(), wanted.parameters()):
            scale = steps * right.grad.abs().max().item()
            if tolerance is None:  # the mean of what the ranks hold back is the rest
                held = _held_back(parallel, p)
                dist.all_reduce(held, dist.ReduceOp.AVG)
                total, tolerance_here = total + held.view_as(total), 1e-4
            else:
                tolerance_here = tolerance
            assert (total - steps * right.grad).abs().max().item() <= tolerance_here * scale + 1e-7, method
    fails(lambda: tutti.ddp.compress(parallel, "zip"), "'zip' is unknown")


def _held_back(parallel, parameter):
    """What PowerSGD has not sent yet of a parameter's gradient."""
    state = parallel._comm_hooks[0][1]
    return state.residuals.get(parameter, torch.zeros_like(parameter)).clone()


def tensor_parallel(rank, size):
    """A feed-forward block, its columns and rows on the ranks, computes what one process does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(3)
    block = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.Linear(24, 12))
    x = torch.randn(5, 12)
    alone = copy.deepcopy(block)
    alone(x).square().sum().backward()
    sharded = parallelize_module(block, init_device_mesh("cpu", (size,)),
                                 {"0": ColwiseParallel(), "2": RowwiseParallel()})
    y = sharded(x)
    y.square().sum().backward()
    assert torch.allclose(y, alone(x), atol=1e-5)
    gradient = sharded[0].weight.grad.full_tensor()
    assert torch.allclose(gradient, alone[0].weight.grad, atol=1e-4)


def _trains_as_alone(model, rank, size):
    """Three steps over this rank's share of the batches, each with the loss of one process."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    each = MICROBATCHES // size
    wanted = _alone(3)[1]
    for step in range(3):
        optimizer.zero_grad()
        loss = sum(_loss(model, rank * each + i) for i in range(each)) / each
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        assert abs(mean.item() - wanted[step]) < 1e-5, (step, mean.item(), wanted[step])


def fsdp1(rank, size):
    """FSDP1 has the losses of one process."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(_model(), device_id=torch.device("cpu"), use_orig_params=True)
    _trains_as_alone(model, rank, size)


def profiled(rank, size):
    """The profiler's ranges have tutti's names, and one call has one range with the shapes of all its inputs."""
    inputs = [torch.ones(2, 3), torch.ones(5)]
    outputs = [[torch.empty_like(x) for x in inputs] for _ in range(size)]
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(7))
        dist.all_gather_coalesced(outputs, inputs)
        work = dist.isend(torch.ones(4), (rank + 1) % size)
        dist.recv(torch.empty(4), (rank - 1) % size)
        work.wait()
    ranges = {event.name: event.input_shapes for event in profile.function_events if event.name.startswith("tutti:")}
    assert ranges["tutti:all_reduce"] == [[7]] and ranges["tutti:send"] == [[4]], ranges
    assert ranges["tutti:all_gather"] == [[2, 3], [5]], ranges


def shrunk(rank, size):
    """A group without its last rank goes on after that rank has left; the whole world becomes smaller too."""
    group = dist.new_group()
    if rank == size - 1:
        return
    smaller = dist.shrink_group([size - 1], group)
    x = torch.ones(1)
    dist.all_reduce(x, group=smaller)
    assert smaller.size() == size - 1 and x.item() == size - 1
    world = dist.shrink_group([size - 1])
    assert dist.get_world_size() == size - 1 == world.size()
    dist.all_reduce(x)
    assert x.item() == (size - 1) ** 2


def _spawned(rank, size, path):
    dist.init_process_group("tutti", init_method=f"file://{path}", rank=rank, world_size=size)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size
    # Nothing is destroyed: the process must end all the same.


def spawn(method):
    """multiprocessing: ranks of this process, by spawn or fork, without a launcher."""
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(_spawned, (2, os.path.join(folder, "store")), 2, start_method=method)


def fsdp(rank, size):
    """FSDP2 has the losses of one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    mesh = init_device_mesh("cpu", (size,))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    _trains_as_alone(model, rank, size)


def timeouts(rank, size):
    """A missing rank: the deadline of the group, of the call, of a receive, of the monitored barrier."""
    short = dist.new_group(timeout=seconds(1))
    long = dist.new_group(timeout=seconds(300))
    if rank == 0:
        text = fails(lambda: dist.barrier(short), " Timed out ", "1000ms")
        assert "rank 1" in text, text
        fails(lambda: dist.recv(torch.ones(1), 1, group=short), "Timed out")
        fails(lambda: dist.monitored_barrier(long, timeout=seconds(0.1)), "Rank 1 failed to pass monitoredBarrier")
        fails(lambda: long.barrier(timeout=seconds(0.1)).wait(), "Timed out waiting 100ms")
    dist.barrier()


def mismatch(rank, size):
    """Different calls: the sentence is on both ranks."""
    text = fails(lambda: dist.all_reduce(torch.ones(5 if rank == 0 else 6)), "count 5", "count 6")
    print(text.splitlines()[0])


def aborted(rank, size):
    """abort ends the operations of all ranks, and the group's end does not hang."""
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        message = dist.irecv(torch.ones(1), 1, group=group)
        backend.abort()
        dist.barrier()
        fails(work.wait, "abort")
        fails(message.wait, "abort")
        fails(lambda: dist.all_reduce(torch.ones(1), group=group), "aborted or destroyed")
    else:
        dist.barrier()  # a call before the abort would complete rank 0's
        fails(lambda: dist.all_reduce(torch.ones(1), group=group), "abort")
    dist.barrier()


def killed(rank, size):
    """A killed rank is named by the others."""
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print(fails(lambda: dist.all_reduce(torch.ones(1)), "rank 1").splitlines()[0])


def left_alone(rank, size):
    """The program ends with live groups, an unfinished call and an unmet receive."""
    kept.append(dist.irecv(torch.ones(1), (rank + 1) % size, tag=9))
    kept.append(dist.new_group())
    if rank == 0:
        kept.append(dist.all_reduce(torch.ones(1), async_op=True))


kept = []

if __name__ == "__main__":
    names = sys.argv[1:]
    if names[0] == "spawn":
        spawn(names[1])
        sys.exit(0)
    options = tutti.torch.Options(reproducible="ddp" in names)
    dist.init_process_group("tutti", pg_options=options, timeout=seconds(120))
    for name in names:
        globals()[name](dist.get_rank(), dist.get_world_size())
    if not {"killed", "mismatch", "left_alone", "shrunk"} & set(names):
        dist.destroy_process_group()
