"""Communicator: a group of ranks, and the collectives among them."""

import atexit
import pickle
import sys
from typing import Any, Optional, Sequence

from . import _cuda, _interrupt, _streams
from ._arrays import READERS, empty, is_complex, read, shape_of
from ._library import BLOCKING, NULL, check, ffi, lib
from ._streams import Work
from .errors import InvalidArgumentError, InvalidUsageError

SUM, PROD, MAX, MIN, AVG = lib.TUTTI_SUM, lib.TUTTI_PROD, lib.TUTTI_MAX, lib.TUTTI_MIN, lib.TUTTI_AVG
BAND, BOR, BXOR = lib.TUTTI_BAND, lib.TUTTI_BOR, lib.TUTTI_BXOR
_SHRINK_ABORT = 1  # TUTTI_SHRINK_ABORT, a macro
_CUDA_DEVICE = 0x10000  # TUTTI_CUDA_DEVICE(0), a macro
_LINEAR = (SUM, AVG)
_all_reduce = lib.tutti_all_reduce
_groups = _streams._groups


def unique_id() -> bytes:
    """A new communicator's name: 128 bytes. Pass it to the other ranks, and keep it secret.

    This process must live until all ranks have joined. It may make the id and then fork the ranks. Does not block.
    """
    made = ffi.new("tutti_unique_id_t*")
    check(lib.tutti_get_unique_id(made))
    return bytes(ffi.buffer(made))


def launcher_context() -> tuple[int, int]:
    """(rank, rank count) of this process in its job, from the launcher's environment; (0, 1) without a launcher."""
    rank, count = ffi.new("int*"), ffi.new("int*")
    check(lib.tutti_launcher_context(rank, count, NULL, NULL))
    return rank[0], count[0]


def _config(device, reproducible, threads, timeout_ms, setup_timeout_ms, algorithm):
    """`algorithm`: a char*, which outlives the config."""
    config = ffi.new("tutti_config_t*")
    config.size = ffi.sizeof("tutti_config_t")
    config.device = device if device < 0 else _CUDA_DEVICE + device
    config.reproducible, config.threads = reproducible, threads
    config.timeout_ms, config.setup_timeout_ms = timeout_ms, setup_timeout_ms
    config.algorithm = algorithm
    return config


def _name_of(algorithm):
    if not isinstance(algorithm, str) or not algorithm.isascii() or "\0" in algorithm:
        raise InvalidArgumentError(f"algorithm is {algorithm!r}; it is a name such as \"ring\", or None")
    return algorithm.encode()


def _no_number(error):
    """A call did not come about, because one of its numbers is none."""
    return InvalidArgumentError(f"op, root, peer and tag are whole numbers that are not negative, for example "
                                f"tutti.SUM: {error}")


def _complex_check(array, op):
    if op not in _LINEAR and is_complex(array):
        raise InvalidArgumentError("complex numbers have SUM and AVG only")


class Communicator:
    """A group of ranks. Use it as a context manager: it closes at the end, and aborts if the block raises.

    Arrays are NumPy's, torch's, CuPy's, or have DLPack or the buffer protocol. They must be contiguous (C order), and
    nothing is copied. Types: bool, int8 to uint64, float16, bfloat16, float32, float64, float8 (e4m3fn, e5m2),
    complex64 and complex128 (SUM and AVG only).

    Without `stream` a call blocks until it is complete on this rank, and Ctrl-C ends it (and the communicator). With
    `stream` (a tutti.Stream or a CUDA stream) it returns a Work at once. P is the rank count below. All ranks make
    the same calls in the same order, and one thread at a time uses a communicator.

    Errors of every call: InvalidArgumentError, UnsupportedError (type), InvalidUsageError (closed), and, after which
    only shrink, abort and close are legal, PeerLostError, TimeoutError, MismatchError, AbortedError.
    """

    def __init__(self, handle: Any, device: Any = None) -> None:
        self._handle = handle
        self._device = device  # None: host memory
        self._blocked = False
        number = ffi.new("int*")
        check(lib.tutti_comm_rank(handle, number))
        self.rank: int = number[0]
        check(lib.tutti_comm_count(handle, number))
        self.size: int = number[0]
        _interrupt.live.add(self)
        _interrupt.start()

    # ---- set-up and end ----

    @classmethod
    def from_id(cls, identifier: bytes, rank: int, size: int, *, device: int = -1, reproducible: bool = False,
                threads: int = 0, timeout_ms: int = 0, setup_timeout_ms: int = 0,
                algorithm: Optional[str] = None) -> "Communicator":
        """Joins a communicator of `size` ranks as `rank`. `identifier` comes from unique_id() of one process.

        device: -1 for host memory, else a CUDA device. timeout_ms: the deadline of one call (0: 600,000);
        setup_timeout_ms: of this call (0: 120,000). algorithm: used for every call that it supports, for example
        "ring" (tutti-plan --list); None: the library chooses. Blocks until all ranks have joined. Errors: TimeoutError
        names the absent ranks; VersionMismatchError, PeerLostError, SystemCallError, UnsupportedError.
        """
        if len(identifier) != 128:
            raise InvalidArgumentError(f"the id has {len(identifier)} bytes; an id of unique_id() has 128")
        name = ffi.new("tutti_unique_id_t*")
        ffi.memmove(name, identifier, 128)
        wanted = NULL if algorithm is None else ffi.new("char[]", _name_of(algorithm))
        config = _config(device, reproducible, threads, timeout_ms, setup_timeout_ms, wanted)
        made = ffi.new("tutti_comm_t**")
        _interrupt.interruptible(lambda: check(lib.tutti_comm_create(made, size, name[0], rank, config)))
        return cls(made[0], _cuda.device(device))

    @classmethod
    def from_launcher(cls, **config: Any) -> "Communicator":
        """Joins all ranks of this job: mpirun, srun, torchrun, tutti.launch. Without a launcher: one rank.

        Keywords and errors are those of from_id; also InvalidUsageError (variables of launchers contradict each
        other, or a key is missing: docs/hosts.md). Blocks until all ranks have joined.
        """
        rank, size = launcher_context()
        name = ffi.new("tutti_unique_id_t*")
        if rank == 0:
            check(lib.tutti_get_unique_id(name))
        patience = config.get("setup_timeout_ms", 0)
        _interrupt.interruptible(
            lambda: check(lib.tutti_share_unique_id(name, b"launcher", rank, size, patience)))
        comm = cls.from_id(bytes(ffi.buffer(name)), rank, size, **config)
        check(lib.tutti_forget_file(b"launcher", rank))
        return comm

    def split(self, color: Optional[int], key: int = 0) -> Optional["Communicator"]:
        """Ranks of equal color form a new communicator, ordered by key, then by rank. Collective, blocks.

        color None: this rank takes part, and the result is None.
        """
        made = ffi.new("tutti_comm_t**")
        number = -1 if color is None else color
        if color is not None and color < 0:
            raise InvalidArgumentError(f"color is {color}; pass 0 or more, or None for no communicator")
        handle = self._alive()
        _interrupt.interruptible(lambda: check(lib.tutti_comm_split(handle, number, key, made, NULL)))
        return Communicator(made[0], self._device) if made[0] != NULL else None

    def shrink(self, exclude: Sequence[int] = (), *, abort: bool = False) -> "Communicator":
        """A new communicator of the living ranks, without `exclude`. All living ranks call; blocks.

        abort: first ends the calls under way on all ranks. Close this communicator afterwards. Errors: TimeoutError
        (names the missing ranks), MismatchError (other ranks exclude others), PeerLostError.
        """
        made, ranks = ffi.new("tutti_comm_t**"), ffi.new("int[]", list(exclude))
        handle = self._alive()
        _interrupt.interruptible(lambda: check(lib.tutti_comm_shrink(
            handle, ranks, len(exclude), _SHRINK_ABORT if abort else 0, made, NULL)))
        return Communicator(made[0], self._device)

    def _alive(self):
        if self._handle == NULL:
            raise InvalidUsageError("the communicator is closed; make a new one")
        return self._handle

    def close(self) -> None:
        """Waits for this rank's calls, then frees. Not collective. A second call does nothing."""
        handle, self._handle = self._handle, NULL
        if handle != NULL:
            check(lib.tutti_comm_destroy(handle))
        if self._device is not None:
            self._device.sweep()

    def abort(self) -> None:
        """Ends every call of this communicator on all ranks with AbortedError, and frees this rank's part."""
        handle, self._handle = self._handle, NULL
        if handle != NULL:
            check(lib.tutti_comm_abort(handle))

    def interrupt(self) -> None:
        """Aborts if a call is blocked. Another thread than the blocked one calls."""
        if self._blocked:
            self.abort()

    def set_timeout(self, timeout_ms: int) -> None:
        """The deadline of calls from now on, in milliseconds; 0: that of the set-up again. Local."""
        if timeout_ms < 0:
            raise InvalidArgumentError(f"timeout_ms is {timeout_ms}; it must be 0 or more")
        check(lib.tutti_comm_set_timeout(self._alive(), timeout_ms))

    def explain(self) -> str:
        """One line about the last call: collective, bytes, algorithm, why, predicted time."""
        text = ffi.new("char[512]")
        check(lib.tutti_comm_explain(self._alive(), text, 512))
        return ffi.string(text).decode()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # Other ranks then hear that this one has left. Errors have nobody to handle them.
        if getattr(self, "_handle", NULL) != NULL:
            lib.tutti_comm_destroy(self._handle)

    def __repr__(self) -> str:
        return f"<tutti.Communicator rank {self.rank} of {self.size}{', closed' if self._handle == NULL else ''}>"

    # ---- one call ----

    def _run(self, function, arguments, stream, result, kept):
        """Calls function(*arguments, comm, stream). Returns the result, or its Work on a stream."""
        device = self._device if kept is not None else None
        if stream is not None:
            value = _streams.stream_value(stream)
            address = _streams.cuda_address(stream, value)
            if device is not None:
                device.await_arrays(kept, address)
            try:
                code = function(*arguments, self._handle, value)
            except (TypeError, OverflowError) as error:
                raise _no_number(error) from None
            if code:
                self._fail(code)
            if isinstance(stream, _streams.Stream):
                stream.users.add(self)
                stream.issued += 1
            if _groups.depth:
                _streams.keep(self, stream, kept)
            elif device is not None and address is not None:
                device.keep(kept, address)
            return Work(result, stream, kept)
        self._blocked = True
        try:
            if device is not None:
                device.await_arrays(kept, None)
            code = function(*arguments, self._handle, BLOCKING)
        except (TypeError, OverflowError) as error:
            raise _no_number(error) from None
        finally:
            self._blocked = False
        if code:
            self._fail(code)
        if _groups.depth:
            _streams.keep(self, None, kept)
        return result

    def _fail(self, code):
        """Raises what a call has returned."""
        if code == lib.TUTTI_INVALID_ARGUMENT:
            self._alive()  # C knows only that the communicator is NULL
        check(code)

    def _pair(self, send, recv, factor_send, factor_recv, name):
        """Pointers, count of one block and type of two arrays whose sizes are multiples of one block."""
        source, count, kind = read(send)
        target, room, target_kind = read(recv, True)
        if kind != target_kind:
            raise InvalidArgumentError(f"{name}: send and recv have different types")
        block = count // factor_send
        if block * factor_send != count:
            raise InvalidArgumentError(f"{name}: send has {count} elements, no multiple of {factor_send} ranks")
        if room != block * factor_recv:
            raise InvalidArgumentError(f"{name}: recv has {room} elements; it needs {block * factor_recv}")
        return source, target, block, kind

    def _sizes(self, counts, array, name):
        """The counts as C's array; an element of a complex array is two."""
        if len(counts) != self.size:
            raise InvalidArgumentError(f"{name} has {len(counts)} entries; it needs one for each of the {self.size} "
                                       "ranks")
        if min(counts) < 0:
            raise InvalidArgumentError(f"{name} has the entry {min(counts)}; counts are 0 or more")
        width = 2 if is_complex(array) else 1
        return ffi.new("size_t[]", [count * width for count in counts])

    @staticmethod
    def _uneven_pair(send, recv, send_total, recv_total, name):
        """Pointers and type of two arrays that hold as many elements as their counts ask for."""
        source, count, kind = read(send)
        target, room, target_kind = read(recv, True)
        if kind != target_kind or is_complex(send) != is_complex(recv):
            raise InvalidArgumentError(f"{name}: send and recv have different types")
        width = 2 if is_complex(send) else 1
        if count != send_total * width or room != recv_total * width:
            raise InvalidArgumentError(f"{name}: send has {count // width} and recv {room // width} elements; the "
                                       f"counts ask for {send_total} and {recv_total}")
        return source, target, kind

    # ---- collectives ----

    def all_reduce(self, send: Any, recv: Any = None, op: int = SUM, *, stream: Any = None) -> Any:
        """recv[i] = op over all ranks' send[i]. send, recv: the same shape. recv None: in place. Returns recv."""
        try:
            source, count, kind = READERS[type(send)](send, recv is None)
        except KeyError:
            source, count, kind = read(send, recv is None)
        if recv is None:
            recv, target = send, source
        else:
            source, target, count, kind = self._pair(send, recv, 1, 1, "all_reduce")
        if op not in _LINEAR:
            _complex_check(send, op)
        if stream is not None or _groups.depth or self._device is not None:
            return self._run(_all_reduce, (source, target, count, kind, op), stream, recv, (source, target, send, recv))
        self._blocked = True
        try:
            code = _all_reduce(source, target, count, kind, op, self._handle, BLOCKING)
        except (TypeError, OverflowError) as error:
            raise _no_number(error) from None
        finally:
            self._blocked = False
        if code:
            self._fail(code)
        return recv

    def reduce(self, send: Any, recv: Any = None, op: int = SUM, root: int = 0, *, stream: Any = None) -> Any:
        """As all_reduce, with the result at root only. Other ranks' recv is ignored. recv None: in place at root."""
        at_root = self.rank == root
        source, count, kind = read(send, at_root and recv is None)
        _complex_check(send, op)
        target = NULL
        if at_root:
            recv = send if recv is None else recv
            source, target, count, kind = self._pair(send, recv, 1, 1, "reduce")
        return self._run(lib.tutti_reduce, (source, target, count, kind, op, root), stream,
                         recv if at_root else None, (source, target, send, recv))

    def broadcast(self, buffer: Any, root: int = 0, *, stream: Any = None) -> Any:
        """Every rank's buffer = root's buffer. The same number of elements on all ranks. Returns buffer."""
        pointer, count, kind = read(buffer, self.rank != root)
        return self._run(lib.tutti_broadcast, (pointer, pointer, count, kind, root), stream, buffer,
                         (pointer, buffer))

    def all_gather(self, send: Any, recv: Any = None, *, counts: Optional[Sequence[int]] = None,
                   stream: Any = None) -> Any:
        """recv[r] = send of rank r. send: any shape S, recv: (P, *S) or as many elements; None makes one.

        counts: elements of each rank, equal on all ranks. Then recv is a vector of sum(counts). Returns recv.
        """
        if counts is not None:
            sizes = self._sizes(counts, send, "counts")
            recv = empty(send, (sum(counts),)) if recv is None else recv
            source, target, kind = self._uneven_pair(send, recv, counts[self.rank], sum(counts), "all_gather")
            return self._run(lib.tutti_all_gather_v, (source, target, sizes, NULL, kind), stream, recv,
                             (source, target, send, recv))
        recv = empty(send, (self.size, *shape_of(send))) if recv is None else recv
        source, target, count, kind = self._pair(send, recv, 1, self.size, "all_gather")
        return self._run(lib.tutti_all_gather, (source, target, count, kind), stream, recv,
                         (source, target, send, recv))

    def reduce_scatter(self, send: Any, recv: Any = None, op: int = SUM, *, counts: Optional[Sequence[int]] = None,
                       stream: Any = None) -> Any:
        """recv = op over ranks of this rank's block of send. send: P blocks, recv: one block; None makes one.

        recv None: send's first dimension is a multiple of P. counts: elements of each rank's block, equal on all
        ranks; then send has sum(counts) elements. Returns recv.
        """
        _complex_check(send, op)
        if counts is not None:
            sizes = self._sizes(counts, send, "counts")
            recv = empty(send, (counts[self.rank],)) if recv is None else recv
            source, target, kind = self._uneven_pair(send, recv, sum(counts), counts[self.rank], "reduce_scatter")
            return self._run(lib.tutti_reduce_scatter_v, (source, target, sizes, NULL, kind, op), stream, recv,
                             (source, target, send, recv))
        if recv is None:
            recv = empty(send, self._block_shape(send, "reduce_scatter"))
        source, target, count, kind = self._pair(send, recv, self.size, 1, "reduce_scatter")
        return self._run(lib.tutti_reduce_scatter, (source, target, count, kind, op), stream, recv,
                         (source, target, send, recv))

    def _block_shape(self, send, name):
        """The shape of one of P blocks of send."""
        shape = shape_of(send)
        if not shape or shape[0] % self.size:
            raise InvalidArgumentError(f"{name}: send has the shape {shape}; without recv its first dimension must be "
                                       f"a multiple of {self.size} ranks")
        return (shape[0] // self.size, *shape[1:])

    def all_to_all(self, send: Any, recv: Any = None, *, send_counts: Optional[Sequence[int]] = None,
                   recv_counts: Optional[Sequence[int]] = None, stream: Any = None) -> Any:
        """Block r of recv = this rank's block of rank r's send. send, recv: P equal blocks; recv None makes one.

        send_counts, recv_counts (both or none): elements to and from each rank. send_counts[r] must equal
        recv_counts[this rank] of rank r. Returns recv.
        """
        if (send_counts is None) != (recv_counts is None):
            raise InvalidArgumentError("all_to_all: pass send_counts and recv_counts, or neither")
        if send_counts is None or recv_counts is None:
            recv = empty(send, shape_of(send)) if recv is None else recv
            source, target, count, kind = self._pair(send, recv, self.size, self.size, "all_to_all")
            return self._run(lib.tutti_all_to_all, (source, target, count, kind), stream, recv,
                             (source, target, send, recv))
        outgoing = self._sizes(send_counts, send, "send_counts")
        incoming = self._sizes(recv_counts, send, "recv_counts")
        recv = empty(send, (sum(recv_counts),)) if recv is None else recv
        source, target, kind = self._uneven_pair(send, recv, sum(send_counts), sum(recv_counts), "all_to_all")
        return self._run(lib.tutti_all_to_all_v, (source, outgoing, NULL, target, incoming, NULL, kind), stream,
                         recv, (source, target, send, recv))

    def gather(self, send: Any, recv: Any = None, root: int = 0, *, stream: Any = None) -> Any:
        """root's recv[r] = send of rank r. send: S, recv at root: (P, *S); None makes one. Others get None."""
        if self.rank != root:
            source, count, kind = read(send)
            return self._run(lib.tutti_gather, (source, NULL, count, kind, root), stream, None, (source, send))
        recv = empty(send, (self.size, *shape_of(send))) if recv is None else recv
        source, target, count, kind = self._pair(send, recv, 1, self.size, "gather")
        return self._run(lib.tutti_gather, (source, target, count, kind, root), stream, recv,
                         (source, target, send, recv))

    def scatter(self, send: Any, recv: Any, root: int = 0, *, stream: Any = None) -> Any:
        """recv = this rank's block of root's send. send at root: P blocks (others: None), recv: one block."""
        target, count, kind = read(recv, True)
        source = NULL
        if self.rank == root:
            source, target, count, kind = self._pair(send, recv, self.size, 1, "scatter")
        return self._run(lib.tutti_scatter, (source, target, count, kind, root), stream, recv,
                         (source, target, send, recv))

    def barrier(self, *, stream: Any = None) -> Optional[Work]:
        """Returns when every rank has called."""
        return self._run(lib.tutti_barrier, (), stream, None, None)

    def send(self, buffer: Any, peer: int, tag: int = 0, *, stream: Any = None) -> Any:
        """Sends to a rank, which receives as many elements with the same tag (0 to 65535)."""
        pointer, count, kind = read(buffer)
        return self._run(lib.tutti_send, (pointer, count, kind, peer, tag), stream, None, (pointer, buffer))

    def recv(self, buffer: Any, peer: int, tag: int = 0, *, stream: Any = None) -> Any:
        """Receives from a rank into buffer, whose size must match the message. Returns buffer."""
        pointer, count, kind = read(buffer, True)
        return self._run(lib.tutti_recv, (pointer, count, kind, peer, tag), stream, buffer, (pointer, buffer))

    def recv_any(self, buffer: Any, tag: int = 0) -> int:
        """Receives the message that comes first, from whichever rank, into buffer. Returns the sender. Blocks.

        All ranks that may send use buffer's size and the tag: another message is a MismatchError. The messages of one
        rank keep their order. For ranks in host memory (UnsupportedError), outside groups (InvalidUsageError).
        """
        pointer, count, kind = read(buffer, True)
        source = ffi.new("int*")
        self._blocked = True
        try:
            code = lib.tutti_recv_any(pointer, count, kind, tag, source, self._handle)
        except (TypeError, OverflowError) as error:
            raise _no_number(error) from None
        finally:
            self._blocked = False
        if code:
            self._fail(code)
        return source[0]

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """root's value on every rank, pickled. Slow: two broadcasts and two copies. Unpickling runs code of root."""
        if _groups.depth:
            raise InvalidUsageError("broadcast_object: its second call needs the result of the first; call it outside "
                                    "the group")
        length = bytearray(8)
        data = b""
        if self.rank == root:
            data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
            length[:] = len(data).to_bytes(8, "little")
        self.broadcast(length, root)
        if self.rank == root:
            self.broadcast(data, root)
            return value
        room = bytearray(int.from_bytes(length, "little"))
        self.broadcast(room, root)
        return pickle.loads(room)


@atexit.register
def _close_all():
    """Ends live communicators with the interpreter: after an uncaught exception at once, on all ranks."""
    failed = getattr(sys, "last_value", None) is not None
    for comm in list(_interrupt.live):
        try:
            if failed:
                comm.abort()
            else:
                comm.close()
        except Exception:  # nobody is left to handle it
            pass
