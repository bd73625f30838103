"""What the ranks of python_test.py do: scenarios.py NAME, started by tutti.launch. A failed assertion fails the rank."""

import array
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import types
import weakref

import numpy as np

import tutti
from tutti._library import check, ffi, lib

HOURS = 3600  # a wait that a signal ends


def arrays(comm):
    """Every collective on NumPy arrays, with results made by the call and passed to it."""
    rank, size = comm.rank, comm.size
    x = np.full((2, 3), rank + 1.0, np.float32)
    assert comm.all_reduce(x) is x
    assert (x == size * (size + 1) / 2).all()
    y = np.empty(2, np.int64)
    comm.all_reduce(np.array([rank, -rank]), y, tutti.MAX)
    assert y.tolist() == [size - 1, 0]
    gathered = comm.all_gather(np.full(3, rank, np.int16))
    assert gathered.shape == (size, 3) and (gathered == np.arange(size)[:, None]).all()
    block = comm.reduce_scatter(np.arange(2.0 * size))
    assert block.tolist() == [size * 2 * rank, size * (2 * rank + 1)]
    swapped = comm.all_to_all(np.arange(size) + 10 * rank)
    assert swapped.tolist() == [10 * peer + rank for peer in range(size)]
    reduced = comm.reduce(np.ones(2, np.uint8), op=tutti.BOR, root=1)
    assert (reduced is None) == (rank != 1)
    top = comm.gather(np.array([rank]), root=0)
    assert (top.ravel().tolist() == list(range(size))) if rank == 0 else top is None
    part = np.empty(1)
    comm.scatter(np.arange(float(size)) if rank == 0 else None, part, root=0)
    assert part[0] == rank
    assert comm.broadcast(np.full(2, rank), root=1).tolist() == [1, 1]
    comm.barrier()
    assert "barrier" in comm.explain()


def counts(comm):
    """The collectives with a count for each rank."""
    rank, size = comm.rank, comm.size
    sizes = list(range(1, size + 1))
    gathered = comm.all_gather(np.full(rank + 1, rank), counts=sizes)
    assert gathered.tolist() == [r for r in range(size) for _ in range(r + 1)]
    mine = comm.reduce_scatter(np.ones(sum(sizes)), counts=sizes)
    assert mine.tolist() == [size] * (rank + 1)
    outgoing, incoming = [rank + peer for peer in range(size)], [peer + rank for peer in range(size)]
    moved = comm.all_to_all(np.full(sum(outgoing), rank), send_counts=outgoing, recv_counts=incoming)
    assert moved.tolist() == [peer for peer in range(size) for _ in range(incoming[peer])]
    pairs = comm.all_gather(np.full(rank + 1, 1j * rank, np.complex64), counts=sizes)
    assert pairs.dtype == np.complex64 and pairs.tolist() == [1j * r for r in range(size) for _ in range(r + 1)]
    nothing = comm.all_to_all(np.empty(0), send_counts=[0] * size, recv_counts=[0] * size)
    assert nothing.shape == (0,)


def named_algorithm(comm):
    """An algorithm that a communicator is made with runs its calls; a name of none is refused."""
    name = comm.broadcast(np.frombuffer(tutti.unique_id(), np.uint8).copy(), root=0).tobytes()
    with tutti.Communicator.from_id(name, comm.rank, comm.size, algorithm="ring") as named:
        named.all_reduce(np.ones(9))
        assert "algorithm ring, by config.algorithm" in named.explain(), named.explain()
    for wrong in ("rong", b"ring", 3, "ring\0x", "\ud800"):
        try:
            tutti.Communicator.from_id(name, comm.rank, comm.size, algorithm=wrong)
            assert False, f"accepted {wrong!r}"
        except tutti.InvalidArgumentError as error:
            assert repr(wrong).strip("'") in str(error), error


class OnlyDlpack:
    """An array of a library that tutti does not know."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **arguments):
        return self.values.__dlpack__(**arguments)


class _Jax(OnlyDlpack):
    """An array that may not change and does not say so, as jax's."""

    def __dlpack__(self):
        return self.values.__dlpack__()


_Jax.__module__ = "jaxlib.stand_in"


def _jax_ones():
    return _Jax(np.ones(4))


def kinds(comm):
    """Element types, and arrays of other kinds than NumPy's: the buffer protocol and DLPack."""
    for name in ("bool", "int8", "uint16", "uint64", "float16", "float64"):
        x = np.ones(5, name)
        comm.all_reduce(x, op=tutti.MAX)
        assert (x == 1).all(), name
    x = np.array([1 + 2j, 3j], np.complex64)
    comm.all_reduce(x)
    assert (x == comm.size * np.array([1 + 2j, 3j])).all()
    numbers = array.array("i", [comm.rank, 1])
    comm.all_reduce(numbers)
    assert numbers.tolist() == [comm.size * (comm.size - 1) // 2, comm.size]
    text = bytearray(b"root" if comm.rank == 0 else 4)
    assert comm.broadcast(text) == b"root"
    values = np.ones(3, np.float32)
    comm.all_reduce(OnlyDlpack(values))
    assert (values == comm.size).all()
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # DLPack's version 1
        values.flags.writeable = False
        assert (comm.all_gather(OnlyDlpack(values), np.empty(3 * comm.size, np.float32)) == comm.size).all()
    assert (comm.all_reduce(_jax_ones(), np.empty(4)) == comm.size).all()
    try:
        import ml_dtypes
    except ImportError:
        return
    x = np.ones(4, ml_dtypes.bfloat16)
    comm.all_reduce(x)
    assert (x == comm.size).all()


def nothing_to_do(comm):
    """Arrays without elements."""
    for call in (comm.all_reduce, comm.all_gather, comm.reduce_scatter, comm.all_to_all, comm.broadcast, comm.gather):
        result = call(np.empty((0, 3), np.float32))
        assert result is None or result.size == 0
    comm.all_reduce(bytearray())


def torch_tensors(comm):
    """Tensors of torch, with bfloat16 and float8."""
    import torch
    for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        x = torch.ones(5, dtype=kind)
        comm.all_reduce(x)
        assert (x == comm.size).all(), kind
    if hasattr(torch, "float8_e5m2"):
        x = torch.ones(4).to(torch.float8_e5m2)
        comm.all_reduce(x)
        assert (x.float() == comm.size).all()
    assert comm.all_gather(torch.full((2,), comm.rank)).tolist() == [[r, r] for r in range(comm.size)]
    for lazy in (torch.ones(2, dtype=torch.complex64).conj(), torch.ones(2, dtype=torch.complex64).conj().imag):
        _raises(tutti.InvalidArgumentError, "resolve_", lambda lazy=lazy: comm.all_reduce(lazy.unsqueeze(0)[:, :1]))


class _DeviceArray:
    """Eight numbers in the memory of a communicator's device, made on a stream, as CuPy gives them."""

    def __init__(self, comm, made_on):
        pointer = ffi.new("void**")
        check(lib.tutti_comm_mem_alloc(comm._handle, pointer, 64))
        self.address = int(ffi.cast("uintptr_t", pointer[0]))
        self.__cuda_array_interface__ = {"shape": (8,), "typestr": "<f8", "data": (self.address, False), "version": 3,
                                         "stream": made_on}
        self.dtype = "float64"


class _Cuda:
    """The driver, with a word that streams wait for until `go`."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context := ctypes.c_void_p()), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.pinned = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(self.pinned), 4096, 3)  # portable, mapped
        self.words = (ctypes.c_double * 512).from_address(self.pinned.value)

    def call(self, name, *arguments):
        assert getattr(self.driver, name)(*arguments) == 0, name

    def stream(self, waits=False):
        self.call("cuStreamCreate", ctypes.byref(made := ctypes.c_void_p()), 1)
        if waits:
            self.words[0] = 0.0
            self.call("cuStreamWaitValue32_v2", made, self.pinned, 1, 1)
        return made

    def go(self):
        ctypes.c_uint32.from_address(self.pinned.value).value = 1

    def copy(self, to, source, stream):
        address = self.pinned.value + 8 * 8
        to, source = (address if one is None else one for one in (to, source))
        self.call("cuMemcpyAsync", ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(64), stream)

    def values(self, array_):
        self.copy(None, array_.address, stream := self.stream())
        self.call("cuStreamSynchronize", stream)
        return self.words[8:16]


def _on_device(comm):
    identifier = comm.broadcast_object(tutti.unique_id() if comm.rank == 0 else None)
    return tutti.Communicator.from_id(identifier, comm.rank, comm.size, device=0)


def device_arrays(comm):
    """A call on a device begins when its array is made, whatever stream makes it."""
    with _on_device(comm) as ours:
        cuda = _Cuda()
        for blocks in (True, False):
            maker, other = cuda.stream(waits=True), cuda.stream()
            made = _DeviceArray(ours, maker.value)
            cuda.words[8:16] = [1.0 + comm.rank] * 8
            cuda.copy(made.address, None, maker)

            def go():
                for _ in range(2000):  # a call that does not wait has ended by then
                    os.sched_yield()
                cuda.go()

            opener = threading.Thread(target=go)
            opener.start()
            if blocks:
                ours.all_reduce(made)
            else:
                ours.all_reduce(made, stream=other.value)
            opener.join()
            cuda.call("cuStreamSynchronize", other)
            assert cuda.values(made) == [3.0] * 8, (blocks, cuda.values(made))


def device_arrays_dropped(comm):
    """An array on a device lives until the stream has passed its call. It was freed under the call."""
    with _on_device(comm) as ours:
        cuda = _Cuda()
        for in_group in (False, True):
            stream = cuda.stream(waits=True)
            made = _DeviceArray(ours, None)
            alive = weakref.ref(made)
            with tutti.group() if in_group else contextlib.nullcontext():
                ours.all_reduce(made, stream=stream.value).wait()
            del made
            assert alive() is not None, "freed before the call was complete"
            comm.barrier()
            cuda.go()
            cuda.call("cuStreamSynchronize", stream)
            ours.all_reduce(_DeviceArray(ours, None), stream=stream.value)
            assert alive() is None, "kept after the call"


def streams(comm):
    """Calls on a stream return at once, keep their arrays, and complete in order."""
    with tutti.Stream() as stream:
        x = np.ones(1000)
        first = comm.all_reduce(x, stream=stream)
        second = comm.all_gather(np.ones(2), stream=stream)
        assert second.wait().shape == (comm.size, 2)
        assert stream.is_idle() and first.wait() is x and x[0] == comm.size
        last = comm.all_gather(np.ones(2), stream=stream)
    assert last.wait().shape == (comm.size, 2)  # the end of the block waited


class _Tensor:
    """What the package asks of a tensor of torch. Its pointer alone keeps nothing alive."""
    dtype, device = "float64", types.SimpleNamespace(type="cpu")

    def __init__(self, length):
        self._values = np.zeros(length)
        self.shape = (length,)

    is_contiguous = staticmethod(lambda: True)
    is_conj = is_neg = staticmethod(lambda: False)

    def data_ptr(self):
        return self._values.ctypes.data

    def numel(self):
        return self._values.size


def dropped(comm):
    """Arrays that the program drops outlive their calls on a stream. They were freed under the calls."""
    turns, length = 50, 5000
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    gate, arrays_, results = comm.split(0), [], []
    with tutti.Stream() as stream:
        if comm.rank:
            gate.barrier(stream=stream)  # the other ranks' calls, and so rank 0's, wait until rank 0 opens
        for turn in range(turns):
            summed, sent, got = (np.full(length, float(turn)) for _ in range(3))
            comm.all_reduce(summed, stream=stream)
            total, reduced = _Tensor(length), _Tensor(length)
            comm.all_reduce(summed, total, stream=stream)
            comm.reduce(summed, reduced, stream=stream)
            with tutti.group():
                comm.send(sent, after, stream=stream)
                comm.recv(got, before, stream=stream)
            results.append(comm.all_gather(got[:1], stream=stream))
            arrays_ += map(weakref.ref, (summed, sent, got, total))
            arrays_ += [weakref.ref(reduced)] if comm.rank == 0 else []
            del summed, sent, got, total, reduced
        if comm.rank == 0:
            assert all(array_() is not None for array_ in arrays_), "freed before the calls were complete"
            gate.barrier()
        assert [work.wait()[-1, 0] for work in results] == list(range(turns))
    assert all(array_() is None for array_ in arrays_), "kept after the calls"
    gate.close()
    _raises(tutti.InvalidUsageError, "stream is closed", stream.synchronize)
    _raises(tutti.InvalidUsageError, "stream is closed", lambda: comm.barrier(stream=stream))
    _raises(tutti.InvalidUsageError, "communicator is closed", gate.barrier)
    _raises(tutti.InvalidUsageError, "communicator is closed", lambda: gate.recv_any(np.ones(1)))


def point_to_point(comm):
    """A ring of messages in one group, in which every rank also sends to itself; messages of any rank."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    got, own = np.zeros(1000), np.zeros(1)
    with tutti.group():
        comm.send(np.full(1000, comm.rank), after, tag=7)
        comm.recv(own, comm.rank)
        comm.send(np.array([5.0]), comm.rank)
        comm.recv(got.view(np.int64), before, tag=7)
    assert (got.view(np.int64) == before).all() and own[0] == 5
    assert comm.broadcast_object({"from": comm.rank}, root=1) == {"from": 1}
    comm.barrier()
    if comm.rank == 0:
        sources = []
        for _ in range(comm.size - 1):
            sources.append(comm.recv_any(got, tag=3))
            assert (got == sources[-1]).all()
        assert sorted(sources) == list(range(1, comm.size))
    else:
        comm.send(np.full_like(got, comm.rank), 0, tag=3)


def raising_group(comm):
    """A block that raises issues none of its calls; the exception and the communicator go on."""
    for place in (0, 1):  # also in the inner one of two groups
        try:
            with tutti.group():
                comm.send(np.ones(1 << 20), (comm.rank + 1) % comm.size)
                with tutti.group():
                    if place:
                        raise KeyError("inner")
                raise KeyError("outer")
        except KeyError:
            pass
        assert (comm.all_reduce(np.ones(3)) == comm.size).all()


def members(comm):
    """Split by parity, a rank without a communicator, and shrink."""
    half = comm.split(comm.rank % 2)
    assert half.all_gather(np.array([comm.rank])).ravel().tolist() == list(range(comm.rank % 2, comm.size, 2))
    half.close()
    assert (comm.split(None if comm.rank == 0 else 0) is None) == (comm.rank == 0)
    if comm.rank == comm.size - 1:
        return
    with comm.shrink([comm.size - 1]) as smaller:
        assert smaller.size == comm.size - 1
        smaller.barrier()


def _raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), (text, str(error))
    else:
        raise AssertionError(f"no error: {text}")


def _in_group(call):
    with tutti.group():
        call()


def arguments(comm):
    """Wrong arguments raise, name the argument, and send nothing."""
    frozen = np.ones(4)
    frozen.flags.writeable = False
    cases = [
        (lambda: comm.all_reduce(np.ones((4, 4))[:, 0]), tutti.InvalidArgumentError, "not contiguous"),
        (lambda: comm.all_reduce(frozen), tutti.InvalidArgumentError, "read-only"),
        (lambda: comm.all_reduce(b"bytes"), tutti.InvalidArgumentError, "read-only"),
        (lambda: comm.all_reduce(OnlyDlpack(frozen)), tutti.InvalidArgumentError, "only"),
        (lambda: comm.all_reduce(_jax_ones()), tutti.InvalidArgumentError, "read-only"),
        (lambda: comm.all_reduce(3), tutti.InvalidArgumentError, "a int is no array"),
        (lambda: comm.all_reduce(np.array(["a"])), tutti.UnsupportedError, "elements of type str"),
        (lambda: comm.all_reduce(np.ones(2, ">f4")), tutti.UnsupportedError, "byte order"),
        (lambda: comm.all_reduce(np.ones(2), np.ones(3)), tutti.InvalidArgumentError, "recv has 3 elements"),
        (lambda: comm.all_reduce(np.ones(2), np.ones(2, int)), tutti.InvalidArgumentError, "different types"),
        (lambda: comm.all_reduce(np.ones(2, complex), op=tutti.MAX), tutti.InvalidArgumentError, "SUM and AVG"),
        (lambda: comm.all_reduce(np.ones(2), op=99), tutti.InvalidArgumentError, "op"),
        (lambda: comm.all_reduce(np.ones(2), op="sum"), tutti.InvalidArgumentError, "op, root, peer and tag are whole"),
        (lambda: comm.broadcast(np.ones(2), root="0"), tutti.InvalidArgumentError, "op, root, peer and tag are whole"),
        (lambda: comm.set_timeout(-1), tutti.InvalidArgumentError, "timeout_ms is -1"),
        (lambda: comm.broadcast(np.ones(2), root=99), tutti.InvalidArgumentError, "root"),
        (lambda: comm.reduce_scatter(np.ones(comm.size + 1)), tutti.InvalidArgumentError, "first dimension"),
        (lambda: comm.all_gather(np.ones(2), counts=[1]), tutti.InvalidArgumentError, "counts has 1"),
        (lambda: comm.all_gather(np.ones(2), counts=[2, -1]), tutti.InvalidArgumentError, "the entry -1"),
        (lambda: comm.all_gather(np.ones(2), counts=[1, 1]), tutti.InvalidArgumentError, "send has 2"),
        (lambda: comm.all_gather(np.ones(2), np.ones(4, "f4"), counts=[2, 2]), tutti.InvalidArgumentError, "types"),
        (lambda: comm.reduce_scatter(np.ones(4), np.ones(2, "f4"), counts=[2, 2]), tutti.InvalidArgumentError, "types"),
        (lambda: comm.all_to_all(np.ones(2), np.ones(2, "f4"), send_counts=[1, 1], recv_counts=[1, 1]),
         tutti.InvalidArgumentError, "types"),
        (lambda: comm.reduce_scatter(np.ones(4, complex), op=tutti.MAX, counts=[2, 2]), tutti.InvalidArgumentError,
         "SUM and AVG"),
        (lambda: comm.all_reduce(memoryview(np.ones(2, complex)), op=tutti.MAX), tutti.InvalidArgumentError, "SUM"),
        (lambda: _in_group(comm.broadcast_object), tutti.InvalidUsageError, "outside the group"),
        (lambda: comm.all_reduce(np.ones(2), stream="s"), tutti.InvalidArgumentError, "no stream"),
        (lambda: comm.split(-5), tutti.InvalidArgumentError, "color is -5"),
        (lambda: tutti.Communicator.from_id(b"short", 0, 1), tutti.InvalidArgumentError, "has 5 bytes"),
    ]
    for call, kind, text in cases:
        _raises(kind, text, call)
    comm.barrier()


def _report(comm, call):
    try:
        call()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("no error")


def killed(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _report(comm, lambda: comm.all_reduce(np.ones(4)))


def mismatch(comm):
    _report(comm, lambda: comm.all_reduce(np.ones(4 if comm.rank else 5)))


def late(comm):
    """Rank 0 makes no call until the others have their errors."""
    comm.set_timeout(200)
    if comm.rank:
        _report(comm, comm.barrier)
    else:
        while comm_is_well(comm):
            pass
        _report(comm, comm.barrier)


def killed_on_stream(comm):
    """Every Work of a failed call says so, also after the stream has said it; the arrays are not the results."""
    stream = tutti.Stream()
    good = comm.all_gather(np.ones(1), stream=stream)
    good.wait()
    if comm.rank != 1:
        comm.send(np.ones(1), 1)
    else:
        for peer in (0, *range(2, comm.size)):
            comm.recv(np.ones(1), peer)
        os.kill(os.getpid(), signal.SIGKILL)
    works = [comm.all_reduce(np.ones(4), stream=stream) for _ in range(3)]
    for wait in (stream.synchronize, works[2].wait, works[0].wait):
        _raises(tutti.PeerLostError, "rank 1", wait)
    assert good.wait().ravel().tolist() == [1.0] * comm.size
    works.append(comm.all_reduce(np.ones(4), stream=stream))
    _raises(tutti.PeerLostError, "rank 1", stream.close)
    for work in works:
        _raises(tutti.PeerLostError, "rank 1", work.wait)


def aborted(comm):
    """An abort by another thread ends a blocked call with AbortedError on all ranks."""
    if comm.rank == 0:
        thread = threading.Thread(target=lambda: (_until(lambda: comm._blocked), comm.abort()))
        thread.start()
        # The call may begin after the abort.
        _raises((tutti.AbortedError, tutti.InvalidUsageError), "abort", lambda: comm.recv(np.ones(1), 1))
        thread.join()
    else:
        _raises(tutti.AbortedError, "rank 0", comm.barrier)


def _until(condition):
    while not condition():
        pass


def forgotten(comm):
    """A communicator that nobody holds is closed: the others hear that the rank has left, and no descriptor stays."""
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    comm.split(0).barrier()
    before = open_files()
    for _ in range(20):
        comm.split(0).barrier()
    _until(lambda: open_files() <= before)  # another thread closes some of them
    other = comm.split(0)
    if comm.rank:
        _raises(tutti.PeerLostError, "rank 0, which has left", lambda: other.recv(np.ones(1), 0))
    del other
    comm.barrier()


def comm_is_well(comm):
    from tutti._library import ffi, lib
    error = ffi.new("tutti_result_t*")
    lib.tutti_comm_async_error(comm._handle, error)
    return error[0] == 0


def _interrupted(comm, wait):
    """Rank 1 has the launcher interrupted, as Ctrl-C does. Rank 0 is in a wait for rank 1, or about to be in it."""
    if comm.rank == 1:
        comm.barrier()  # ends when rank 0 reports what it gets
        _report(comm, lambda: (os.kill(os.getppid(), signal.SIGINT), threading.Event().wait(HOURS)))
    else:
        _report(comm, lambda: (comm.barrier(), wait()))


def interrupted(comm):
    _interrupted(comm, comm.barrier)


def interrupted_on_stream(comm):
    stream = tutti.Stream()
    _interrupted(comm, lambda: comm.barrier(stream=stream).wait())


def interrupted_in_group(comm):
    _interrupted(comm, lambda: _in_group(lambda: comm.recv(np.ones(4), 1)))


def live_at_exit(comm):
    """The process ends with a communicator, a stream, a group and dropped calls of its own still there."""
    stream = tutti.Stream()
    for _ in range(100):
        comm.all_reduce(np.ones(5000), stream=stream)
    keep.append((comm, comm.split(0), tutti.Stream()))


def failing(comm):
    """Rank 1 raises. The others are in a call and end too."""
    if comm.rank == 1:
        raise RuntimeError("rank 1 fails")
    comm.barrier()


def _forked_rank(identifier, rank, size, results):
    with tutti.Communicator.from_id(identifier, rank, size) as comm:
        x = np.ones(3)
        comm.all_reduce(x)
        results.put(x.tolist())


def forked():
    """multiprocessing's fork, with the id made in the parent."""
    context, identifier = multiprocessing.get_context("fork"), tutti.unique_id()
    results = context.SimpleQueue()
    ranks = [context.Process(target=_forked_rank, args=(identifier, rank, 3, results)) for rank in range(3)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    assert [results.get() for _ in ranks] == [[3.0] * 3] * 3


keep = []

if __name__ == "__main__":
    if sys.argv[1] == "forked":
        forked()
    else:
        with_comm = tutti.Communicator.from_launcher()
        for scenario in sys.argv[1:]:
            globals()[scenario](with_comm)
