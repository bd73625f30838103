#!/usr/bin/env python3
"""The command line of tutti-plan: output, proofs, refusals and exit status. Prints TAP.

Usage: tutti_plan_test.py PROGRAM
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

PROGRAM = sys.argv[1]
PROVED = "# verified: right result, no deadlock with the stated slots, no race (out of place"


def run(*flags, status=0, text=None):
    """Runs the tool, which must end with `status`. Returns its output and its stderr."""
    done = subprocess.run([PROGRAM, *flags], input=text, capture_output=True, text=True, check=False, timeout=60)
    shown = f"tutti-plan {' '.join(flags)}\nstatus {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == status, shown
    assert (done.stderr == "") == (status == 0), shown
    return done.stdout, done.stderr


def expect_mistake(*flags, said):
    """Wrong usage: status 2, no output, and `said` in the reason."""
    output, reason = run(*flags, status=2)
    assert output == "" and said in reason, f"{flags}: {output}{reason}"


def check_request():
    """A request is chosen, proved and priced, and its plans are printed"""
    output, _ = run("all_reduce", "-n", "4", "-s", "1M", "-a", "ring")
    head = "# all_reduce of 4 ranks, 1M bytes: ring, chosen by the command line\n"
    assert output.startswith(head + PROVED), output
    assert "# 4 ranks, " in output and "# predicted time " in output, output
    assert output.count("\nrank ") == 4 and "\ntutti plan 1\n" in output, output
    output, _ = run("all_reduce", "-n", "3")
    assert "of the choice table\n" in output, output
    # A barrier moves no bytes, whatever the size.
    output, _ = run("barrier", "-n", "4", "-s", "1M")
    assert output.startswith("# barrier of 4 ranks, 0 bytes: "), output
    assert "# 0 bytes over links, 0 bytes read and written in memory\n" in output, output


def check_topology():
    """A topology file gives the ranks, the hosts and the costs; an option of the command line wins"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "machine.topo"
        path.write_text("2 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, pcie 63 GB/s\n")
        output, _ = run("all_reduce", "-s", "64M", "--topology", str(path), "--prices")
        assert "hierarchical" in output, output
        fast = run("all_reduce", "-s", "64M", "-a", "ring", "--summary", "--topology", str(path))[0]
        assert "all_reduce of 16 ranks" in fast, fast
        slow = run("all_reduce", "-s", "64M", "-a", "ring", "--summary", "--topology", str(path),
                   "--network-bytes-per-us", "1000")[0]
        assert predicted_us(slow) > 2 * predicted_us(fast), fast + slow
        path.write_text("8 apples\n")
        expect_mistake("all_reduce", "--topology", str(path), said="line 1: expected hosts, gpus")


def predicted_us(report):
    """The predicted time of a report, in microseconds."""
    return float(re.search(r"predicted time ([0-9.]+) us", report).group(1))


def check_parts():
    """The output may be limited to one rank of a plan, or to the report"""
    output, _ = run("broadcast", "-n", "3", "--root", "1", "--rank", "2")
    assert output.count("\nrank ") == 1 and "\nrank 2\n" in output, output
    output, _ = run("barrier", "-n", "3", "--summary")
    assert all(line.startswith("# ") for line in output.splitlines()), output


def check_prices():
    """Every algorithm's predicted time, the fastest first; slow algorithms show a lower bound"""
    output, _ = run("all_reduce", "-n", "256", "--hosts", "32", "--prices")
    lines = output.splitlines()
    assert len(lines) > 5 and all(line.endswith(" us") for line in lines), output
    exact = [float(line.split()[-2]) for line in lines if "at least" not in line]
    assert exact and exact == sorted(exact), output
    assert "at least" not in lines[0] and "at least" in lines[-1], output
    expect_mistake("all_reduce", "-n", "4", "--prices", "--file", "-", said="--file")


def check_what_is_proved():
    """The line of the proof names all properties that were proved, direct writes included"""
    def proof(*flags):
        output, _ = run(*flags, "--summary")
        return next(line for line in output.splitlines() if line.startswith(PROVED))[len(PROVED):]
    two_shot = ("all_reduce", "-n", "2", "-a", "direct_two_shot", "--reference")
    assert proof(*two_shot) == ", by reference, with direct writes)", proof(*two_shot)
    assert proof(*two_shot, "--in-place") == ", in place, by reference, with direct writes)"
    assert proof("all_gather", "-n", "2", "-a", "ring", "--variable-counts") == ", by reference, any counts)"


def check_list():
    """Every algorithm of the list proves a plan of three ranks, or reports that it does not support the request"""
    output, _ = run("--list")
    lines = [line.split() for line in output.splitlines()]
    assert len(lines) > 20, output
    for collective, algorithm, *_ in lines:
        done = subprocess.run([PROGRAM, collective, "-n", "3", "-a", algorithm, "--summary"], capture_output=True,
                              text=True, check=False, timeout=60)
        refused = done.returncode == 2 and "does not support this request" in done.stderr
        assert refused or (done.returncode == 0 and PROVED in done.stdout), done


def check_file():
    """Printed plans are proved again when they are read, from a file and from standard input"""
    plan, _ = run("reduce_scatter", "-n", "4", "-a", "ring")
    output, _ = run("--file", "-", text=plan)
    assert output.startswith(PROVED + ", in place, by reference)"), output
    assert "\nrank " not in output, output
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "my.plan"
        path.write_text(plan)
        output, _ = run("--file", str(path), "--out-of-place", "-s", "4K", "--cores", "2")
        assert output.startswith(PROVED + ", by reference)") and "on 2 cores" in output, output


def check_broken_plan():
    """A wrong plan, or a text without a plan, is refused with the reason and status 1"""
    plan, _ = run("all_reduce", "-n", "2", "-a", "ring")
    output, reason = run("--file", "-", status=1, text=plan.replace(", finish", ""))
    assert output == "" and reason.startswith("# REFUSED: output chunk 0 of rank 0 holds"), output + reason
    lines = plan.splitlines()
    lines.insert(next(i for i, line in enumerate(lines) if " -> " in line), "  input 0 -> nowhere")
    output, reason = run("--file", "-", status=1, text="\n".join(lines))
    assert output == "" and "refused: - line " in reason and "nowhere" in reason, output + reason
    output, reason = run("--file", "-", status=1, text="")
    assert output == "" and "refused: - " in reason, output + reason


def check_unreadable_file():
    """A missing file, or a folder, is wrong usage"""
    with tempfile.TemporaryDirectory() as folder:
        expect_mistake("--file", folder, said="cannot read " + folder)
        expect_mistake("--file", folder + "/none", said="cannot read " + folder + "/none")


def check_wrong_usage():
    """Wrong usage ends with status 2 and a line that names the mistake"""
    expect_mistake(said="name a collective")
    expect_mistake("some_reduce", said="'some_reduce' is not a collective")
    expect_mistake("all_reduce", "-a", "none", said="no algorithm 'none'")
    expect_mistake("all_reduce", "-n", "0", said="--ranks")
    expect_mistake("all_reduce", "-s", "many", said="'many'")
    expect_mistake("broadcast", "--root", "2", said="root 2")
    expect_mistake("all_reduce", "--type", "float7", said="'float7'")
    expect_mistake("all_reduce", "--out-of-place", said="--out-of-place requires --file")
    expect_mistake("all_reduce", "gather", said="gather")
    expect_mistake("--no-such-flag", said="--no-such-flag")


def check_file_and_request():
    """A file holds its own request: a file and a request together are wrong usage, whatever the file holds"""
    for flags in (("all_reduce",), ("-n", "4"), ("-a", "ring"), ("--root", "0"), ("--in-place",), ("--rank", "1"),
                  ("--list",)):
        output, reason = run(*flags, "--file", "-", status=2, text="")
        assert output == "" and " excludes " in reason and "--file" in reason, f"{flags}: {output}{reason}"


CLUSTER = "8 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails, pcie 63 GB/s"


def check_explanation():
    """A stranger reads which algorithm wins, where its time goes, and why ring lost"""
    output, _ = run("explain", "all_reduce", "-s", "64K", "-d", CLUSTER)
    assert output.startswith("all_reduce of 64 KiB on 64 ranks, 8 hosts\n"), output
    assert "Candidates, fastest first:" in output and " 1.00 x" in output and " wins. " in output, output
    ring = output[output.index("  ring ("):]
    assert "More steps that wait for each other: a chain of " in ring.splitlines()[1], ring
    assert "8 ranks were walked for all 64" in output and "The library's table takes " in output, output
    output, _ = run("explain", "all_reduce", "-s", "1G", "-d", CLUSTER, "-a", "ring,hierarchical")
    ring = output[output.index("  ring ("):]
    assert "carries" in ring and "1 link bears this load; hierarchical spreads its load over " in ring, output
    for collective in ("barrier", "all_to_all", "gather"):
        output, _ = run("explain", collective, "-d", "4 cores")
        assert " wins. " in output and "%" in output, output
    assert " wins. " in run("explain", "all_reduce", "-d", CLUSTER, "-n", "1")[0]


def check_known_machines():
    """A known machine's prediction stands beside published figures, and is that of the page of predictions"""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/measurements/predicted.md").read_text(encoding="utf-8")
    for device, size, row, count in (("h100", "1G", r"8 x H100.*?\| 1 GiB \| ([^|]*)\|", 2),
                                     ("a100", "16M", r"8 x A100.*?\| 16 MiB \| ([^|]*)\|", 1)):
        output, _ = run("explain", "all_reduce", "--device", device, "-s", size)
        figures = re.findall(r"(\d+) GB/s, (\w+)", re.search(row, page, re.S).group(1))
        assert len(figures) == count, figures
        for predicted, algorithm in figures:
            assert f"Bus bandwidth of {algorithm}: {predicted} GB/s predicted" in output, output
    for device, size, row in (("h100", "24K", r"8 x H100.*?\| 24 KiB \| ([^|]*)\|"), ("h100", "1M", r"8 x H100.*?\| 1 MiB \| ([^|]*)\|"),
                              ("a100", "8K", r"8 x A100.*?\| 8 KiB \| ([^|]*)\|")):
        output, _ = run("explain", "all_reduce", "--device", device, "-s", size)
        predicted, algorithm, over_links = re.search(r"([\d.]+) us, (\w+) by packets; ([\d.]+) us", re.search(row, page, re.S).group(1)).groups()
        assert re.search(rf"\. By price the library takes {algorithm} by packets\. It is predicted to take {predicted} us: ", output), output
        candidates = re.findall(r"^  (\w+(?: by packets)?) +([\d.]+) us +[\d.]+ x$", output, re.M)
        assert candidates[0][0] == f"{algorithm} by packets", output
        fastest = next(us for name, us in candidates if not name.endswith("by packets"))
        assert f"{float(fastest):.1f}" == over_links, output
    assert "Published: 370 GB/s at 1 GiB, NCCL, ring (nccl-tests issue 212)" in run("explain", "all_reduce", "--device", "h100")[0]
    assert "Published" not in run("explain", "all_gather", "--device", "h100")[0]
    assert "Published" not in run("explain", "all_reduce", "--device", "h100", "-n", "4")[0]
    expect_mistake("explain", "all_reduce", "--device", "h1", said="a100, h100")


def check_table():
    """A choice table for a machine has rows for its rank counts, then the built-in rows"""
    output, _ = run("table", "-d", "8 cores", "-n", "2,8")
    rows = [line.split() for line in output.splitlines() if line and not line.startswith("#")]
    assert rows[0][:2] == ["all_reduce", "2"] and rows[0][3] == "any", rows[0]
    assert ["all_reduce", "*", "*", "any", "direct_one_shot"] in [row[:5] for row in rows], output
    assert "line 1" in run("table", "-d", "8 cats", status=1)[1]
    expect_mistake("table", said="--topology")


def check_timeline():
    """The timeline of a candidate is a trace that browsers read, and a drawing"""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        drawing = pathlib.Path(folder) / "timeline.svg"
        run("explain", "all_reduce", "-s", "1M", "-d", "8 gpus, nvswitch 450 GB/s", "--show", "ring", "--trace",
            str(trace), "--svg", str(drawing))
        spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
        # A GPU's stripes are walked in four groups.
        assert len(spans) == 4 * 8 * 15 and {span["pid"] for span in spans} == set(range(8)), len(spans)
        assert sum(span["args"]["on the longest chain"] for span in spans) == 15
        texts = [text.text for text in ElementTree.fromstring(drawing.read_text()).iter() if text.text]
        assert "rank 7" in texts and texts[2].startswith("all_reduce of 1 MiB, 8 ranks: ring, "), texts[:3]
        _, reason = run("explain", "all_reduce", "-d", "2 gpus, nvlink 100 GB/s", "--svg", folder, status=2)
        assert "cannot write" in reason, reason


def check_wrong_explanations():
    """Wrong machines and requests are refused with the reason"""
    assert "line 1" in run("explain", "all_reduce", "-d", "8 cats", status=1)[1]
    expect_mistake("explain", "all_reduce", said="--topology")
    expect_mistake("explain", "all_reuce", "-d", "4 cores", said="is not a collective")
    expect_mistake("explain", "all_reduce", "-d", "4 cores", "-s", "many", said="'many'")
    expect_mistake("explain", "broadcast", "-d", "4 cores", "--root", "4", said="root 4")
    expect_mistake("explain", "all_reduce", "-d", "4 cores", "-a", "rong", said="no algorithm 'rong'")


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
