"""`python -m tutti.malloc program.py ...`: runs a program whose large buffers ranks of the same host need not copy.

libtutti_malloc.so is preloaded. In a tree without an installed wheel, LD_LIBRARY_PATH must name its folder.
To start four ranks: `python -m tutti.launch -n 4 python -m tutti.malloc program.py`.
"""

import sys

from . import _preload

if __name__ == "__main__":
    sys.exit(_preload.run(sys.modules["__main__"], _preload.find("libtutti_malloc.so", b"TUTTI_MALLOC_BYTES"),
                          "this installation has no libtutti_malloc.so", sys.argv[1:]))
