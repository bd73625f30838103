"""Tears data sockets between two emulated hosts while their ranks are in calls, as a box in between would."""

import pathlib
import re
import subprocess
import tempfile
import time

import hosts


def in_host(pair, side, *words):
    words = ["ip", "netns", "exec", pair.names[side], *words]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def busiest(pair, side, count):
    """The ports, here and there, of the sockets that have sent the most."""
    lines = in_host(pair, side, "ss", "-Htin", "state", "established").splitlines()
    sockets = []
    for where, figures in zip(lines[::2], lines[1::2]):
        here, there = (end.rsplit(":", 1)[1] for end in where.split()[2:4])
        sent = re.search(r"bytes_sent:(\d+)", figures)
        sockets.append((int(sent[1]) if sent else 0, here, there))
    return [(here, there) for _, here, there in sorted(sockets)[-count:]]


def tear_in_calls(tools, connections, torn, action, environment=None):
    """All-reduces of 1 MiB between two hosts over `connections` sockets, of which `torn` meet a rule of nftables.
    Returns the results (hosts.finish), or None if this machine has no such rules."""
    with hosts.Hosts() as pair, tempfile.TemporaryDirectory() as folder:
        processes = pair.launch(tools / "all_reduce_perf", 1, pathlib.Path(folder) / "id", "-b", "1M", "-e", "1M", "-n",
                                "2000", "-w", "0", "--hot",
                                environment={"TUTTI_CONNECTIONS": str(connections), **(environment or {})})
        first = pair.sent_bytes(0)
        deadline = time.monotonic() + 60
        while pair.sent_bytes(0) < first + (32 << 20):  # the ranks are in their calls
            assert time.monotonic() < deadline, "nothing is sent"
            assert all(process.poll() is None for process in processes), hosts.finish(processes)
        rules = " ".join(f"tcp sport {here} tcp dport {there} {action};" for here, there in busiest(pair, 0, torn))
        table = f"table inet torn {{ chain in {{ type filter hook input priority 0; {rules} }}; }}"
        loaded = subprocess.run(["ip", "netns", "exec", pair.names[1], "nft", table], capture_output=True, check=False)
        return hosts.finish(processes) if loaded.returncode == 0 else None
