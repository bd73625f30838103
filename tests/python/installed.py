#!/usr/bin/env python3
"""Tries the installed package: installed.py PAGE.md... runs the pages' examples at 2 ranks, and every program.

The interpreter is one of an environment in which the wheel is installed. Examples for torch are left out without torch.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SECONDS_MAX = 120
ARGUMENTS = {"tutti-plan": ["all_reduce", "-n", "4", "-s", "1M"], "tutti-sim": ["--help"], "tutti-inspect": ["--help"],
             "tutti-topo": []}
PERF = ["--procs", "2", "-b", "8", "-e", "64", "-f", "8", "-n", "5"]


def run(folder, *words):
    """Runs a program outside the source tree, without the tree's variables."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    done = subprocess.run([str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True,
                          check=False, timeout=SECONDS_MAX)
    print(f"{'ok' if done.returncode == 0 else 'not ok'} - {' '.join(map(str, words[:6]))}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode == 0


def main(pages):
    python, good = sys.executable, True
    with tempfile.TemporaryDirectory() as folder:
        for page in pages:
            text = pathlib.Path(page).read_text(encoding="utf-8")
            for number, example in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)):
                if "torch" in example and importlib.util.find_spec("torch") is None:
                    continue
                script = pathlib.Path(folder, f"{pathlib.Path(page).stem}{number}.py")
                script.write_text(example, encoding="utf-8")
                good &= run(folder, python, "-m", "tutti.launch", "-n", 2, script)
                good &= "torch" in example or run(folder, python, script)
        good &= run(folder, python, "-m", "tutti.info")
        good &= run(folder, python, "-m", "tutti.nccl", python, "-c", "import ctypes; ctypes.CDLL('libnccl.so.2')")
        for program in importlib.metadata.distribution("tutti").entry_points:
            words = ARGUMENTS.get(program.name, PERF)
            good &= run(folder, pathlib.Path(python).parent / program.name, *words)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
