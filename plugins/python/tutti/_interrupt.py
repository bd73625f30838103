"""Ctrl-C ends a blocked call.

A blocked call is in C, where Python cannot raise KeyboardInterrupt. Python writes each signal's number to a wake-up
descriptor. A thread reads it and aborts the communicators in a blocked call. The call returns, and Python raises
KeyboardInterrupt in the main thread. Nothing happens if the program has a SIGINT handler or a wake-up descriptor of
its own.
"""

import contextlib
import os
import signal
import threading
import weakref
from typing import Any, Iterable, Iterator, Optional

live: Any = weakref.WeakSet()  # communicators
_watched = False


def _watch(descriptor):
    while True:
        numbers = os.read(descriptor, 64)
        if not numbers:
            return
        if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            for comm in list(live):
                comm.interrupt()


def start():
    """Starts the watch, once. Only the main thread can."""
    global _watched
    if _watched or threading.current_thread() is not threading.main_thread():
        return
    _watched = True
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if earlier != -1:
        signal.set_wakeup_fd(earlier)
        os.close(reader)
        os.close(writer)
        return
    threading.Thread(target=_watch, args=(reader,), name="tutti-interrupt", daemon=True).start()


def _forked():
    """A child has no watching thread, and must not write to its parent's pipe."""
    global _watched
    if _watched and threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
    _watched = False
    live.clear()


os.register_at_fork(after_in_child=_forked)


@contextlib.contextmanager
def blocked(comms: Iterable[Any]) -> Iterator[None]:
    """Ctrl-C aborts these communicators while the body runs: it blocks until their calls are complete."""
    held = [comm for comm in comms if not comm._blocked]
    for comm in held:
        comm._blocked = True
    try:
        yield
    finally:
        for comm in held:
            comm._blocked = False


def interruptible(call):
    """Runs a call that no communicator can end, such as set-up, so that Ctrl-C leaves it: in a thread, from the main
    thread. The thread ends at the call's own deadline."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    done = threading.Event()
    outcome: list[tuple[Any, Optional[BaseException]]] = []

    def run():
        try:
            outcome.append((call(), None))
        except BaseException as error:  # handed to the caller
            outcome.append((None, error))
        done.set()

    threading.Thread(target=run, name="tutti-set-up", daemon=True).start()
    done.wait()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value
