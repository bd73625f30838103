"""Cuts the link between two emulated hosts while their ranks are in calls."""

import pathlib
import tempfile
import time

import hosts


def cut_in_calls(tools, heartbeat_ms):
    """Two hosts of two ranks. Returns the results (hosts.finish), and the seconds from the cut to the last end."""
    with hosts.Hosts() as pair, tempfile.TemporaryDirectory() as folder:
        processes = pair.launch(tools / "all_reduce_perf", 2, pathlib.Path(folder) / "id", "-b", "1M", "-e", "1M", "-n",
                                "100000000", "--hot", environment={"TUTTI_HEARTBEAT_MS": str(heartbeat_ms)})
        first = pair.sent_bytes(1)
        deadline = time.monotonic() + 60
        while pair.sent_bytes(1) < first + (32 << 20):  # the ranks are in their calls
            assert time.monotonic() < deadline, "nothing is sent"
            assert all(process.poll() is None for process in processes), hosts.finish(processes)
        cut = time.monotonic()
        pair.cut()
        results = hosts.finish(processes, 60)
        return results, time.monotonic() - cut
