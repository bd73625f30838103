"""libtutti.so.0 through cffi. The declarations come from tutti.h itself, so no second copy can differ.

cffi's ABI mode needs no compiled module: one wheel serves all Pythons. cffi releases the GIL during every call.
"""

import pathlib
import re

import cffi

from . import errors

_HERE = pathlib.Path(__file__).resolve().parent
_BUNDLED = _HERE / "lib" / "libtutti.so.0"


def _header():
    """tutti.h of the wheel, or of the source tree."""
    bundled = _HERE / "tutti.h"
    path = bundled if bundled.exists() else _HERE.parents[2] / "include" / "tutti" / "tutti.h"
    return path.read_text(encoding="utf-8")


def declarations(header):
    """The types and functions of tutti.h without comments, macros and inline functions."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^static inline .*?^}", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\bTUTTI_(API|NOEXCEPT|ANY_INT)\b", "", text)
    first = text.index("typedef enum tutti_result_t")
    return text[first:text.rindex(";") + 1]


ffi = cffi.FFI()
ffi.cdef(declarations(_header()))
PATH = str(_BUNDLED) if _BUNDLED.exists() else "libtutti.so.0"
lib = ffi.dlopen(PATH)

NULL = ffi.NULL
_KIND_HOST, _KIND_CUDA = 1, 2


def make_stream(kind, handle):
    """A tutti_stream_t by value."""
    stream = ffi.new("tutti_stream_t*")
    stream.kind, stream.handle = kind, handle
    return stream[0]


BLOCKING = make_stream(0, NULL)


def host_stream(handle):
    return make_stream(_KIND_HOST, handle)


def cuda_stream(address):
    return make_stream(_KIND_CUDA, ffi.cast("void*", address))


def last_error():
    return ffi.string(lib.tutti_last_error()).decode()


def check(code):
    """Raises the exception of a result code that is not TUTTI_SUCCESS, with the library's sentence."""
    if code:
        raise errors.CLASSES.get(code, errors.Error)(last_error())


def version() -> str:
    """The version of the library that runs, as "major.minor.patch"."""
    number = ffi.new("int*")
    check(lib.tutti_get_version(number))
    return f"{number[0] // 10000}.{number[0] // 100 % 100}.{number[0] % 100}"
