"""What tutti.nccl and tutti.malloc share: to find a library of tutti, and to run a program with it preloaded."""

import os
import pathlib
import sys


def find(name, mark):
    """The path of tutti's library `name`, whose bytes contain `mark`; None if it is not there."""
    folders = [pathlib.Path(__file__).resolve().parent / "lib"]
    folders += [pathlib.Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in folders:
        path = folder / name
        if path.exists() and mark in path.read_bytes():
            return str(path)
    return None


def run(module, path, missing, arguments):
    """Replaces this process by `arguments`, a script or a program, with `path` preloaded. Returns an exit status only if
    that fails."""
    if not arguments:
        print(module.__doc__, file=sys.stderr)
        return 2
    name = module.__spec__.name
    if path is None:
        print(f"{name}: {missing}", file=sys.stderr)
        return 2
    command = [sys.executable, *arguments] if arguments[0].endswith(".py") else list(arguments)
    preloaded = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = f"{path}:{preloaded}" if preloaded else path
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{name}: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
