#!/usr/bin/env python3
"""Makes an assembler source that holds a file as the bytes tutti_cuda_image .. tutti_cuda_image_end.

Usage: embed.py FILE OUT. The digest in the source makes it a different one whenever the file is.
"""

import hashlib
import pathlib
import sys

SOURCE = """\
# {digest}
  .section .rodata
  .balign 64
  .globl tutti_cuda_image
  .hidden tutti_cuda_image
  .globl tutti_cuda_image_end
  .hidden tutti_cuda_image_end
tutti_cuda_image:
  .incbin "{path}"
tutti_cuda_image_end:
  .byte 0
  .section .note.GNU-stack,"",%progbits
"""


def main():
    image = pathlib.Path(sys.argv[1]).resolve()
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    pathlib.Path(sys.argv[2]).write_text(SOURCE.format(digest=digest, path=image), encoding="utf-8")


if __name__ == "__main__":
    main()
