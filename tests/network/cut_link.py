"""A link between two emulated hosts that goes down under ranks that are in their calls."""

import pathlib
import tempfile
import time

import hosts


def cut_in_calls(tools, heartbeat_ms):
    """Two hosts of two ranks. Returns how each ended, as hosts.finish does, and the seconds from the cut to the last end."""
    with hosts.Hosts() as pair, tempfile.TemporaryDirectory() as folder:
        processes = pair.launch(tools / "all_reduce_perf", 2, pathlib.Path(folder) / "id", "-b", "1M", "-e", "1M", "-n",
                                "100000000", "--hot", environment={"TUTTI_HEARTBEAT_MS": str(heartbeat_ms)})
        first = pair.sent_bytes(1)
        deadline = time.monotonic() + 60
        while pair.sent_bytes(1) < first + (32 << 20):  # it is in its calls
            assert time.monotonic() < deadline, "nothing is sent"
            assert all(process.poll() is None for process in processes), hosts.finish(processes)
        cut = time.monotonic()
        pair.cut()
        results = hosts.finish(processes, 60)
        return results, time.monotonic() - cut
