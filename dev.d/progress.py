#!/usr/bin/env python3
"""Shows a build of ninja as one line of progress. All of ninja's lines go to a log; a failed command is printed.

Usage: ninja ... 2>&1 | progress.py LOG, with NINJA_STATUS="[%f/%t] ". A terminal gets one line that changes, and
other readers get a plain line every EVERY_S seconds.
"""

import pathlib
import re
import sys
import time

EVERY_S = 30
STATUS = re.compile(r"^\[(\d+)/(\d+)\] ")


class Progress:
    """Reads ninja's lines in order. `write` takes text for the reader, and `now` tells seconds."""

    def __init__(self, write, is_terminal, now=time.monotonic):
        self._write = write
        self._is_terminal = is_terminal
        self._now = now
        self._start = self._last = now()
        self._in_failure = False
        self._line = ""

    def read(self, line):
        """One line of ninja, with its end."""
        status = STATUS.match(line)
        if status:
            self._in_failure = False
            self._step(int(status.group(1)), int(status.group(2)))
        elif line.startswith(("FAILED:", "ninja: error:", "ninja: fatal:")):
            self._in_failure = True
        elif line.startswith("ninja: "):
            self._in_failure = False
        if self._in_failure:
            self._clear()
            self._write(line)

    def end(self):
        if self._is_terminal and self._line:
            self._write("\n")

    def _step(self, done, total):
        now = self._now()
        self._line = f"  {100 * done // total} %, {done} of {total}, {int(now - self._start)} s"
        if self._is_terminal:
            self._write(f"\r\033[K{self._line}")
        elif done == total or now - self._last >= EVERY_S:
            self._last = now
            self._write(self._line + "\n")

    def _clear(self):
        if self._is_terminal and self._line:
            self._write("\r\033[K")
            self._line = ""


def main():
    def write(text):
        sys.stdout.write(text)
        sys.stdout.flush()

    progress = Progress(write, sys.stdout.isatty())
    sys.stdin.reconfigure(errors="replace")
    with pathlib.Path(sys.argv[1]).open("w", encoding="utf-8") as log:
        for line in sys.stdin:
            log.write(line)
            log.flush()
            progress.read(line)
    progress.end()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
