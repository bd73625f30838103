"""`python -m tutti.nccl program.py ...`: runs an unmodified CUDA program on tutti's libnccl.so.2.

The library is preloaded, because programs such as torch prefer the copy of NCCL that they bring along. In a tree
without an installed wheel, LD_LIBRARY_PATH must name the folder of libnccl.so.2. NCCL_DEBUG=VERSION shows which
library answers.
"""

import os
import pathlib
import sys


def library():
    """The path of tutti's libnccl.so.2; None if it is not there."""
    folders = [pathlib.Path(__file__).resolve().parent / "lib"]
    folders += [pathlib.Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in folders:
        path = folder / "libnccl.so.2"
        if path.exists() and b"TUTTI_SETUP_TIMEOUT_MS" in path.read_bytes():
            return str(path)
    return None


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    path = library()
    if path is None:
        print("tutti.nccl: this installation has no libnccl.so.2 of tutti; build it with -Dnccl=enabled",
              file=sys.stderr)
        return 2
    command = [sys.executable, *arguments] if arguments[0].endswith(".py") else list(arguments)
    preloaded = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = f"{path}:{preloaded}" if preloaded else path
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"tutti.nccl: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
