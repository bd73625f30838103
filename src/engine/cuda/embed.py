#!/usr/bin/env python3
"""Makes an assembler source that holds the kernels' images and a table of them (kernels.cc has its form).

Usage: embed.py FATBINARY OUT FOLDER COMPRESSION FILE... FILE is sm_90.cubin or compute_90.ptx, FOLDER takes the fat
binaries, COMPRESSION is `modes` if FATBINARY knows --compress-mode.

The table says for each image which CUDA version a driver must support. It is read from the images:
- machine code of ELF's OS ABI 0x33 loads with every driver of CUDA 12 (NVIDIA's minor version compatibility). OS ABI
  0x41 comes from ptxas 12.8 for GPUs from sm_100 on, and from ptxas 13 for all. Its note tells ptxas's release, and
  a driver of the same major version loads it.
- PTX says its version. CUDA 12.N introduced PTX 8.N up to 8.5, then 12.7 had 8.6, 12.8 had 8.7 and 12.9 had 8.8;
  13.N has 9.N.
- zstd compression needs CUDA 12.4, LZ4 nothing.
"""

import hashlib
import pathlib
import re
import struct
import subprocess
import sys

FATBIN_MAGIC = 0xBA55ED50
LZ4, ZSTD = 0x2000, 0x8000
FIRST_CUDA_12, FIRST_ZSTD, FIRST_ABI_41 = 12000, 12040, 12080
ELF_ABIS = {(0x33, 7): FIRST_CUDA_12, (0x41, 8): FIRST_ABI_41}

HEAD = """\
  .section .rodata
  .balign 64
  .globl tutti_cuda_images
  .hidden tutti_cuda_images
  .globl tutti_cuda_image_count
  .hidden tutti_cuda_image_count
tutti_cuda_image_count:
  .quad {count}
tutti_cuda_images:
"""
ROW = """\
# {digest}
  .long {is_ptx}, {architecture}, {version}, 0
  .quad image_{index} - tutti_cuda_images, image_{index}_end - image_{index}
"""
BYTES = """\
  .balign 64
image_{index}:
  .incbin "{path}"
image_{index}_end:
  .byte 0
"""
TAIL = '  .section .note.GNU-stack,"",%progbits\n'


def cubin_needs(data):
    """The CUDA version that a driver must support to load machine code."""
    abi = (data[7], data[8])
    if data[:4] != b"\x7fELF" or abi not in ELF_ABIS:
        raise SystemExit(f"embed.py: machine code of an unknown form: OS ABI and its version are {abi}")
    if ELF_ABIS[abi] == FIRST_CUDA_12:
        return FIRST_CUDA_12
    release = re.search(rb"Cuda compilation tools, release (\d+)\.\d+", data)
    if release is None:
        raise SystemExit("embed.py: the machine code does not tell the release of ptxas")
    return max(FIRST_ABI_41, int(release[1]) * 1000)


def ptx_needs(data):
    found = re.search(rb"^\.version\s+(\d+)\.(\d+)", data, re.MULTILINE)
    major, minor = int(found[1]), int(found[2])
    if major < 8:
        return FIRST_CUDA_12
    if major > 8:
        return (major + 4) * 1000 + minor * 10
    return FIRST_CUDA_12 + 10 * (minor if minor <= 5 else minor + 1)


def compression_needs(fatbin):
    magic, _, header_bytes = struct.unpack_from("<IHH", fatbin)
    if magic != FATBIN_MAGIC:
        raise SystemExit("embed.py: fatbinary has written an unknown form")
    flags = struct.unpack_from("<Q", fatbin, header_bytes + 40)[0]
    return FIRST_ZSTD if flags & ZSTD else 0


def make_image(fatbinary, folder, has_modes, file):
    """(is_ptx, architecture, version, path) of the fat binary of one file."""
    architecture, data = int(re.search(r"_(\d+)$", file.stem)[1]), file.read_bytes()
    is_ptx = file.suffix == ".ptx"
    needs = (ptx_needs if is_ptx else cubin_needs)(data)
    # LZ4 where zstd would shut out drivers for which the code was made. PTX serves newer devices, so newer drivers.
    mode = "speed" if not is_ptx and needs < FIRST_ZSTD else "size"
    path = folder / f"{file.stem}.fatbin"
    command = [fatbinary, "-64", f"--create={path}", "--compress-all", f"--image3=kind={'ptx' if is_ptx else 'elf'},sm={architecture},file={file}"]
    subprocess.run(command + ([f"--compress-mode={mode}"] if has_modes else []), check=True)
    return is_ptx, architecture, max(needs, compression_needs(path.read_bytes())), path


def main():
    fatbinary, out, folder, compression, *files = sys.argv[1:]
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    images = [make_image(fatbinary, folder, compression == "modes", pathlib.Path(file).resolve()) for file in files]
    text = HEAD.format(count=len(images))
    for index, (is_ptx, architecture, version, path) in enumerate(images):
        # The digest makes the source a different one whenever the image is.
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        text += ROW.format(digest=digest, is_ptx=int(is_ptx), architecture=architecture, version=version, index=index)
    text += "".join(BYTES.format(index=index, path=path) for index, (_, _, _, path) in enumerate(images))
    pathlib.Path(out).write_text(text + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
