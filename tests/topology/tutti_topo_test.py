#!/usr/bin/env python3
"""The command line of tutti-topo: forms, refusals and exit status. Prints TAP.

Usage: tutti_topo_test.py PROGRAM MACHINES
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

PROGRAM = sys.argv[1]
MACHINES = pathlib.Path(sys.argv[2])
DGX = str(MACHINES / "dgx_8_gpus.topo")


def run(*flags, status=0, cache="/nowhere"):
    """Runs the tool, which must end with `status`. Returns its output and its notes."""
    done = subprocess.run([PROGRAM, *flags], capture_output=True, text=True, check=False, timeout=120,
                          env={**os.environ, "TUTTI_CACHE_DIR": f"{cache}/tutti"})
    assert done.returncode == status, f"{flags}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def check_this_machine():
    """This machine is shown, and what is assumed is said"""
    output, notes = run()
    assert "core" in output, output
    assert "assumed" in output and "warning: assumed, not known:" in notes, output + notes
    output, _ = run("--matrix")
    assert output.lstrip() and "X" in output, output


def check_tree():
    """The tree shows speeds with their origins, and counts parts that are alike"""
    output, _ = run(DGX)
    assert "core0 ... core55, 56 alike" in output, output
    assert "switch0 ... switch3, 4 alike: switch0, pci 63 GB/s file" in output, output
    assert "nvswitch: nvlink, 450 GB/s file to gpu0 ... gpu7 (8)" in output, output


def check_matrix():
    """The matrix has the words of nvidia-smi, with a legend of those that occur"""
    output, _ = run("--matrix", DGX)
    rows = output.splitlines()
    assert rows[0].split()[:8] == [f"gpu{i}" for i in range(8)], rows[0]
    assert rows[1].split() == ["gpu0", "X"] + ["NV1"] * 7 + ["PIX"] + ["PHB"] * 3 + ["SYS"] * 4, rows[1]
    assert "PXB" not in output and "PIX  at most one PCI switch" in output, output


def check_json():
    """JSON holds every node and link, with the digest"""
    output, _ = run("-f", "json", DGX)
    graph = json.loads(output)
    assert len(graph["digest"]) == 16
    kinds = [node["kind"] for node in graph["nodes"]]
    assert kinds.count("gpu") == 8 and kinds.count("core") == 112, kinds
    speeds = [link["bytes_per_s"] for link in graph["links"] if link["kind"] == "nvlink"]
    assert speeds == [{"value": 450_000_000_000, "origin": "file"}] * 8, speeds


def check_drawing():
    """The drawing is well-formed, and has a box for each GPU and card, for every machine"""
    for path in sorted(MACHINES.iterdir()):
        if path.suffix == ".build":
            continue
        output, _ = run("-f", "svg", str(path))
        root = ElementTree.fromstring(output)
        boxes = [rect.get("class") for rect in root.iter("{http://www.w3.org/2000/svg}rect")]
        assert "host" in boxes, path
        for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
            if rect.get("class"):
                assert int(rect.get("x")) + int(rect.get("width")) <= int(root.get("width")), path
                assert int(rect.get("y")) + int(rect.get("height")) <= int(root.get("height")), path
        if path.name.startswith("dgx"):
            assert boxes.count("gpu") == 8 and boxes.count("nic") == 8 and boxes.count("nvswitch") == 1, boxes


def check_forms():
    """What is written in one form is read in it, and shows the same distances"""
    matrix, _ = run("--matrix", DGX)
    with tempfile.TemporaryDirectory() as folder:
        for form in ("topo", "hwloc"):
            path = str(pathlib.Path(folder) / form)
            output, _ = run("-f", form, "-o", path, DGX)
            assert output == ""
            again, _ = run("--matrix", path)
            # hwloc's file says how many wires a link has; the description does not.
            assert again.replace("NV18", "NV1 ") == matrix, again


def check_description():
    """A machine may be described in the command line"""
    output, _ = run("-m", "-d", "2 gpus, nvlink 100 GB/s")
    assert "NV1" in output, output


def run_job(hosts, *flags):
    """Runs the tool as ranks of a job, which share an id by file. Returns all outputs and the notes of rank 0"""
    with tempfile.TemporaryDirectory() as folder:
        common = {**os.environ, "WORLD_SIZE": str(len(hosts)), "TUTTI_ID_FILE": f"{folder}/id", "TUTTI_KEY": "k" * 16,
                  "TUTTI_SOCKET_IFNAME": "lo", "TUTTI_CACHE_DIR": "/nowhere/tutti"}
        ranks = [subprocess.Popen([PROGRAM, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**common, "RANK": str(rank), "TUTTI_HOSTID": host})
                 for rank, host in enumerate(hosts)]
        try:
            done = [rank.communicate(timeout=120) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        assert [rank.returncode for rank in ranks] == [0] * len(hosts), done
        return [out for out, _ in done], done[0][1]


def check_job():
    """Under a launcher rank 0 shows the whole job, with equal hosts folded; other ranks write nothing"""
    outputs, notes = run_job(["a", "b", "a", "c", "d", "d"])
    assert "h0/host ... h3/host, 4 alike" in outputs[0] and "h1/core" not in outputs[0], outputs[0]
    assert outputs[1:] == [""] * 5, outputs
    assert "ranks 0, 2" in notes and "h1 is " in notes and "ranks 4 to 5" in notes, notes
    outputs, _ = run_job(["a", "b"], "-f", "json")
    graph = json.loads(outputs[0])
    assert [node["name"] for node in graph["nodes"] if node["kind"] == "host"] == ["h0/host", "h1/host"], graph
    assert any("with rank 1" in note for note in graph["notes"]), graph["notes"]
    outputs, _ = run_job(["a", "b"], "-f", "svg")
    ElementTree.fromstring(outputs[0])


def check_one_host_of_a_job():
    """Ranks of one host show that host; --alone does so for any rank"""
    outputs, notes = run_job(["a", "a"])
    assert "h0/" not in outputs[0] and "core" in outputs[0] and outputs[1] == "", outputs
    output, _ = run("--alone")
    assert "core" in output


def check_measurements():
    """Measured numbers are kept, shown, used and deleted"""
    with tempfile.TemporaryDirectory() as cache:
        _, reason = run("--measured", status=1, cache=cache)
        assert "--measure makes the file" in reason, reason
        output, notes = run("--measure", cache=cache)
        # Without a second core, or on a machine that takes it away, slices are not measured.
        assert ("slice send 8 " in output) == ("slice reduce_memory 16384 " in output), output
        assert "trial all_reduce 2 1 ring 8 " in output or "were left out" in notes, output + notes
        assert list(pathlib.Path(cache).rglob("*.choice")) != []
        assert "copy_alone" in output and "socket_speed" in output, output
        assert run("--measured", cache=cache)[0] == output
        tree, notes = run(cache=cache)
        assert "measured" in tree and f"measured numbers are from {cache}" in notes, tree + notes
        run("--forget", cache=cache)
        assert list(pathlib.Path(cache).rglob("*.measured")) + list(pathlib.Path(cache).rglob("*.choice")) == []
        run("--forget", status=1, cache=cache)
        precious = pathlib.Path(cache) / "precious"
        precious.write_text("not measurements", encoding="utf-8")
        assert "not deleted" in run("--forget", "-o", precious, status=1, cache=cache)[1]
        assert precious.exists()
        output = output.split()[1]  # "# PATH"
        pathlib.Path(output).mkdir()
        assert "is no plain file" in run(cache=cache)[1]


def check_what_cannot_be_measured_is_told_before_it_is_tried():
    """Some cores must not speak for all, and numbers need a file"""
    cores = sorted(os.sched_getaffinity(0))
    if run("-f", "topo")[0].count("\ncore ") > 1:
        os.sched_setaffinity(0, cores[:1])
        try:
            assert "only 1 of" in run("--measure", status=1)[1]
        finally:
            os.sched_setaffinity(0, cores)
    _, reason = run("--measure", status=1, cache="/dev/null")
    assert "/dev/null" in reason and "left out" not in reason, reason


def check_refusals():
    """Wrong files end with status 1 and the line, wrong arguments with status 2"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "wrong.topo"
        path.write_text("tutti topology 1\nhost h\ngpu g in nowhere\n")
        output, reason = run(str(path), status=1)
        assert output == "" and "line 3: expected the name of a node above, found 'nowhere'" in reason, reason
        _, reason = run(DGX, "-o", str(pathlib.Path(folder) / "no" / "file"), status=2)
        assert "cannot write" in reason, reason
    assert "the graph has 2" in run("-f", "nccl", "-d", "2 hosts x 2 gpus", status=1)[1]
    run("--format", "pdf", status=2)
    run("-d", "8 gpus", DGX, status=2)
    assert "/no/file" in run("/no/file", status=1)[1]
    assert "refused" in run("--table", DGX, "/no/file", status=1)[0]


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
