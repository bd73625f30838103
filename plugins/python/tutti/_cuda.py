"""What calls on a CUDA device need of the driver: a stream waits for another one, arrays live until it has passed a call.

The library knows the stream of a call, but not the one that makes the call's arrays. Torch, __cuda_array_interface__
and DLPack tell it. A communicator on a device has loaded the driver already.
"""

import ctypes
import sys
import threading
from typing import Any

from .errors import SystemCallError

_LEGACY = 1  # CU_STREAM_LEGACY
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_DLPACK_CUDA = (2, 13)  # device types: CUDA, managed


def _stream_of(array):
    """The stream that makes the array; None: nobody needs to wait."""
    if getattr(array, "is_cuda", False):  # of torch, which keeps the stream for itself
        return sys.modules["torch"].cuda.current_stream(array.device).cuda_stream
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return interface.get("stream")
    place = getattr(array, "__dlpack_device__", None)
    # __dlpack__ without a stream makes the legacy stream wait for the array.
    return _LEGACY if place is not None and place()[0] in _DLPACK_CUDA else None


class Device:
    """A CUDA device of this process, in the context that all libraries share."""

    def __init__(self, number: int) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._kept: list[Any] = []  # (event, arrays) of calls that streams have yet to pass
        self._lock = threading.Lock()
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        # Never released: arrays and streams of other libraries live there too.
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def _call(self, name, *arguments):
        answer = getattr(self._driver, name)(*arguments)
        if answer:
            raise SystemCallError(f"{name}: CUDA error {answer}")

    def __enter__(self) -> None:
        self._call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *_: Any) -> None:
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _record(self, stream):
        """A new event behind the stream's work."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), _DISABLE_TIMING)
        self._call("cuEventRecord", event, ctypes.c_void_p(stream))
        return event

    def _is_captured(self, stream):
        status = ctypes.c_int()
        self._call("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(status))
        return status.value != 0

    def await_arrays(self, things: Any, stream: Any) -> None:
        """The stream waits until the streams that make the arrays have done so. stream None: the caller waits."""
        makers = {_stream_of(thing) for thing in things} - {None, stream}
        if not makers:
            return
        with self:
            for maker in makers:
                if stream is None:
                    self._call("cuStreamSynchronize", ctypes.c_void_p(maker))
                # A graph cannot wait for work outside: the program orders its launches.
                elif self._is_captured(maker) == self._is_captured(stream):
                    event = self._record(maker)
                    self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
                    self._call("cuEventDestroy_v2", event)

    def keep(self, things: Any, stream: Any) -> None:
        """Keeps arrays alive until the stream has passed its work so far. A graph's program keeps them itself."""
        self.sweep()
        with self:
            if self._is_captured(stream):
                return
            event = self._record(stream)
        with self._lock:
            self._kept.append((event, things))

    def sweep(self) -> None:
        """Lets go the arrays of calls that streams have passed."""
        with self._lock:
            kept, self._kept = self._kept, []
        waiting = []
        with self:
            for event, things in kept:
                if self._driver.cuEventQuery(event) == _NOT_READY:
                    waiting.append((event, things))
                else:
                    self._driver.cuEventDestroy_v2(event)
        with self._lock:
            self._kept += waiting


_devices: dict[int, Device] = {}


def device(number: int) -> Any:
    """The device of a communicator; None: host memory."""
    if number < 0:
        return None
    return _devices.get(number) or _devices.setdefault(number, Device(number))
