"""Streams, the work of a call on a stream, and groups."""

import atexit
import itertools
import threading
import weakref
from typing import Any

from . import _interrupt
from ._library import BLOCKING, NULL, check, cuda_stream, ffi, host_stream, lib
from .errors import Error, InvalidArgumentError, InvalidUsageError

# Arrays of calls under way that the program no longer holds: number -> (stream, arrays).
_outlived: dict[int, Any] = {}
_numbers = itertools.count(1)


@ffi.callback("tutti_host_stream_done_t")
def _passed(context, result, text):
    del result, text
    _outlived.pop(int(ffi.cast("uintptr_t", context)), None)


@atexit.register
def _await_outlived():
    """No call of `_passed` may come to an interpreter that has ended. Runs after the communicators were closed."""
    for stream in {stream for stream, _ in list(_outlived.values())}:
        lib.tutti_host_stream_synchronize(stream._handle)


class Stream:
    """A host stream. Calls on the stream return at once, and a thread of tutti runs them in order.

    Use it as a context manager, or call close(). One stream may serve several communicators.
    """

    def __init__(self) -> None:
        made = ffi.new("tutti_host_stream_t**")
        check(lib.tutti_host_stream_create(made))
        self._handle = made[0]
        self.value = host_stream(self._handle)
        self.users: Any = weakref.WeakSet()  # communicators with calls on the stream
        self.issued = 0  # calls
        self._failed = 0  # of these: one of the calls up to here failed
        self._why: Any = None

    def synchronize(self) -> None:
        """Blocks until all calls issued so far are complete. Raises the first error among them."""
        with _interrupt.blocked(self.users):
            code = lib.tutti_host_stream_synchronize(self._open())
        self._check(code)

    def _check(self, code):
        """The library tells an error once. Each Work of a call up to here tells it too."""
        try:
            check(code)
        except Error as error:
            self._failed, self._why = self.issued, error
            raise

    def is_idle(self) -> bool:
        """Whether all calls are complete. Does not block. Raises the first error among them."""
        code = lib.tutti_host_stream_query(self._open())
        if code == lib.TUTTI_IN_PROGRESS:
            return False
        self._check(code)
        return True

    def close(self) -> None:
        """Synchronizes and frees. A second call does nothing."""
        handle, self._handle = self._handle, ffi.NULL
        self.value = host_stream(ffi.NULL)
        with _interrupt.blocked(self.users):
            code = lib.tutti_host_stream_destroy(handle)
        self._check(code)

    def _await(self, number):
        """Blocks until call `number` is complete. Raises its error, or an earlier one."""
        if number > self._failed and self._handle != NULL:
            self.synchronize()
        if number <= self._failed:
            raise type(self._why)(str(self._why))

    def _open(self):
        if self._handle == NULL:
            raise InvalidUsageError("the stream is closed; make a new one")
        return self._handle

    def _keep(self, things):
        """Keeps arrays alive until the calls issued so far are complete."""
        if self._handle == NULL:
            return
        number = next(_numbers)
        _outlived[number] = self, things
        # After an error they stay: nothing would tell when they may go.
        lib.tutti_host_stream_notify(self._handle, _passed, ffi.cast("void*", number))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Work:
    """A call on a stream. The call's arrays stay alive until the stream has passed it."""

    def __init__(self, result: Any, stream: Any, kept: Any) -> None:
        self.result = result  # what the blocking call would have returned
        self._stream = stream
        self._kept = kept
        self._number = getattr(stream, "issued", 0)
        self._is_complete = False

    def wait(self) -> Any:
        """Blocks until the stream has passed the call, and returns `result`.

        On a host stream the call also waits for calls that were issued on the stream later. On a CUDA stream it
        returns at once, and later work of that stream sees the result. Errors: the first of the stream's calls since
        the last wait.
        """
        if isinstance(self._stream, Stream) and not self._is_complete:
            self._stream._await(self._number)
            self._is_complete, self._kept = True, None
        return self.result

    def __del__(self) -> None:
        if self._kept is not None and isinstance(self._stream, Stream):
            self._stream._keep(self._kept)


def stream_value(stream):
    """The tutti_stream_t of a tutti.Stream, a CUDA stream of torch, CuPy or cuda.core, or its address."""
    if isinstance(stream, Stream):
        stream._open()
        return stream.value
    if isinstance(stream, int):
        return cuda_stream(stream)
    for name in ("cuda_stream", "ptr", "handle"):
        address = getattr(stream, name, None)
        if isinstance(address, int):
            return cuda_stream(address)
    if hasattr(stream, "__cuda_stream__"):
        return cuda_stream(stream.__cuda_stream__()[1])
    raise InvalidArgumentError(f"a {type(stream).__name__} is no stream: pass a tutti.Stream or a CUDA stream")


def cuda_address(stream, value):
    """The address of a CUDA stream whose tutti_stream_t is `value`; None: a tutti.Stream."""
    return None if isinstance(stream, Stream) else int(ffi.cast("uintptr_t", value.handle))


class _Groups(threading.local):
    depth = 0
    kept: list = []
    users: list = []  # communicators with calls in the group


_groups = _Groups()


def in_group() -> bool:
    return _groups.depth > 0


def keep(comm, stream, things) -> None:
    """Keeps arrays of a communicator's call in an open group alive until the group has ended, and on a stream until the
    call is complete."""
    _groups.kept.append((comm, stream, things))
    _groups.users.append(comm)


def _hand_over(kept):
    """Their group has ended: the calls are on their streams."""
    arrays: dict[Stream, list[Any]] = {}
    for comm, stream, things in kept:
        if isinstance(stream, Stream):
            arrays.setdefault(stream, []).append(things)
        elif stream is not None and comm._device is not None:
            comm._device.keep(things, cuda_address(stream, stream_value(stream)))
    for stream, things in arrays.items():
        stream._keep(things)


class group:
    """`with tutti.group():` issues the calls inside together, when the outermost block ends.

    Sends and receives then progress at once, and one thread may drive several ranks. Results are there after the
    block (or when the streams have passed it). Errors: those of the calls. If an argument is wrong, or the block
    raises, none of its calls is issued.
    """

    def __enter__(self) -> "group":
        check(lib.tutti_group_start())
        if _groups.depth == 0:
            _groups.kept, _groups.users = [], []
        _groups.depth += 1
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            lib.tutti_barrier(NULL, BLOCKING)  # a wrong argument spoils the group
        _groups.depth -= 1
        with _interrupt.blocked(_groups.users if _groups.depth == 0 else ()):
            code = lib.tutti_group_end()
        if _groups.depth == 0:
            _hand_over(_groups.kept)
            _groups.kept, _groups.users = [], []
        if kind is None:
            check(code)
