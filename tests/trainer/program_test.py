#!/usr/bin/env python3
"""The trainer as a user sees it: processes, threads, a launcher, files, failures. Prints TAP.

Usage: program_test.py TRAINER [FACTOR], where FACTOR multiplies the time that a program may take. Products are computed on the
host, but where a check says otherwise: stubs of CUDA's libraries lie beside the other tests of the trainer. On the stub of the
driver the library has no ranks on devices; on the fake driver (tests/cuda/driver) it has.
"""

import json
import math
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

TRAINER = sys.argv[1]
LIMIT_S = 180 * int(sys.argv[2] if len(sys.argv) > 2 else 1)
BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "trainer" / "bench.py"
STUBS = pathlib.Path(TRAINER).resolve().parent.parent / "tests" / "trainer"
FAKE_DRIVER = STUBS.parent / "cuda" / "driver"
LAUNCHER_PREFIXES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "PMI_", "PMIX_", "MPI_", "SLURM_",
                     "OMPI_", "JOB_COMPLETION_INDEX", "TUTTI_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
# A model and a text that train in a moment.
WORDS = "the ranks meet and the sums agree; every bucket waits for its last gradient, and the first layer comes last. "
SHAPE = ("--context", "16", "--width", "16", "--depth", "1", "--heads", "2", "--batch", "12", "--sample", "20",
         "--reproducible")
SMALL = (*SHAPE, "--steps", "8")


class Folder:
    """A scratch folder with a text, removed at the end."""

    def __enter__(self):
        self.holder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.holder.name)
        self.text = self.path / "text"
        self.text.write_text(WORDS * 20)
        return self

    def __exit__(self, *_):
        self.holder.cleanup()


def start(*flags, environment=None):
    device = () if "--device" in flags or "--help" in flags else ("--device", "host")
    return subprocess.Popen([TRAINER, *map(str, flags), *device], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**ENVIRONMENT, **(environment or {})})


def finish(process, status=0):
    """Waits for a program, which must end with `status`. Returns (stdout, stderr)."""
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    shown = f"{process.args}\nstatus {process.returncode}\n{output}{errors}"
    assert process.returncode == status, shown
    return output, errors


def train(*flags, status=0, environment=None):
    return finish(start(*flags, environment=environment), status)


def digest(output):
    return re.search(r"^parameters ([0-9a-f]{16})$", output, re.MULTILINE).group(1)


def start_processes(folder, count, *flags, hosts=False, environments=()):
    """Ranks of a launcher that sets RANK and WORLD_SIZE. With `hosts` each rank is on its own emulated host.
    `environments`: more variables for each rank."""
    ranks = []
    for rank in range(count):
        environment = {"RANK": str(rank), "WORLD_SIZE": str(count), "TUTTI_ID_FILE": str(folder.path / "id"),
                       "TUTTI_SOCKET_IFNAME": "lo"}
        if hosts:
            environment["TUTTI_HOSTID"] = f"host{rank}"
        if environments:
            environment.update(environments[rank])
        ranks.append(start(*flags, environment=environment))
    return ranks


def check_processes_threads_and_tcp():
    """Processes, threads, launcher processes and TCP between emulated hosts give equal bits, whatever the buckets"""
    with Folder() as folder:
        common = ("--data", folder.text, *SMALL)
        wanted = digest(train("--ranks", 3, *common)[0])
        assert digest(train("--ranks", 3, "--threads", "--bucket-bytes", 0, *common)[0]) == wanted
        for emulates_hosts, buckets in ((False, "4KiB"), (True, "4KiB"), (True, 0)):
            ranks = start_processes(folder, 3, "--bucket-bytes", buckets, *common, hosts=emulates_hosts)
            outputs = [finish(rank)[0] for rank in ranks]
            assert digest(outputs[0]) == wanted, f"hosts emulated: {emulates_hosts}, buckets {buckets}"
            assert outputs[1] == outputs[2] == "", outputs[1]


def check_what_is_printed():
    """Progress, held-out and trigram losses, the share of hidden communication and a sample are printed"""
    with Folder() as folder:
        output, errors = train("--ranks", 2, "--data", folder.text, *SMALL)
        assert errors == "", errors
        for text in ("2 ranks", "bits/char", "held-out", "samples/s", "hidden %", "% of communication hidden",
                     "a trigram model of the same text"):
            assert text in output, f"no '{text}'\n{output}"
        lines = [line.split() for line in output.splitlines() if re.match(r" +\d+ ", line)]
        assert [int(line[0]) for line in lines] == list(range(1, 9)), output
        assert len(output.split(digest(output))[1].strip("\n")) >= 20, output
        help_text = train("--help")[0]
        assert "--bucket-bytes" in help_text, help_text


def check_learning():
    """Two ranks read drawn digits with at least 97 % accuracy, and a text better than a trigram model"""
    for model, steps in (("mlp", 240), ("cnn", 160)):
        output = train("--ranks", 2, "--model", model, "--steps", steps, "--digits", 6000)[0]
        accuracy = float(re.search(r"test accuracy ([0-9.]+) %", output).group(1))
        assert accuracy >= 97, output
    with Folder() as folder:
        # Random words: the start of a word tells its end, from more than two characters back.
        words = "alpha gravel marble pebble granite gallery barley".split()
        state, text = 1, ""
        while len(text) < 20000:
            state = (state * 1103515245 + 12345) % 2**31
            text += words[(state >> 16) % len(words)] + " "
        folder.text.write_text(text)
        output = train("--ranks", 2, "--data", folder.text, "--context", 24, "--width", 32, "--depth", 1, "--steps", 300,
                       "--batch", 16, "--learning-rate", 0.01)[0]
        found = re.search(r"held-out loss ([0-9.]+) bits a character, a trigram model of the same text ([0-9.]+)", output)
        assert float(found.group(1)) < float(found.group(2)), output


def draw_bars(count, seed):
    """IDX images and labels: a bar at one of ten angles, at a random position and grey."""
    images, labels = bytearray(), bytearray()
    generator = random.Random(seed)
    for _ in range(count):
        label = generator.randrange(10)
        angle, x, y = math.pi * label / 10, generator.uniform(4.5, 6.5), generator.uniform(4.5, 6.5)
        for pixel in range(144):
            away = (pixel % 12 - x) * math.sin(angle) - (pixel // 12 - y) * math.cos(angle)
            images.append(generator.randrange(180, 256) if abs(away) < 1 else generator.randrange(40))
        labels.append(label)
    return struct.pack(">4B3I", 0, 0, 8, 3, count, 12, 12) + images, struct.pack(">4BI", 0, 0, 8, 1, count) + labels


def check_idx_folder():
    """The trainer learns images from MNIST's four files"""
    with Folder() as folder:
        for stem, count, seed in (("train", 1500, 1), ("t10k", 300, 2)):
            images, labels = draw_bars(count, seed)
            (folder.path / f"{stem}-images-idx3-ubyte").write_bytes(images)
            (folder.path / f"{stem}-labels-idx1-ubyte").write_bytes(labels)
        for model in ("mlp", "cnn"):
            output = train("--ranks", 2, "--model", model, "--data", folder.path, "--steps", 150)[0]
            assert "1500 samples" in output and "12 x 12" in output, output
            assert float(re.search(r"test accuracy ([0-9.]+) %", output).group(1)) >= 97, output


def assert_overlap(events, first_layer):
    """In each of three steps of two ranks, the first bucket starts before the backward pass has ended."""
    for rank in (0, 1):
        own = [event for event in events if event["ph"] == "X" and event["pid"] == rank]
        assert {"forward", "backward", "wait", "update", "reduce"} == {event["cat"] for event in own}
        ends = [event["ts"] + event["dur"] for event in own if event["cat"] == "backward" and event["name"] == first_layer]
        begun = [event for event in own if event["name"] == "bucket 0"]
        assert len(ends) == len(begun) == 3
        assert all(event["ts"] < end for event, end in zip(begun, ends)), "the first bucket waited for the last layer"


def check_timeline():
    """The timeline shows reductions of buckets during the backward pass of earlier layers"""
    with Folder() as folder:
        path = folder.path / "timeline.json"
        train("--ranks", 2, "--model", "mlp", "--steps", 7, "--digits", 400, "--bucket-bytes", 0, "--timeline", path)
        events = json.loads(path.read_text())
        names = {event["args"]["name"] for event in events if event["ph"] == "M"}
        assert names == {"rank 0", "rank 1", "compute", "communication"}, names
        for rank in (0, 1):
            reductions = [event for event in events if event.get("cat") == "reduce" and event["pid"] == rank]
            assert len(reductions) == 3 * 6, f"{len(reductions)} reductions"
        assert_overlap(events, "hidden1")


def check_resume():
    """A killed run resumes from its checkpoint and ends with the same bits as an undisturbed run"""
    with Folder() as folder:
        path = folder.path / "checkpoint"
        common = ("--ranks", 2, "--data", folder.text, *SMALL, "--report-every", 1)
        wanted = digest(train(*common)[0])
        killed = start(*common, "--checkpoint", path, "--checkpoint-every", 1)
        for line in killed.stdout:
            if re.match(r" +3 ", line):
                break
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=LIMIT_S)
        output = train(*common, "--resume", path)[0]
        assert digest(output) == wanted, output
        assert not re.search(r"^ +1 ", output, re.MULTILINE), f"began anew\n{output}"


def check_lost_rank():
    """When a rank is killed, the other ranks end with an error that names it, and the last checkpoint is whole"""
    with Folder() as folder:
        path = folder.path / "checkpoint"
        common = ("--data", folder.text, *SHAPE, "--report-every", 1)
        for hosts in (False, True):
            ranks = start_processes(folder, 3, *common, "--steps", 100000, "--checkpoint", path, "--checkpoint-every", 1,
                                    hosts=hosts)
            for line in ranks[0].stdout:
                if re.match(r" +3 ", line):
                    break
            ranks[2].kill()
            for rank in (0, 1):
                assert re.search(rf"^trainer, rank {rank}: .*rank 2\b", finish(ranks[rank], 1)[1], re.MULTILINE)
            finish(ranks[2], -signal.SIGKILL)
            assert not (folder.path / "checkpoint.new").exists()
            assert digest(train("--ranks", 2, *common, "--resume", path, "--steps", 1)[0])


def check_devices():
    """Products on a GPU train as well as on the host; without a GPU the trainer reports it, or refuses --device cuda"""
    with Folder() as folder:
        common = ("--ranks", 2, "--data", folder.text, *SMALL)
        loss = re.compile(r"held-out loss ([0-9.]+)")
        wanted, _ = train(*common)
        assert "matrix products: OpenBLAS\nreductions: on a host stream\n" in wanted, wanted
        for flags in (("--device", "cuda"), ("--device", "auto", "--threads")):
            output, _ = train(*common, *flags, environment={"LD_LIBRARY_PATH": str(STUBS)})
            assert "matrix products: cuBLAS on GPU 0 (stub)\nreductions: on a host stream (rank 0: " in output, output
            difference = float(loss.search(output).group(1)) - float(loss.search(wanted).group(1))
            assert abs(difference) < 0.01, output
        (folder.path / "libcuda.so.1").write_text("no library")
        without = {"LD_LIBRARY_PATH": str(folder.path)}
        output, _ = train(*common, "--device", "auto", environment=without)
        assert re.search(r"^matrix products: OpenBLAS \(no GPU: .*libcuda", output, re.MULTILINE), output
        assert digest(output) == digest(wanted), output
        _, errors = train(*common, "--device", "cuda", status=1, environment=without)
        for rank in (0, 1):
            assert re.search(rf"^trainer, rank {rank}: rank 0: --device cuda: no GPU can be used", errors, re.MULTILINE), errors


def with_gpu():
    """The environment of a rank with a GPU that reduces gradients."""
    if not (FAKE_DRIVER / "libcuda.so.1").exists():
        raise tap.Skip("built without CUDA's headers: there is no fake driver")
    return {"LD_LIBRARY_PATH": f"{FAKE_DRIVER}:{STUBS}"}


def check_gpu_reductions():
    """Reductions on a CUDA stream give the same bits as on a host stream, compressed or not"""
    gpu, stub = with_gpu(), {"LD_LIBRARY_PATH": str(STUBS)}
    with Folder() as folder:
        # The same stub of cuBLAS computes the products.
        def both(*flags):
            common = (*flags, "--data", folder.text, *SHAPE, "--steps", 3, "--device", "cuda")
            output, _ = train(*common, environment=gpu)
            assert re.search(r"^reductions: on a CUDA stream of GPU 0 \(.*\)$", output, re.MULTILINE), output
            assert digest(output) == digest(train(*common, environment=stub)[0]), output
        for ranks in (1, 2, 3):
            both("--ranks", ranks)
        both("--ranks", 3, "--threads", "--bucket-bytes", 0)
        for name in ("bf16", "topk", "powersgd"):
            both("--ranks", 2, "--compression", name, "--bucket-bytes", "4KiB")


def check_gpu_timeline():
    """On a CUDA stream, too, buckets are reduced during the backward pass of earlier layers"""
    with Folder() as folder:
        path = folder.path / "timeline.json"
        output, _ = train("--ranks", 2, "--data", folder.text, *SHAPE, "--steps", 6, "--bucket-bytes", 0, "--device", "cuda",
                          "--timeline", path, environment=with_gpu())
        assert "reductions: on a CUDA stream" in output, output
        assert_overlap(json.loads(path.read_text()), "embedding")


def check_gpu_failures():
    """The rank of a failed GPU names the GPU, other ranks name the rank; ranks on different hosts reduce on GPUs too"""
    gpu = with_gpu()
    with Folder() as folder:
        common = ("--data", folder.text, *SHAPE, "--steps", 4, "--device", "cuda")
        failing = {**gpu, "FAKE_CUDA_FAIL": "cuEventSynchronize:2:702"}
        ranks = start_processes(folder, 2, *common, environments=(failing, gpu))
        errors = finish(ranks[0], 1)[1]
        assert re.search(r"^trainer, rank 0: GPU 0 \(.*\): reducing gradients: .*\(702\)$", errors, re.MULTILINE), errors
        errors = finish(ranks[1], 1)[1]
        assert re.search(r"^trainer, rank 1: .*\brank 0\b", errors, re.MULTILINE), errors
        errors = train("--ranks", 3, "--threads", *common, status=1, environment=failing)[1]
        assert errors.count("\n") == 3 and "reducing gradients" in errors, errors
        ranks = start_processes(folder, 2, *common, hosts=True, environments=(gpu, gpu))
        outputs = [finish(rank)[0] for rank in ranks]
        assert re.search(r"^reductions: on a CUDA stream of GPU 0", outputs[0], re.MULTILINE), outputs[0]


def check_mistakes():
    """Mistakes end every rank with an error and a status other than 0"""
    with Folder() as folder:
        def refused(text, *flags, status=1, ranks=2):
            errors = train("--ranks", ranks, *flags, status=status)[1]
            if status == 1:
                for rank in range(ranks):
                    assert re.search(rf"^trainer, rank {rank}: .*{re.escape(text)}", errors, re.MULTILINE), errors
            else:
                assert text in errors, errors
        refused("no such file or folder", "--data", folder.path / "absent")
        broken = folder.path / "mnist"
        broken.mkdir()
        refused("no such file", "--model", "mlp", "--data", broken)
        for stem in ("train", "t10k"):
            for kind in ("images-idx3", "labels-idx1"):
                (broken / f"{stem}-{kind}-ubyte").write_bytes(b"\0\0\x08\x03 but then nothing")
        refused("train-images-idx3-ubyte is cut short", "--model", "mlp", "--data", broken)
        refused("more ranks (9) than samples (8)", "--model", "mlp", "--digits", 8, ranks=9)
        refused("does not divide among 2 ranks", "--model", "mlp", "--digits", 80, "--batch", 9)
        refused("too short for a context of 4000", "--data", folder.text, "--context", 4000)
        for name, content, text in (("empty", b"", "is empty"), ("binary", b"a\0b" * 100, "is not text")):
            (folder.path / name).write_bytes(content)
            refused(text, "--data", folder.path / name)
            (folder.path / name).unlink()
        refused("not enough text", "--data", broken)
        path = folder.path / "checkpoint"
        tiny = ("--digits", 80, "--batch", 8, "--steps", 2)
        train("--ranks", 2, "--model", "mlp", *tiny, "--checkpoint", path)
        refused("it has the model 'mlp", "--model", "cnn", *tiny, "--resume", path)
        # Before the first step, not after the last.
        for flag in ("--checkpoint", "--timeline", "--parameters"):
            for place, text in ((folder.path / "absent" / "file", "cannot create"), (folder.text / "file", "cannot create"),
                                (broken, "is a folder")):
                refused(text, "--model", "mlp", "--steps", 1000000000, flag, place)
        # A failed model does not replace a better one.
        refused("the loss or a parameter is not a number by step", "--data", folder.text, *SHAPE, "--steps", 100, "--optimizer", "sgd",
                "--learning-rate", 1000, "--clip", 0, "--checkpoint", folder.path / "diverged")
        refused("--compression", "--model", "mlp", *tiny, "--compression", "zip", status=2)
        assert sorted(entry.name for entry in folder.path.iterdir()) == ["checkpoint", "mnist", "text"]


def check_bench():
    """The benchmark of bucket sizes writes a table, its numbers and a plot"""
    with Folder() as folder:
        done = subprocess.run([sys.executable, str(BENCH), "--trainer", TRAINER, "--out", str(folder.path / "out"), "--links",
                               "memory", "--buckets", "0,1048576", "--compressions", "bf16", "--steps", "8", "--rounds", "1",
                               "--no-torch", "--data", str(folder.text)], capture_output=True, text=True, check=False, env=ENVIRONMENT,
                              timeout=LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = json.loads((folder.path / "out/trainer.json").read_text())
        assert [(row["library"], row["bucket_bytes"]) for row in rows] == \
            [("tutti", 0), ("tutti", 1048576), ("tutti", None), ("tutti, bf16", None)], rows
        assert all(row["step_ms"] > 0 and 0 <= row["hidden_percent"] <= 100 for row in rows), rows
        table = (folder.path / "out/trainer.txt").read_text()
        assert table in done.stdout and "per tensor" in table, done.stdout
        assert "<polyline" in (folder.path / "out/trainer.svg").read_text()


def check_compression():
    """With compression the trainer prints the saving, and still learns"""
    for name, least in (("f16", 50), ("bf16", 50), ("topk", 80), ("powersgd", 80)):
        output = train("--ranks", 2, "--model", "mlp", "--steps", 200, "--digits", 4000, "--compression", name)[0]
        saved = float(re.search(r"\(([0-9.]+) % saved by compression\)", output).group(1))
        assert saved >= least - 0.1, output
        assert float(re.search(r"test accuracy ([0-9.]+) %", output).group(1)) >= 90, output


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
