#!/usr/bin/env python3
"""Communicators between emulated hosts: the bytes on the network, and failures of the network. Prints TAP.

Usage: network_test.py FOLDER, where FOLDER holds the perf tools. Needs root and iproute2; without them every check is
skipped.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "perf/network")]
import cut_link  # noqa: E402
import hosts  # noqa: E402
import tap  # noqa: E402
import torn_sockets  # noqa: E402

TOOLS = pathlib.Path(sys.argv[1])
WHY_NOT = hosts.missing()
HEARTBEAT_MS = 2000


def emulated(**options):
    if WHY_NOT:
        raise tap.Skip(WHY_NOT)
    return hosts.Hosts(**options)


def right(results):
    for status, out, err in results:
        assert status == 0, f"status {status}\n{out}\n{err}"
    assert "0 OK" in results[0][1], results[0][1]
    return results[0][1]


def run(pair, collective, ranks_per_host, *flags, environment=None):
    with tempfile.TemporaryDirectory() as folder:
        processes = pair.launch(TOOLS / f"{collective}_perf", ranks_per_host, pathlib.Path(folder) / "id", *flags,
                                environment=environment)
        return right(hosts.finish(processes))


def algorithms(output):
    return {line.split()[13] for line in output.splitlines() if line and not line.startswith("#")}


def check_collectives_between_hosts():
    """Every collective between two hosts of two ranks is right, from 8 bytes to 1 MiB"""
    with emulated() as pair:
        for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv"):
            run(pair, collective, 2, "-b", "8", "-e", "1M", "-f", "16", "-n", "3", "--hot")


def check_what_the_network_carries():
    """An all_reduce between 2 x 2 ranks sends few bytes more than it must over the network"""
    size, calls = 4 << 20, 10
    with emulated() as pair:
        before = [pair.sent_bytes(side) for side in (0, 1)]
        out = run(pair, "all_reduce", 2, "-b", str(size), "-e", str(size), "-n", str(calls), "-w", "0", "-c", "0", "-I",
                  "--hot")
        sent = [pair.sent_bytes(side) - was for side, was in zip((0, 1), before)]
    # Every host must send 2 n (H - 1) / H = n bytes of each call, plus headers, acknowledgements and the bootstrap.
    passes = 2  # out of place and in place
    least = size * calls * passes
    for side, count in enumerate(sent):
        assert least <= count, f"host {side} sent {count} bytes, less than {least}: not over the network\n{out}"
        assert count <= 1.25 * least + 2e6, f"host {side} sent {count} bytes, {count / least:.2f} times what it must\n{out}"


def check_ipv6():
    """Hosts with IPv6 addresses only find each other"""
    with emulated(family=6) as pair:
        run(pair, "all_reduce", 1, "-b", "8", "-e", "64K", "-f", "64", "-n", "2", "--hot")


def check_jumbo_frames():
    """Frames of 9000 bytes change nothing"""
    with emulated(mtu=9000) as pair:
        run(pair, "all_reduce", 1, "-b", "8", "-e", "1M", "-f", "64", "-n", "3", "--hot")


def check_loss():
    """Results are right when the network loses packets"""
    if not subprocess.run(["sh", "-c", "command -v nft"], capture_output=True, check=False).stdout:
        raise tap.Skip("nftables is not installed")
    with emulated() as pair:
        rule = ("table inet lossy { chain in { type filter hook input priority 0; "
                f"iifname {pair.interfaces[1]} numgen random mod 100 < 1 drop; }}; }}")
        loaded = subprocess.run(["ip", "netns", "exec", pair.names[1], "nft", rule], capture_output=True, check=False)
        if loaded.returncode != 0:
            raise tap.Skip(f"no packet filter here: {loaded.stderr.decode().strip()[:100]}")
        run(pair, "all_reduce", 1, "-b", "8", "-e", "1M", "-f", "64", "-n", "3", "--hot")


def check_a_cut_link():
    """A link that goes down is an error on every rank of both hosts, within the heartbeat time"""
    if WHY_NOT:
        raise tap.Skip(WHY_NOT)
    results, took = cut_link.cut_in_calls(TOOLS, HEARTBEAT_MS)
    for status, out, err in results:
        assert status != 0, out
        assert "lost" in out + err or "no sign of life" in out + err, out + err
    assert took < 10 * HEARTBEAT_MS / 1000, f"after {took:.1f} s"


def torn(connections, count, environment=None):
    """What rank 0 says of the sockets that were replaced, after right results."""
    if WHY_NOT:
        raise tap.Skip(WHY_NOT)
    results = torn_sockets.tear_in_calls(TOOLS, connections, count, "reject with tcp reset", environment)
    if results is None:
        raise tap.Skip("no packet filter here")
    right(results)
    told = [line for line in results[0][2].splitlines() if "is replaced after" in line]
    for line in told:
        took_ms = float(re.search(r"replaced after ([0-9.]+) ms", line)[1])
        assert took_ms < 2000, line
    return told


def check_one_torn_connection_of_two():
    """A reset of one of two data connections costs no result, and it is replaced within 2 s"""
    told = torn(2, 1)
    assert any("of 2 between rank 0" in line for line in told), told


def check_all_connections_torn():
    """So do resets of all data connections, with and without TLS"""
    for tls in ("0", "1"):
        told = torn(2, 2, {"TUTTI_TLS": tls})
        assert len(told) >= 2, told


def check_a_stranger():
    """A stranger at a job's port is rejected and changes nothing"""
    with emulated() as pair, tempfile.TemporaryDirectory() as folder:
        id_path = pathlib.Path(folder) / "id"
        first = pair.start(0, [str(TOOLS / "all_reduce_perf"), "-b", "8", "-e", "8", "-n", "2"],
                           {"RANK": "0", "WORLD_SIZE": "2", "TUTTI_ID_FILE": str(id_path), "TUTTI_PORT_RANGE": "4711-4720"})
        # One port is the bootstrap's. The port for data answers once the ranks have joined.
        knock = ("import socket, sys, time\n"
                 "end, port = time.monotonic() + 30, 4711\n"
                 "while time.monotonic() < end:\n"
                 "    try:\n"
                 "        s = socket.create_connection(('10.77.0.1', port), 1)\n"
                 "        s.sendall(b'GET / HTTP/1.1' + bytes(200))\n"
                 "        while s.recv(4096): pass\n"
                 "        sys.exit(0)\n"
                 "    except ConnectionResetError: sys.exit(0)\n"
                 "    except OSError: port = 4711 + (port - 4710) % 10\n"
                 "sys.exit('nobody hangs up')\n")
        stranger = pair.start(1, [sys.executable, "-c", knock], {})
        (status, _, err), = hosts.finish([stranger], 60)
        assert status == 0, err
        second = pair.start(1, [str(TOOLS / "all_reduce_perf"), "-b", "8", "-e", "8", "-n", "2"],
                            {"RANK": "1", "WORLD_SIZE": "2", "TUTTI_ID_FILE": str(id_path)})
        right(hosts.finish([first, second]))


def check_pairs_of_interfaces():
    """tutti-topo --net tries each interface, and says what is wrong: an MTU that differs, an address without a route"""
    with emulated() as pair, tempfile.TemporaryDirectory() as folder:
        first, second = (f"more{side}" for side in "ab")
        pair.ip(0, "link", "add", first, "mtu", "9000", "type", "veth", "peer", "name", second, "mtu", "9000", "netns",
                pair.names[1])
        for side, name in enumerate((first, second)):
            pair.ip(side, "addr", "add", f"10.78.0.{side + 1}/24", "dev", name)
            pair.ip(side, "link", "set", name, "up")
        pair.ip(0, "link", "set", first, "mtu", "4000")
        pair.ip(1, "link", "add", "alone", "type", "veth", "peer", "name", "other")
        pair.ip(1, "addr", "add", "10.79.0.1/24", "dev", "alone")
        pair.ip(1, "link", "set", "alone", "up")
        processes = pair.launch(TOOLS.parent / "tools/tutti-topo", 1, pathlib.Path(folder) / "id", "--net", "-f", "json")
        results = hosts.finish(processes)
        for status, out, err in results:
            assert status == 1, f"status {status}\n{out}\n{err}"
        found = json.loads(results[0][1])
        pairs = {(one["a"]["rail"], one["b"]["rail"]): one for one in found["pairs"]}
        assert set(pairs) == {tuple(pair.interfaces), (first, second), ("?", "alone")}, pairs
        for one in (pairs[tuple(pair.interfaces)], pairs[first, second]):
            assert not one["failure"], one
            assert one["latency_us"] > 0 and one["there_bytes_per_s"] > 0 and one["back_bytes_per_s"] > 0, one
        assert any("MTU 4000 and 9000" in remark for remark in pairs[first, second]["remarks"]), pairs
        assert "no route to 10.79.0.1" in pairs["?", "alone"]["failure"], pairs


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
