#!/usr/bin/env python3
"""Checks of the library over Soft-RoCE devices, within emulated machines (soft_roce.sh). Prints TAP on machine 0.

Usage: checks.py FOLDER NAME..., where FOLDER is a build folder. Each machine runs it; each rank is a process. On one
machine ranks have devices of their own, and TUTTI_HOSTID makes them emulated hosts.
"""

import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

FOLDER = pathlib.Path(sys.argv[1])
MACHINE = int(os.environ["MACHINE_RANK"])
MACHINES = int(os.environ["MACHINE_COUNT"])
DEVICES = int(os.environ["MACHINE_DEVICES"])
RANKS = 2
MANAGEMENT = "198.19.0.1"
CONNECT_TRIES = 50
LIMIT_S = 200
# What a link that goes down may cost the traffic, and how soon a killed rank is known (docs/reliability.md). Beside
# other work on the processors both can take longer.
PAUSE_S = 2
FIGURE_ROUNDS = 3
LATENCY_ROUNDS = 7
LATENCY_S = 120  # fewer rounds on a busy machine
LONG_BYTES = 4 << 20


PROCESSES = []


class Process:
    """A rank. Its standard error is read as it comes, with the time of each line."""

    def __init__(self, rank, arguments, environment):
        own = [f"rxe{i}" for i in range(DEVICES)]
        if MACHINES == 1:
            half = DEVICES // RANKS
            own = own[rank * half:(rank + 1) * half]
            environment = {"TUTTI_HOSTID": f"host{rank}", "TUTTI_IB_HCA": "=" + ",".join(own),
                           "TUTTI_TRANSPORT": "rdma", **environment}
        self.process = subprocess.Popen(
            [str(part) for part in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": MANAGEMENT,
                 # Emulated machines are slow, and slower on a busy machine. Soft-RoCE needs a processor to answer.
                 "TUTTI_HEARTBEAT_MS": "60000", "TUTTI_IB_TIMEOUT": "17", "TUTTI_KEY": "a key for emulated machines",
                 **environment})
        PROCESSES.append(self.process)
        self.out, self.lines = "", []
        self.threads = [threading.Thread(target=self.read_out), threading.Thread(target=self.read_lines)]
        for thread in self.threads:
            thread.start()

    def read_out(self):
        self.out = self.process.stdout.read()

    def read_lines(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip()))

    def finish(self):
        """Returns the exit status; None: it took too long."""
        try:
            status = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = None
        for thread in self.threads:
            thread.join()
        return status

    def text(self):
        return self.out + "\n".join(line for _, line in self.lines)

    def time_of(self, words):
        """When the first line with these words came; waits for it."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            for when, line in list(self.lines):
                if words in line:
                    return when
            if self.process.poll() is not None and not self.threads[1].is_alive():
                break
            self.threads[1].join(0.02)
        raise AssertionError(f"no line with '{words}':\n{self.text()}")


PORT = 4710


# UCX where RDMA would be cheaper. Where tutti has no device for RDMA, the registry's cost chooses UCX, which uses the
# devices. Nothing chooses UCX's own ways.
OVER_UCX = {"TUTTI_TRANSPORT": "ucx"}
WITHOUT_RDMA = {"TUTTI_IB_HCA": "^rxe"}


def launch(arguments, environment=None):
    """The ranks of this machine. Each call has a port of its own, as all machines make the same calls."""
    global PORT
    PORT += 10
    mine = range(RANKS) if MACHINES == 1 else [MACHINE]
    return [Process(rank, arguments, {"MASTER_PORT": str(PORT), **(environment or {})}) for rank in mine]


def perf(name, *flags):
    return [FOLDER / f"perf/{name}_perf", *flags]


def right(processes):
    for process in processes:
        status = process.finish()
        assert status == 0, f"status {status}\n{process.text()}"
    return processes[0].out


def packets_by_device():
    """Packets that each RDMA device of this machine has sent."""
    counters = pathlib.Path("/sys/class/infiniband").glob("rxe*/ports/1/hw_counters/sent_pkts")
    return {path.parts[4]: int(path.read_text()) for path in counters}


def packets():
    return sum(packets_by_device().values())


def judge_results(environment=None, flags=(), name="all_reduce"):
    before = packets()
    out = right(launch(perf(name, "-b", "8", "-e", "256K", "-f", "32", "-n", "3", "-w", "1", *flags), environment))
    if MACHINE == 0:
        assert "0 OK" in out, out
    sent = packets() - before
    assert sent > 100, f"{sent} packets"


def check_results():
    """all_reduce over Soft-RoCE is right, from 8 bytes to 256 KiB, and the devices carry it"""
    judge_results()


def check_registered_buffers():
    """Results are right out of and into registered buffers, and buffers of the symmetric heap"""
    for flags in (("-R", "1"), ("-R", "2")):
        for name in ("all_reduce", "sendrecv"):
            judge_results(flags=flags, name=name)


def check_results_over_ucx():
    """Where the registry's cost chooses UCX, all_reduce over Soft-RoCE is right, and the devices carry it"""
    judge_results(WITHOUT_RDMA)


def judge_conformance(transport, environment=None):
    before = packets()
    # The real library before the fake one, which the test program finds otherwise.
    library = "/usr/lib/x86_64-linux-gnu"
    done = subprocess.run([FOLDER / "tests/test_transports", f"--gtest_filter=Transports/ConformanceTest.*/{transport}"],
                          env={**os.environ, "LD_LIBRARY_PATH": library, "GTEST_BRIEF": "1", **(environment or {})},
                          capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    count = re.search(r"(\d+) tests? from", done.stdout)
    assert count and int(count.group(1)) >= 10, done.stdout
    sent = packets() - before
    assert sent > 100, f"{sent} packets"


def check_conformance():
    """The transport suite holds over Soft-RoCE"""
    judge_conformance("rdma")


def check_conformance_of_ucx():
    """The transport suite holds for UCX over Soft-RoCE"""
    # Within one process UCX would use shared memory.
    judge_conformance("ucx", {"UCX_TLS": "rc_verbs,tcp"})


def check_network_tool():
    """tutti-topo --net tries all pairs of rails; a device off the network and a shorter MTU are told in words"""
    subprocess.run(["ip", "link", "set", "switch1", "nomaster"], check=True)
    subprocess.run(["ip", "link", "set", "rdma2", "mtu", "1500"], check=True)
    ranks = launch([FOLDER / "tools/tutti-topo", "--net", "-f", "json"], {"TUTTI_SOCKET_IFNAME": "br0"})
    statuses = [rank.finish() for rank in ranks]
    subprocess.run(["ip", "link", "set", "switch1", "master", "br0"], check=True)
    subprocess.run(["ip", "link", "set", "rdma2", "mtu", "9000"], check=True)
    assert statuses == [1, 1], f"{statuses}\n{ranks[0].text()}"
    pairs = {(one["a"]["rail"], one["b"]["rail"]): one for one in json.loads(ranks[0].out)["pairs"]}
    assert len(pairs) == 5, pairs.keys()
    for (first, second), one in pairs.items():
        if first == "rxe1:1":
            assert "reach each other" in one["failure"], one
        else:
            assert not one["failure"] and one["there_bytes_per_s"] > 0, one
    assert any("MTU 4096 and 1024" in remark for remark in pairs["rxe0:1", "rxe2:1"]["remarks"]), pairs


def judge_explanation(transport, environment):
    out = right(launch([FOLDER / "tests/fabric_explain"], environment))
    assert f"rank {1 - MACHINE} over {transport}" in out, out
    print(f"# machine {MACHINE}: {out.strip()}", flush=True)


def check_explanation():
    """Without a variable ranks of two machines use RDMA, and tutti_comm_explain says so"""
    judge_explanation("rdma", {})


def check_explanation_of_ucx():
    """Without a device for RDMA the registry's cost chooses UCX, and tutti_comm_explain says so"""
    judge_explanation("ucx", WITHOUT_RDMA)


def check_a_link_that_goes_down():
    """A link that goes down costs a pause and no bit, and the traffic returns with the link"""
    before = packets_by_device()
    processes = launch(perf("all_reduce", "-b", "64K", "-e", "64K", "-n", "60", "-w", "1"),
                       {"TUTTI_SOCKET_IFNAME": "br0"})
    if MACHINE == 0:
        own = [f"rxe{i}" for i in range(DEVICES if MACHINES > 1 else DEVICES // RANKS)]
        busiest, sent = own[0], 0
        while sent < 20 and processes[0].process.poll() is None:
            time.sleep(0.05)
            now = packets_by_device()
            sent, busiest = max((now[name] - before[name], name) for name in own)
        link = busiest.replace("rxe", "rdma")
        went_down = time.monotonic()
        subprocess.run(["ip", "link", "set", link, "down"], check=True)
        moved = processes[0].time_of("goes on over")
        report = subprocess.run([FOLDER / "tools/tutti-inspect", str(processes[0].process.pid)], capture_output=True,
                                text=True, timeout=LIMIT_S, check=False)
        assert f"instead of {busiest}" in report.stdout, report.stdout + report.stderr
        subprocess.run(["ip", "link", "set", link, "up"], check=True)
        processes[0].time_of("goes again over")
        print(f"# traffic moved {moved - went_down:.2f} s after {link} went down", flush=True)
        assert moved - went_down < PAUSE_S
    out = right(processes)
    if MACHINE == 0:
        assert "0 OK" in out, out


def judge_a_killed_rank(environment=None, name="all_reduce", size="64K", flags=()):
    processes = launch(perf(name, "-b", size, "-e", size, "-n", "100000", "-w", "1", *flags), environment)
    before = packets()
    while packets() < before + 20 and processes[0].process.poll() is None:
        time.sleep(0.05)
    victim = processes[-1] if MACHINES == 1 or MACHINE == 1 else None
    killed = time.monotonic()
    if victim:
        victim.process.send_signal(signal.SIGKILL)
        victim.finish()
    if MACHINE == 0:
        status = processes[0].finish()
        assert status not in (0, None), processes[0].text()
        assert "rank 1" in processes[0].text(), processes[0].text()
        took = time.monotonic() - killed
        print(f"# told {took:.1f} s after the kill", flush=True)
        assert took < PAUSE_S


def check_a_killed_rank():
    """A rank that is killed becomes an error that names it"""
    judge_a_killed_rank()


def check_a_rank_killed_while_it_is_written():
    """A rank that is killed while its peer's device writes into its memory becomes an error that names it"""
    judge_a_killed_rank(name="sendrecv", size="4M", flags=("-R", "1", "-c", "0"))


def check_a_killed_rank_over_ucx():
    """Over UCX a rank that is killed becomes an error that names it"""
    judge_a_killed_rank(OVER_UCX)


def check_figures():
    """Bandwidth and latency beside ib_write_bw and ib_send_lat (printed, not judged)"""
    peer = "127.0.0.1" if MACHINES == 1 else MANAGEMENT

    def tool(name, column, *flags):
        arguments = [name, "-F", "-x", "1", *flags]
        server = client = None
        if MACHINE == 0:
            server = subprocess.Popen([*arguments, "-d", "rxe0"], stdout=subprocess.PIPE, text=True)
        if MACHINES == 1 or MACHINE == 1:
            device = "rxe1" if MACHINES == 1 else "rxe0"
            # The client ends with an error until the server listens.
            for _ in range(CONNECT_TRIES):
                client = subprocess.run([*arguments, "-d", device, peer], capture_output=True, text=True,
                                        timeout=LIMIT_S, check=False)
                if client.returncode == 0:
                    break
        if server:
            out = server.communicate(timeout=LIMIT_S)[0]
        out = client.stdout if client else out
        rows = [line.split() for line in out.splitlines() if re.match(r"\s+\d", line)]
        return float(rows[-1][column]) if rows else float("nan")

    def sendrecv(*flags):
        out = right(launch(perf("sendrecv", *flags, "-c", "0"), {"TUTTI_SOCKET_IFNAME": "br0"}))
        rows = [line.split() for line in out.splitlines() if re.match(r"\s+\d", line)]
        return float(rows[0][5]) if rows else float("nan")

    def ping_pong():
        out = right(launch([FOLDER / "tools/tutti-topo", "--net", "-f", "json"], {"TUTTI_SOCKET_IFNAME": "br0"}))
        return statistics.median(one["latency_us"] for one in json.loads(out)["pairs"] if one["transport"] == "rdma")

    # In turns, as the outer machine has other work. Both directions at once, as in sendrecv.
    rates = [(tool("ib_write_bw", 3, "-b", "-s", "65536", "-n", "100"),
              2 * LONG_BYTES / sendrecv("-b", str(LONG_BYTES), "-e", str(LONG_BYTES), "-n", "3", "-w", "1"),
              sendrecv("-b", "8", "-e", "8", "-n", "200", "-w", "20")) for _ in range(FIGURE_ROUNDS)]
    ways, end = [], time.monotonic() + LATENCY_S
    while not ways or (len(ways) < LATENCY_ROUNDS and time.monotonic() < end):
        ways.append((tool("ib_send_lat", 4, "-s", "8", "-n", "1000"), ping_pong()))
    if MACHINE == 0:
        write, long, short = (statistics.median(column) for column in zip(*rates))
        send, ping = (statistics.median(column) for column in zip(*ways))
        ratios = sorted(ours / theirs for theirs, ours in ways)
        print(f"# both directions: ib_write_bw {write:.1f} MB/s, sendrecv of {LONG_BYTES >> 20} MiB {long:.1f} MB/s; "
              f"sendrecv of 8 bytes {short:.0f} us; medians of {FIGURE_ROUNDS}", flush=True)
        print(f"# 8 bytes one way: ib_send_lat {send:.1f} us, ping-pong {ping:.1f} us; ratio of neighbours "
              f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); medians of {len(ways)}",
              flush=True)


def check_rendezvous():
    """Messages into registered memory beside messages through slots (printed, not judged)"""
    times = {}  # by registration and bytes
    for _ in range(FIGURE_ROUNDS):
        for registration in ("0", "1"):
            flags = ("-b", "64K", "-e", "16M", "-f", "4", "-n", "5", "-w", "1", "-c", "0", "-R", registration)
            out = right(launch(perf("sendrecv", *flags)))
            for line in out.splitlines():
                if re.match(r"\s+\d", line):
                    row = line.split()
                    times.setdefault((registration, int(row[0])), []).append(float(row[5]))
    for size in sorted({size for _, size in times}):
        slots, straight = (statistics.median(times[registration, size]) for registration in ("0", "1"))
        print(f"# sendrecv of {size} bytes: slots {slots:.0f} us, registered {straight:.0f} us, "
              f"ratio {slots / straight:.2f}", flush=True)


def judge_the_trainer(environment=None):
    trainer = [FOLDER / "trainer/trainer", "--model", "cnn", "--steps", "2", "--digits", "400", "--reproducible"]
    before = packets()
    out = right(launch(trainer, environment))
    assert packets() - before > 20
    if MACHINE == 0:
        # The same two ranks, in shared memory.
        alone = subprocess.run([*trainer, "--ranks", "2", "--threads"], capture_output=True, text=True,
                               timeout=LIMIT_S, check=True).stdout
        assert out.splitlines()[-1].startswith("parameters "), out
        assert out.splitlines()[-1] == alone.splitlines()[-1], f"{out}\n{alone}"


def check_the_trainer():
    """The trainer runs between the machines, with the parameters of a run on one machine"""
    judge_the_trainer()


def check_the_trainer_over_ucx():
    """Where the registry's cost chooses UCX, the trainer has the parameters of a run on one machine"""
    judge_the_trainer(WITHOUT_RDMA)


def main():
    names = sys.argv[2:]
    failed = 0
    for number, name in enumerate(names, 1):
        check = globals()[f"check_{name}"]
        began = time.monotonic()
        try:
            check()
            verdict, detail = "ok", ""
        except Exception as error:  # pylint: disable=broad-except
            verdict, detail = "not ok", f"{type(error).__name__}: {error}"
            failed += 1
            # Ranks that are left would slow the next check.
            for process in PROCESSES:
                process.kill()
        for line in detail.splitlines():
            print(f"# machine {MACHINE}: {line}", flush=True)
        if MACHINE == 0 or verdict != "ok":
            print(f"{verdict} {number} - {check.__doc__} ({time.monotonic() - began:.0f} s, {MACHINES} machines)",
                  flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    socket.setdefaulttimeout(LIMIT_S)
    main()
