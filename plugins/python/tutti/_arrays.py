"""Where an array lies in memory: address, number of elements, type. Nothing is copied.

NumPy and torch have readers of their own, because they are the fast cases. Every other library is read through the
buffer protocol, __cuda_array_interface__ or DLPack. A reader returns (pointer, count, type): `pointer` keeps the
memory alive while the caller holds it.
"""

import ctypes
from typing import Any, Callable

from ._library import ffi, lib
from .errors import InvalidArgumentError, UnsupportedError

# Name of a type in NumPy, ml_dtypes, torch (after "torch.") -> (type of tutti.h, elements of it). A complex number is
# two floats.
_TYPES = {
    "bool": (lib.TUTTI_BOOL, 1),
    "int8": (lib.TUTTI_INT8, 1),
    "uint8": (lib.TUTTI_UINT8, 1),
    "int16": (lib.TUTTI_INT16, 1),
    "uint16": (lib.TUTTI_UINT16, 1),
    "int32": (lib.TUTTI_INT32, 1),
    "uint32": (lib.TUTTI_UINT32, 1),
    "int64": (lib.TUTTI_INT64, 1),
    "uint64": (lib.TUTTI_UINT64, 1),
    "float16": (lib.TUTTI_FLOAT16, 1),
    "bfloat16": (lib.TUTTI_BFLOAT16, 1),
    "float32": (lib.TUTTI_FLOAT32, 1),
    "float64": (lib.TUTTI_FLOAT64, 1),
    "float8_e4m3fn": (lib.TUTTI_FLOAT8_E4M3, 1),
    "float8_e5m2": (lib.TUTTI_FLOAT8_E5M2, 1),
    "complex64": (lib.TUTTI_FLOAT32, 2),
    "complex128": (lib.TUTTI_FLOAT64, 2),
}
# struct's letters (native sizes) -> name.
_FORMATS = {"?": "bool", "b": "int8", "B": "uint8", "c": "uint8", "h": "int16", "H": "uint16", "i": "int32",
            "I": "uint32", "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "n": "int64", "N": "uint64",
            "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128"}
# DLPack's (kind, bits) -> name.
_DLPACK = {(6, 8): "bool", (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8",
           (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32",
           (2, 64): "float64", (4, 16): "bfloat16", (5, 64): "complex64", (5, 128): "complex128",
           (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}

_from_buffer = ffi.from_buffer
_cast = ffi.cast


def _type(name, what):
    """The type and its elements for one element of the array."""
    try:
        return _TYPES[name]
    except KeyError:
        raise UnsupportedError(f"{what} has elements of type {name}, which tutti does not have; "
                               f"the types are {', '.join(_TYPES)}") from None


def _not_contiguous(what):
    return InvalidArgumentError(f"{what} is not contiguous (C order); pass a contiguous array, for example a copy")


def _read_only(what):
    return InvalidArgumentError(f"{what} is read-only; the call writes to it")


_numpy_types: dict[Any, tuple[int, int]] = {}  # numpy.dtype -> (type, elements)


def _read_numpy(array, writes):
    try:
        kind, width = _numpy_types[array.dtype]
    except KeyError:
        if not array.dtype.isnative:
            raise UnsupportedError("the NumPy array is not in this machine's byte order; "
                                   "convert it with array.astype(array.dtype.newbyteorder('='))") from None
        kind, width = _numpy_types[array.dtype] = _type(array.dtype.name, "the NumPy array")
    try:
        return _from_buffer(array, require_writable=writes), array.size * width, kind
    except (ValueError, BufferError):
        flags = array.flags
        if not flags.c_contiguous:
            raise _not_contiguous("the NumPy array") from None
        if writes and not flags.writeable:
            raise _read_only("the NumPy array") from None
        # The buffer protocol has no letter for bfloat16 and float8.
        return _from_buffer(array.view("u1")), array.size * width, kind


_torch_types: dict[Any, tuple[int, int]] = {}  # torch.dtype -> (type, elements)


def _read_torch(tensor, writes):
    del writes
    try:
        kind, width = _torch_types[tensor.dtype]
    except KeyError:
        kind, width = _torch_types[tensor.dtype] = _type(str(tensor.dtype).removeprefix("torch."), "the tensor")
    if not tensor.is_contiguous():
        raise _not_contiguous("the tensor")
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError("the tensor's memory holds other numbers (a lazy conj or negation); call "
                                   "resolve_conj() or resolve_neg() first")
    if tensor.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"the tensor is on {tensor.device}; tutti reaches host memory and CUDA devices")
    return _cast("void*", tensor.data_ptr()), tensor.numel() * width, kind


def _read_cuda(array, writes):
    """CuPy, Numba and others."""
    interface = array.__cuda_array_interface__
    shape, (address, read_only) = interface["shape"], interface["data"]
    if writes and read_only:
        raise _read_only("the device array")
    name = str(getattr(array, "dtype", "")) or interface["typestr"]
    kind, width = _type(name, "the device array")
    item = lib.tutti_type_bytes(kind) * width
    expected: list[int] = []
    for extent in reversed(shape):
        expected.insert(0, item)
        item *= extent
    strides = interface.get("strides")
    if strides is not None and tuple(strides) != tuple(expected) and 0 not in shape:
        raise _not_contiguous("the device array")
    count = 1
    for extent in shape:
        count *= extent
    return _cast("void*", address), count * width, kind


def _read_buffer(array, writes):
    """bytearray, array.array, ctypes, memoryview."""
    view = memoryview(array)
    if not view.c_contiguous:
        raise _not_contiguous("the buffer")
    if writes and view.readonly:
        raise _read_only("the buffer")
    letter = view.format.lstrip("@=<") if view.itemsize > 1 else view.format[-1]
    kind, width = _type(_FORMATS.get(letter, f"'{view.format}'"), "the buffer")
    if lib.tutti_type_bytes(kind) * width != view.itemsize:
        raise UnsupportedError(f"the buffer's elements '{view.format}' have {view.itemsize} bytes")
    return _from_buffer(view), view.nbytes // view.itemsize * width, kind


class _DLTensor(ctypes.Structure):
    """dlpack.h's DLTensor, the first member of what a capsule "dltensor" points at, and the last in
    "dltensor_versioned"."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    """dlpack.h's DLManagedTensorVersioned."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_DLPACK_DEVICES = (1, 2, 3, 13)  # host, CUDA, pinned, managed
_DLPACK_READ_ONLY = 1
_IMMUTABLE = ("jax", "jaxlib")  # without the flag
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_pointer.argtypes = _capsule_is.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _dltensor(capsule):
    """The tensor of a capsule, and whether it is read-only."""
    if not _capsule_is(capsule, b"dltensor_versioned"):
        return _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor")), False
    versioned = _Versioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
    return versioned.tensor, bool(versioned.flags & _DLPACK_READ_ONLY)


def _read_dlpack(array, writes):
    """Anything else with __dlpack__. The capsule, which the pointer keeps, owns the tensor."""
    try:
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:  # a library from before version 1
            capsule = array.__dlpack__()
    except BufferError as error:
        raise InvalidArgumentError(f"the array does not give its memory: {error}") from None
    tensor, read_only = _dltensor(capsule)
    if writes and (read_only or type(array).__module__.partition(".")[0] in _IMMUTABLE):
        raise _read_only("the array")
    if tensor.device_type not in _DLPACK_DEVICES:
        raise UnsupportedError(f"the array is on DLPack's device type {tensor.device_type}; "
                               "tutti reaches host memory and CUDA devices")
    name = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    kind, width = _type(name or f"(DLPack {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes)", "the array")
    count = 1
    for axis in reversed(range(tensor.ndim)):
        if tensor.strides and tensor.shape[axis] > 1 and tensor.strides[axis] != count:
            raise _not_contiguous("the array")
        count *= tensor.shape[axis]
    pointer = ffi.gc(_cast("void*", (tensor.data or 0) + tensor.byte_offset), lambda _, owner=capsule: None)
    return pointer, count * width, kind


def _find_reader(array):
    kind = type(array)
    module = kind.__module__.partition(".")[0]
    if module == "numpy" and hasattr(array, "flags"):
        reader = _read_numpy
    elif hasattr(array, "data_ptr") and hasattr(array, "is_contiguous"):
        reader = _read_torch  # tensors and their subclasses, for example torch.nn.Parameter
    elif hasattr(array, "__cuda_array_interface__"):
        reader = _read_cuda
    elif hasattr(array, "__dlpack__"):
        reader = _read_dlpack
    else:
        try:
            memoryview(array)
        except TypeError:
            raise InvalidArgumentError(f"a {kind.__name__} is no array: pass an array of NumPy, torch or CuPy, or "
                                       "an object with DLPack or the buffer protocol") from None
        reader = _read_buffer
    READERS[kind] = reader
    return reader


READERS: dict[type, Callable[[Any, bool], tuple[Any, int, int]]] = {}  # type of the array -> its reader


def read(array, writes=False):
    """(pointer, count, type) of an array. `writes`: the call writes to it."""
    try:
        reader = READERS[type(array)]
    except KeyError:
        reader = _find_reader(array)
    return reader(array, writes)


def is_complex(array):
    """Whether an element of the array is a pair of floats."""
    name = getattr(array, "dtype", None) or getattr(array, "format", "")  # of a memoryview: Zf, Zd
    return "complex" in str(name) or "Z" in str(name)


def shape_of(array):
    """The array's shape; a buffer without one is a vector."""
    shape = getattr(array, "shape", None)
    return tuple(shape) if shape is not None else (len(array),)


def empty(like, shape):
    """A new array of the same library, type and device."""
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    module = type(like).__module__.partition(".")[0]
    if module in ("numpy", "cupy"):
        library = __import__(module)
        return library.empty(shape, like.dtype)
    raise InvalidArgumentError(f"the call cannot make a result for a {type(like).__name__}: pass `recv`")
