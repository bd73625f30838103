"""`python -m tutti.launch -n 4 script.py`: starts ranks on this host, prefixes their output, ends all when one fails.

Each rank gets torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and a
private file for tutti's id. The exit status is that of the first rank that failed.
"""

import argparse
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading

_GRACE_S = 5  # from SIGTERM to SIGKILL
_NOT_RUN = 127  # a shell's status
_EPHEMERAL_FIRST = 32768  # Linux's default


def _free_port():
    """A free port below those that the system gives to connections, so that none takes it before rank 0 listens."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as text:
            first = int(text.read().split()[0])
    except OSError:
        first = _EPHEMERAL_FIRST
    while True:
        port = random.randrange(first // 2, first)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue


def _forward(pipe, output, prefix, lock):
    """Copies lines until the rank closes its end, and reads on when nobody reads the output: `launch ... | head`."""
    for line in pipe:
        if not line.endswith(b"\n"):
            line += b"\n"
        with lock:
            try:
                output.buffer.write(prefix + line)
                output.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


class _Signalled(BaseException):
    """A signal that ends this process, and the ranks with it."""


def _note(number, _):
    raise _Signalled(number)


class _Ranks:
    """The started ranks."""

    def __init__(self):
        self.ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self.processes, self._readers = [], []

    def start(self, command, count, folder):
        lock, port = threading.Lock(), _free_port()
        for rank in range(count):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                               LOCAL_WORLD_SIZE=str(count), TUTTI_ID_FILE=os.path.join(folder, "id"),
                               PYTHONUNBUFFERED="1")
            environment.setdefault("MASTER_ADDR", "127.0.0.1")
            environment.setdefault("MASTER_PORT", str(port))
            # A session of its own: Ctrl-C reaches the ranks only through this process.
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       start_new_session=True)
            self.processes.append(process)
            for pipe, output in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                self._read(pipe, output, f"[{rank}] ".encode(), lock)
            threading.Thread(target=self._await, args=(rank,), daemon=True).start()

    def _read(self, *arguments):
        thread = threading.Thread(target=_forward, args=arguments, daemon=True)
        thread.start()
        self._readers.append(thread)

    def _await(self, rank):
        self.ended.put((rank, self.processes[rank].wait()))

    def signal(self, number):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def finish(self):
        """Kills what still runs, and prints the last lines."""
        self.signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        for thread in self._readers:
            thread.join(timeout=1)  # a grandchild may still hold the pipe


def _wait(ranks, count):
    """The status of the first rank that failed, else 0, once all have ended."""
    status, patience = 0, None
    while count:
        try:
            rank, code = ranks.ended.get(timeout=patience)
        except queue.Empty:
            ranks.signal(signal.SIGKILL)
            continue
        except _Signalled as signalled:
            number = signalled.args[0]
            status, patience = status or 128 + number, _GRACE_S
            ranks.signal(number)
            continue
        count -= 1
        if code and not status:
            status, patience = (code if code > 0 else 128 - code), _GRACE_S
            why = f"exit status {code}" if code > 0 else signal.Signals(-code).name
            print(f"tutti.launch: rank {rank} ended with {why}; ending the other ranks", file=sys.stderr)
            ranks.signal(signal.SIGTERM)
    return status


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tutti.launch", description="Starts ranks on this host.")
    parser.add_argument("-n", "--ranks", type=int, default=os.cpu_count(), help="number of ranks (default: the cores)")
    parser.add_argument("program", help="a Python script (.py), or any program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
    options = parser.parse_args(arguments)
    if options.ranks < 1:
        parser.error(f"-n is {options.ranks}; it must be 1 or more")
    command = [options.program, *options.arguments]
    if options.program.endswith(".py"):
        command.insert(0, sys.executable)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _note)
    with tempfile.TemporaryDirectory(prefix="tutti-") as folder:
        ranks = _Ranks()
        try:
            ranks.start(command, options.ranks, folder)
            return _wait(ranks, options.ranks)
        except OSError as error:
            print(f"tutti.launch: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
            return _NOT_RUN
        except _Signalled as signalled:  # while the ranks started, or twice
            return 128 + signalled.args[0]
        finally:
            ranks.finish()


if __name__ == "__main__":
    sys.exit(main())
