"""`python -m tutti.nccl program.py ...`: runs an unmodified CUDA program on tutti's libnccl.so.2.

The library is preloaded, because programs such as torch prefer the copy of NCCL that they bring along. In a tree
without an installed wheel, LD_LIBRARY_PATH must name the folder of libnccl.so.2. NCCL_DEBUG=VERSION shows which
library answers.
"""

import sys

from . import _preload


def library():
    """The path of tutti's libnccl.so.2; None if it is not there."""
    return _preload.find("libnccl.so.2", b"TUTTI_SETUP_TIMEOUT_MS")


if __name__ == "__main__":
    sys.exit(_preload.run(sys.modules["__main__"], library(),
                          "this installation has no libnccl.so.2 of tutti; build it with -Dnccl=enabled", sys.argv[1:]))
