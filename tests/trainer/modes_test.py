#!/usr/bin/env python3
"""The trainer's modes against one process that trains on the same batches. Prints TAP.

Usage: modes_test.py TRAINER [FACTOR], as program_test.py, whose helpers are used. One process adds the gradients of the
micro-batches in their order, so modes that only move work to other ranks must reach its bits, and modes that add in another
order its numbers. Every mode runs over shared memory and over two emulated hosts, draws what it did, and sends the bytes of its
formula.
"""

import array
import os
import pathlib
import re
import signal
import sys

sys.argv = sys.argv[:3]
import program_test as program  # noqa: E402
import tap  # noqa: E402
from program_test import Folder, digest, finish, train  # noqa: E402

SHAPE = ("--context", "8", "--width", "16", "--depth", "2", "--heads", "4", "--batch", "8", "--accumulate", "4")
DATA_MODE = ("--clip", "0", "--sample", "0")  # of --mode data, to compare with
STEPS = 4
CLOSE = 2e-5  # sums of float32 in another order


def common(folder, *flags):
    """The flags of a small run. A flag of SHAPE may be given again."""
    names = [str(flag) for flag in flags]
    shape = [word for name, value in zip(SHAPE[::2], SHAPE[1::2]) if name not in names for word in (name, value)]
    shape += () if "--mode" in names else DATA_MODE
    return ("--data", folder.text, *shape, *(() if "--steps" in names else ("--steps", STEPS)), *flags)


def parameters_of(path):
    numbers = array.array("f")
    numbers.frombytes(path.read_bytes())
    return numbers


ALONE = {}  # by flags: every folder has the same text


def alone(folder, *flags):
    """One process: its output and its parameters."""
    if flags not in ALONE:
        path = folder.path / "alone"
        output = train("--ranks", 1, *common(folder, *flags, "--parameters", path))[0]
        ALONE[flags] = output, parameters_of(path)
    return ALONE[flags]


def start_hosts(folder, ranks, *flags, environment=None):
    """Half of the ranks on each of two emulated hosts."""
    environments = [{"TUTTI_HOSTID": f"host{2 * rank // ranks}", **(environment or {})} for rank in range(ranks)]
    return program.start_processes(folder, ranks, *flags, environments=environments)


def in_mode(folder, ranks, *flags, hosts=False):
    """A run in a mode: rank 0's output and the parameters."""
    path, drawing = folder.path / "parallel", folder.path / "drawing.svg"
    flags = common(folder, *flags, "--parameters", path, "--drawing", drawing)
    output = finish_all(start_hosts(folder, ranks, *flags)) if hosts else train("--ranks", ranks, *flags)[0]
    assert_drawn(drawing, ranks)
    return output, parameters_of(path)


def assert_drawn(path, ranks):
    """Every rank has a row, and passes and communication are in the picture."""
    lines = path.read_text().splitlines()
    assert sum(">rank " in line for line in lines) == ranks and lines[-1] == "</svg>", lines[:20]
    heights = [line for line in lines if line.startswith("<rect x=")]
    assert any('height="19"' in line for line in heights) and any('height="9"' in line for line in heights), heights


def assert_bytes(output, sent="sent bytes a step", formula="by the formula"):
    assert fact(output, sent) == fact(output, formula), output


def finish_all(processes):
    return [finish(process)[0] for process in processes][0]


def distance(left, right):
    assert len(left) == len(right)
    return max(abs(a - b) for a, b in zip(left, right))


def fact(output, name):
    """The ranks' numbers in a line of facts."""
    line = re.search(rf"^{re.escape(name)} +(.*)$", output, re.MULTILINE)
    assert line, f"no '{name}'\n{output}"
    return [float(word) for word in line.group(1).split()]


def held_out(output):
    return float(re.search(r"held-out loss ([0-9.]+) nats", output).group(1))


def assert_same_bits(folder, ranks, *flags, optimizer="sgd"):
    wanted = digest(alone(folder, "--optimizer", optimizer)[0])
    for hosts in (False, True):
        output = in_mode(folder, ranks, *flags, "--optimizer", optimizer, hosts=hosts)[0]
        assert digest(output) == wanted, output
    return output


def assert_close(folder, ranks, *flags, single=()):
    wanted = alone(folder, "--optimizer", "sgd", *single)[1]
    for hosts in (False, True):
        output, found = in_mode(folder, ranks, *flags, "--optimizer", "sgd", *single, hosts=hosts)
        assert 0 < distance(found, wanted) < CLOSE, f"distance {distance(found, wanted)}\n{output}"
    return output


def check_layers():
    """Model parallel by layers gives the bits of one process"""
    with Folder() as folder:
        assert_bytes(assert_same_bits(folder, 3, "--mode", "layers"))


def check_pipelines():
    """GPipe, 1F1B and interleaved pipelines give the bits of one process; GPipe keeps m micro-batches alive, 1F1B at most p"""
    with Folder() as folder:
        for flags, alive in ((("--schedule", "gpipe"), [4, 4]), (("--schedule", "1f1b"), [2, 1]),
                             (("--schedule", "1f1b", "--chunks", 2), [5, 3])):
            output = assert_same_bits(folder, 2, "--mode", "pipeline", *flags, optimizer="adamw")
            assert fact(output, "micro-batches alive at most") == alive, output
            assert "checked: no deadlock" in output, output
            assert_bytes(output)


def check_drawing():
    """A pipeline draws its schedule and the measured passes, and measures its idle time beside the formula"""
    with Folder() as folder:
        path = folder.path / "measured.svg"
        output = train("--ranks", 2, *common(folder, "--mode", "pipeline", "--drawing", path, "--pace-ms", 1))[0]
        assert 0 < fact(output, "idle % measured")[0] < 100, output
        assert fact(output, "idle % by the formula") == [20, 20], output  # (p - 1) / (m + p - 1) = 1 / 5
        for drawing in (path, folder.path / "measured.svg.plan.svg"):
            passes = re.findall('height="19" fill="#(9ecae1|a1d99b)"', drawing.read_text())
            assert len(passes) == 2 * 2 * 4, drawing.read_text()


def check_pipedream():
    """PipeDream updates after every micro-batch, keeps at most p micro-batches alive, and learns"""
    with Folder() as folder:
        flags = ("--mode", "pipeline", "--schedule", "pipedream", "--report-every", 1, "--learning-rate", "0.02")
        for hosts in (False, True):
            output = in_mode(folder, 3, *flags, hosts=hosts)[0]
            assert fact(output, "micro-batches alive at most") == [3, 2, 1], output
            assert_bytes(output)
            losses = [float(line.split()[1]) for line in output.splitlines() if re.match(r" +\d+ ", line)]
            assert len(losses) == STEPS and losses[-1] < losses[0], output


def check_tensor():
    """Tensor parallel, also by rows between blocks, gives the result of one process; bytes are those of the formula"""
    with Folder() as folder:
        for flags in ((), ("--sequence",)):
            assert_bytes(assert_close(folder, 4, "--mode", "tensor", *flags))


def check_grid():
    """Data x pipeline x tensor on 8 ranks gives the result of one process"""
    with Folder() as folder:
        output = assert_close(folder, 8, "--mode", "grid")
        assert "mesh: data 2 x pipeline 2 x tensor 2\n  data: {0 4} {1 5} {2 6} {3 7}\n" in output, output
        for axis in ("data", "pipeline"):
            assert_bytes(output, f"sent bytes a step, {axis} axis", f"by the formula, {axis}")


def assert_refused(text, ranks, folder, *flags):
    """Every rank ends with this error."""
    errors = train("--ranks", ranks, *common(folder, *flags), status=1)[1]
    for rank in range(ranks):
        assert re.search(rf"^trainer, rank {rank}: .*{re.escape(text)}", errors, re.MULTILINE), errors


def check_zero():
    """ZeRO 1, 2, 3 and offload give the result of one process; bytes are 2S, 2S, 3S, and what a rank holds shrinks"""
    with Folder() as folder:
        held = {}
        for name, flags in (("1", ("--zero-stage", 1)), ("2", ("--zero-stage", 2)), ("3", ("--zero-stage", 3)),
                            ("offload", ("--offload", folder.path))):
            # Sharded gradients are reduced after each accumulated part; that is in the formula too.
            output = assert_close(folder, 4, "--mode", "zero", *flags, single=("--batch", 16))
            assert_bytes(output)
            held[name] = [fact(output, f"bytes of {what} held")[0] for what in ("parameters", "gradients", "optimizer state")]
        assert held["1"][1] > held["2"][1] == held["3"][1], held
        assert held["2"][0] > held["3"][0] > held["offload"][0], held
        assert held["offload"][2] == 0 < held["3"][2] <= held["1"][0] / 2, held
        assert_refused("--offload", 2, folder, "--mode", "zero", "--offload", folder.path / "absent")


def check_local():
    """Copies that meet every step are one process; with H steps between them bytes are divided by H, and DiLoCo learns"""
    with Folder() as folder:
        plain = ("--momentum", 0, "--weight-decay", 0)
        bytes_of = {}
        for period in (1, 2):
            flags = ("--mode", "local", "--period", period)
            output = assert_close(folder, 2, *flags, single=plain) if period == 1 else in_mode(folder, 2, *flags, hosts=True)[0]
            bytes_of[period] = fact(output, "sent bytes a step")
            assert_bytes(output)
        assert bytes_of[1][0] == 2 * bytes_of[2][0], bytes_of
        output = in_mode(folder, 2, "--mode", "local", "--period", 2, "--outer-rate", "0.7", "--outer-momentum", "0.9")[0]
        assert held_out(output) < 3.2 and fact(output, "meetings") == [2, 2], output
        # A run that ends between two meetings ends with one more.
        output = in_mode(folder, 2, "--mode", "local", "--period", 3)[0]
        assert fact(output, "meetings") == [2, 2], output
        assert_bytes(output)


def check_local_learns_as_much():
    """With a quarter and a sixteenth of the bytes the held-out loss is within 2 % of that of every step"""
    with Folder() as folder:
        plain = ("--mode", "local", "--optimizer", "sgd", "--momentum", 0, "--learning-rate", "0.01", "--accumulate", 1, "--steps", 320,
                 "--reproducible")
        runs = {period: in_mode(folder, 2, *plain, "--period", period)[0] for period in (1, 4, 16)}
        for period, output in runs.items():
            assert fact(output, "sent bytes a step")[0] * period == fact(runs[1], "sent bytes a step")[0], output
            assert held_out(output) < 1.02 * held_out(runs[1]) < 0.9 * 3.2, (period, held_out(output), held_out(runs[1]))


def check_server():
    """A synchronous parameter server is one process; no worker gets further ahead than the bound; fast ones do more if they may"""
    with Folder() as folder:
        for servers in (1, 2):
            output = assert_close(folder, servers + 2, "--mode", "server", "--servers", servers)
            assert set(fact(output, "steps ahead at most")) == {0}, output
            assert fact(output, "gradients")[-2:] == [STEPS, STEPS], output
            assert_bytes(output, "sent bytes a gradient")
        slow = ("--mode", "server", "--slow", "2:300", "--pace-ms", 1, "--drawing-steps", STEPS)  # the slow worker needs a second for a gradient
        for hosts in (False, True):
            output = in_mode(folder, 3, *slow, "--staleness", 1, hosts=hosts)[0]
            assert fact(output, "steps ahead at most")[0] == 1 and sum(fact(output, "gradients")[1:]) == 2 * STEPS, output
            output = in_mode(folder, 3, *slow, "--staleness", -1, hosts=hosts)[0]
            assert 1 < fact(output, "steps ahead at most")[0] < 2 * STEPS, output
            gradients = fact(output, "gradients")[1:]
            assert sum(gradients) == 2 * STEPS and gradients[0] > gradients[1], output
            assert held_out(output) < 3.2, output
        assert_refused("leaves no worker", 2, folder, "--mode", "server", "--servers", 2)


def check_expert():
    """Experts on their own ranks give the result of one process with all experts"""
    with Folder() as folder:
        output = assert_close(folder, 2, "--mode", "expert", single=("--experts", 4))
        assert min(fact(output, "sent bytes a step, rows")) > 0, output
        assert_refused("3 experts do not divide among 2 ranks", 2, folder, "--mode", "expert", "--experts", 3)


def check_fusion():
    """Reductions in cycles of time give the bits of reductions in buckets"""
    with Folder() as folder:
        wanted = digest(train("--ranks", 2, *common(folder, "--reproducible"))[0])
        for cycle in (0, 2):
            for hosts in (False, True):
                output = in_mode(folder, 2, "--mode", "fusion", "--fusion-ms", cycle, "--reproducible", hosts=hosts)[0]
                assert digest(output) == wanted and min(fact(output, "cycles a step")) >= 1, output
                assert_bytes(output)


def check_elastic():
    """A rank is killed every three steps and another joins: every step trains on the whole batch, as in one process"""
    with Folder() as folder:
        flags = ("--steps", 12, "--accumulate", 1, "--optimizer", "sgd")
        path, wanted, drawing = (folder.path / name for name in ("elastic", "wanted", "drawing.svg"))
        train("--ranks", 1, *common(folder, *flags, "--parameters", wanted))
        for rank, hosts in ((1, ()), (0, ("--emulate-hosts", 2))):
            output = train("--ranks", 3, *common(folder, *flags, "--mode", "elastic", "--kill", f"{rank}:3", "--parameters", path,
                                                  "--report-every", 1, "--drawing", drawing, *hosts))[0]
            found = re.search(rf"^step 4: .*rank {rank}\b.*\n  2 ranks go on after [0-9.]+ ms, lost steps 1$", output, re.MULTILINE)
            assert found, output
            assert distance(parameters_of(path), parameters_of(wanted)) < CLOSE, output
            assert drawing.read_text().count(">process ") >= 3 and "#fb6a4a" in drawing.read_text(), drawing.read_text()


def children(process):
    return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def check_elastic_with_a_newcomer_that_dies():
    """A newcomer that is killed at its start is replaced: the death of one once ended the run"""
    with Folder() as folder:
        flags = ("--steps", 40, "--accumulate", 1, "--optimizer", "sgd")
        path, wanted = (folder.path / name for name in ("elastic", "wanted"))
        train("--ranks", 1, *common(folder, *flags, "--parameters", wanted))
        process = program.start_processes(folder, 1, "--ranks", 3, *common(
            folder, *flags, "--mode", "elastic", "--kill", "1:20", "--parameters", path), environments=[
                {"TUTTI_SETUP_TIMEOUT_MS": "8000"}])[0]
        first = set()
        while len(first) < 3:
            first |= set(children(process))
        while not (newcomers := set(children(process)) - first):
            pass
        os.kill(newcomers.pop(), signal.SIGKILL)
        output = finish(process, 0)[0]
        assert distance(parameters_of(path), parameters_of(wanted)) < CLOSE, output
        assert "no rank joined: " in output, output


def check_elastic_without_a_living_rank():
    """A stopped rank is replaced, and does not outlive the run; when every rank is killed, the run is an error"""
    with Folder() as folder:
        for kind, steps in ((signal.SIGSTOP, 3000), (signal.SIGKILL, 100000)):
            process = program.start_processes(folder, 1, "--ranks", 3, *common(
                folder, "--mode", "elastic", "--report-every", 1, "--steps", steps, "--accumulate", 1))[0]
            for line in process.stdout:
                if re.match(r" +3 ", line):
                    break
            for pid in children(process)[:1 if kind == signal.SIGSTOP else 3]:
                os.kill(pid, kind)
            output, errors = finish(process, 0 if kind == signal.SIGSTOP else 1)
            assert ("held-out loss" in output) if kind == signal.SIGSTOP else ("every rank was killed" in errors), output + errors


def check_mistakes():
    """Wrong options are one sentence on every rank"""
    with Folder() as folder:
        def refused(text, ranks, *flags):
            assert_refused(text, ranks, folder, *flags)
        # A supervisor says so before it starts a rank, the ranks of a launcher when they have met.
        layers = common(folder, "--mode", "layers")
        stages = "a model of 7 layers has no 8 stages: start fewer ranks, or raise --depth"
        errors = train("--ranks", 8, *layers, status=2)[1]
        assert errors.startswith(f"trainer: {stages}") and "rank 0" not in errors, errors
        for rank, process in enumerate(program.start_processes(folder, 8, *layers)):
            errors = finish(process, 1)[1]
            assert re.search(rf"^trainer, rank {rank}: .*{re.escape(stages)}", errors, re.MULTILINE), errors
        refused("a pipeline needs 2 ranks or more", 1, "--mode", "pipeline")
        refused("interleaved stages take micro-batches in groups of 3 ranks", 3, "--mode", "pipeline", "--chunks", 2)
        refused("4 heads do not divide among 3 ranks", 3, "--mode", "tensor")
        refused("--pipeline-ranks 2 x --tensor-ranks 2 does not divide 6 ranks", 6, "--mode", "grid")
        refused("--kill names rank 2, but there are 2 ranks", 2, "--mode", "tensor", "--kill", "2:1")
        refused("--kill names step 4, but there are 4 steps", 2, "--mode", "tensor", "--kill", "1:4")
        refused("--slow names rank 7, but there are 2 ranks", 2, "--mode", "tensor", "--slow", "7:2")
        refused("absent/x.svg", 2, "--mode", "tensor", "--drawing", folder.path / "absent" / "x.svg")
        refused("absent/p", 2, "--mode", "tensor", "--parameters", folder.path / "absent" / "p")
        odd = ("--sequence", "--context", 5, "--batch")
        rows = "--sequence: the 5 characters of a pass do not divide among 2 ranks: change --batch"
        refused(rows, 2, "--mode", "tensor", *odd, 4)
        refused(rows, 8, "--mode", "grid", *odd, 8)
        refused("a batch of 8 ", 3, "--mode", "local")


# The least ranks of each mode, the rank that is killed or slow there, and flags.
EVERY_MODE = {"layers": (2, 1, ()), "pipeline": (2, 1, ()), "tensor": (2, 1, ()), "grid": (8, 5, ()),
              "zero": (2, 1, ()), "local": (2, 1, ("--period", 1)), "server": (3, 2, ()), "expert": (2, 1, ("--experts", 4)),
              "fusion": (2, 1, ())}


def survivors_of(flags, environment, hosts=True):
    """Runs every mode at once. Yields (mode, lost rank, the other ranks' errors). A rank that still sleeps is ended."""
    runs = []
    for mode, (ranks, lost, more) in EVERY_MODE.items():
        # Each run has its own file for the id.
        own = Folder().__enter__()
        words = common(own, "--mode", mode, *more, *flags(lost))
        runs.append((mode, lost, own, start_hosts(own, ranks, *words, environment=environment) if hosts else
                     program.start_processes(own, ranks, *words, environments=[environment] * ranks)))
    try:
        for mode, lost, _, processes in runs:
            errors = {rank: process.communicate(timeout=program.LIMIT_S)[1] for rank, process in enumerate(processes)
                      if rank != lost}
            assert all(processes[rank].returncode == 1 for rank in errors), (mode, errors)
            yield mode, lost, errors
    finally:
        for _, _, own, processes in runs:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.communicate(timeout=program.LIMIT_S)
            own.__exit__()


def check_killed_rank_in_every_mode():
    """In every mode a killed rank is named by another one, and all others end with an error, on one host and on two"""
    for hosts in (False, True):
        for mode, lost, errors in survivors_of(lambda rank: ("--kill", f"{rank}:2"), {}, hosts=hosts):
            # An axis numbers its own ranks, and then says which ranks of the run these are.
            assert any(re.search(rf"^trainer, rank {rank}: .*rank {lost}\b", text, re.MULTILINE) for rank, text in errors.items()), (
                mode, errors)
            assert all(re.search(rf"^trainer, rank {rank}: ", text, re.MULTILINE) for rank, text in errors.items()), (mode, errors)


def check_slow_rank_in_every_mode():
    """In every mode a rank that is slower than the deadline is named by another one"""
    flags = lambda rank: ("--pace-ms", 1, "--slow", f"{rank}:100000", "--optimizer", "sgd")  # 100 s for a pass
    for mode, lost, errors in survivors_of(flags, {"TUTTI_TIMEOUT_MS": "2000"}):
        assert any(re.search(rf"^trainer, rank {rank}: .*rank {lost}\b", text, re.MULTILINE) for rank, text in errors.items()), (
            mode, errors)


def check_stopped_rank():
    """A rank that is stopped is named by the others"""
    with Folder() as folder:
        environments = [{"TUTTI_TIMEOUT_MS": "1500"}] * 2
        processes = program.start_processes(folder, 2, *common(folder, "--mode", "tensor", "--report-every", 1, "--steps", 100000),
                                            environments=environments)
        for line in processes[0].stdout:
            if re.match(r" +3 ", line):
                break
        processes[1].send_signal(signal.SIGSTOP)
        try:
            errors = finish(processes[0], 1)[1]
        finally:
            processes[1].kill()
            processes[1].communicate(timeout=program.LIMIT_S)
        assert re.search(r"^trainer, rank 0: .*rank 1\b", errors, re.MULTILINE), errors


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
