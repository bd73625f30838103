#!/usr/bin/env python3
"""tutti-tune end to end: it measures, goes on, shows, forgets, and the library uses its rows.

Usage: tutti_tune_test.py TUTTI_TUNE PERF_FOLDER.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import tap  # noqa: E402

TUNE, PERF = map(os.path.abspath, sys.argv[1:3])
SMALL = ["--perf", PERF, "-n", "2", "-c", "broadcast", "-b", "8", "-e", "64", "-f", "8"]


def subprocess_run(place, folder, *arguments):
    done = subprocess.run([TUNE, *arguments], capture_output=True, text=True, check=False, timeout=100, cwd=place,
                          env={**os.environ, "TUTTI_CACHE_DIR": folder})
    return done.returncode, done.stdout, done.stderr


def run(folder, *arguments):
    return subprocess_run(folder, folder, *arguments)


def check_measures_goes_on_shows_and_forgets():
    """It measures, a second call has nothing left to do, and --forget deletes what --show shows"""
    with tempfile.TemporaryDirectory() as folder:
        # On a busy machine the time may be over before the work is.
        for _ in range(20):
            status, table, progress = run(folder, *SMALL, "--rounds", "3", "--budget", "40")
            assert status == 0, progress
            if "the time is over" not in progress and "were left out" not in progress:
                break
        assert "broadcast" in table and "publish" in table, table
        samples = next(pathlib.Path(folder).glob("*.samples"))
        kept = samples.with_suffix(".choice")
        kept.unlink()  # though there is nothing left to measure, the table is kept again
        before = samples.read_text(encoding="utf-8")
        assert " default " in before, before
        status, again, progress = run(folder, *SMALL, "--rounds", "3", "--budget", "40")
        assert status == 0 and again == table and ", run " not in progress, progress
        assert samples.read_text(encoding="utf-8") == before and kept.read_text(encoding="utf-8") == table
        status, shown, _ = run(folder, "--show")
        assert status == 0 and table in shown, shown
        status, compared, complaint = run(folder, "--compare")
        assert status == 0 and "broadcast, 2 ranks" in compared, complaint
        assert "judged by the samples that it was made of" in complaint, complaint
        lines = [line.rsplit(" ", 1)[0] for line in before.splitlines()[1:]]
        samples.write_text("\n".join(["# of an old version", *lines, ""]), encoding="utf-8")
        _, _, progress = run(folder, *SMALL, "--rounds", "1", "--budget", "40")
        assert "is of another version" in progress and ", run " in progress, progress
        assert run(folder, "--forget")[0] == 0
        assert run(folder, "--show")[0] == 1


def check_blocks_that_are_empty_are_not_waited_for():
    """Sizes that give a rank no element are not measured, and other sizes do not count as done"""
    with tempfile.TemporaryDirectory() as folder:
        wanted = ["--perf", PERF, "-n", "4", "-c", "all_gather", "-b", "8", "-e", "128", "-f", "4", "--rounds", "1",
                  "--budget", "40"]
        for _ in range(20):
            status, _, progress = run(folder, *wanted)
            assert status == 0, progress
            if "the time is over" not in progress and "were left out" not in progress:
                break
        status, _, progress = run(folder, *wanted)
        assert status == 0 and ", run " not in progress, progress
        between = [word if word != "8" else "64" for word in wanted]
        status, _, progress = run(folder, *between)
        samples = next(pathlib.Path(folder).glob("*.samples")).read_text(encoding="utf-8")
        assert status == 0 and "all_gather 4 1 64 default" in samples, progress


def check_signals_leave_nothing_behind():
    """A signal ends the perf tool first, then tutti-tune, and no files stay behind"""
    with tempfile.TemporaryDirectory() as folder:
        begun, reports, tool = (os.path.join(folder, name) for name in ("begun", "reports", "broadcast_perf"))
        os.mkfifo(begun)
        os.mkdir(reports)
        with open(tool, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho yes > {begun}\nexec sleep 100\n")
        os.chmod(tool, 0o755)
        for number in (signal.SIGTERM, signal.SIGINT):
            # A session of its own: whoever stays behind is found by its process group.
            with subprocess.Popen([TUNE, *SMALL[2:], "--perf", folder], stderr=subprocess.DEVNULL, start_new_session=True,
                                  env={**os.environ, "TUTTI_CACHE_DIR": folder, "TMPDIR": reports}) as tune:
                with open(begun, encoding="utf-8") as event:
                    assert event.read() == "yes\n"
                assert len(os.listdir(reports)) == 1
                os.kill(tune.pid, number)
                assert tune.wait(60) == -number
            assert not os.listdir(reports)
            try:
                os.killpg(tune.pid, 0)
            except ProcessLookupError:
                continue
            raise AssertionError("a process stays behind")


def check_emulated_hosts_have_a_table_of_their_own():
    """--emulate-hosts measures over TCP, needs -o, and --compare predicts sockets"""
    with tempfile.TemporaryDirectory() as folder:
        status, _, complaint = run(folder, *SMALL, "--emulate-hosts", "2")
        assert status == 2 and "needs -o" in complaint, complaint
        own = ["--emulate-hosts", "2", "-o", "tcp.choice"]  # in the folder where it runs
        status, _, progress = run(folder, *SMALL, *own, "--rounds", "1", "--budget", "40")
        assert status == 0, progress
        samples = (pathlib.Path(folder) / "tcp.choice.samples").read_text(encoding="utf-8")
        assert "broadcast 2 2 8 direct " in samples, samples
        status, compared, complaint = run(folder, *own, "--compare")
        assert status == 0 and "broadcast, 2 ranks on 2 hosts" in compared, compared + complaint


def check_a_job_is_measured_through_its_launcher():
    """--launch puts words before the perf tool; ranks are read from the report"""
    with tempfile.TemporaryDirectory() as folder:
        launcher = pathlib.Path(folder) / "launch"
        launcher.write_text('#!/bin/sh\nexec "$@" --procs 3\n', encoding="utf-8")
        launcher.chmod(0o755)
        status, table, progress = run(folder, "--perf", PERF, "--launch", str(launcher), "-c", "broadcast", "-b", "8",
                                      "-e", "8", "--rounds", "1", "--budget", "80")
        assert status == 0, progress
        samples = next(pathlib.Path(folder).glob("*.samples")).read_text(encoding="utf-8")
        assert "broadcast 3 1 8 direct " in samples, samples
        assert "broadcast       3" in table, table


def check_failed_runs_are_told_and_lose_nothing():
    """The kept folder is made; runs that fail are told, with status 1, and the kept table stays"""
    with tempfile.TemporaryDirectory() as parent:
        folder = parent + "/a new/folder"
        status, table, progress = subprocess_run(parent, folder, *SMALL, "--rounds", "1", "--budget", "40")
        assert status == 0, progress
        status, _, complaint = subprocess_run(parent, folder, "--perf", "/nonexistent", "-n", "2", "-c", "gather")
        assert status == 1 and "/nonexistent/gather_perf" in complaint, complaint
        assert table in subprocess_run(parent, folder, "--show")[1]
        precious = pathlib.Path(parent) / "precious"
        precious.write_text("not a table", encoding="utf-8")
        assert subprocess_run(parent, folder, "--forget", "-o", str(precious))[0] == 1
        assert precious.read_text(encoding="utf-8") == "not a table"


def check_a_short_run_does_not_settle_long_calls():
    """A later call measures sizes that an earlier one did not, and rows end near what was measured"""
    with tempfile.TemporaryDirectory() as folder:
        run(folder, *SMALL, "--rounds", "1", "--budget", "40")
        samples = next(pathlib.Path(folder).glob("*.samples"))
        assert " 4096 default " not in samples.read_text(encoding="utf-8")
        assert "..128 " in run(folder, "--show")[1], run(folder, "--show")[1]
        longer = [word if word != "64" else "4096" for word in SMALL]
        status, _, progress = run(folder, *longer, "--rounds", "1", "--budget", "40")
        assert status == 0 and " 4096 default " in samples.read_text(encoding="utf-8"), progress


def check_wrong_arguments_are_told():
    """What cannot be measured is told, with an exit status"""
    with tempfile.TemporaryDirectory() as folder:
        assert run(folder, "-c", "no_such", "--perf", PERF)[0] == 2
        assert run(folder, "-n", "1")[0] == 2
        assert run(folder, "--budget", "nan")[0] == 2
        status, _, complaint = run(folder, *SMALL, "-o", "/dev/null/table")
        assert status == 2 and "/dev/null/table" in complaint and ", run " not in complaint, complaint
        status, _, complaint = run(folder, "--perf", "/nonexistent", "-n", "2", "-c", "broadcast", "--budget", "5")
        assert status == 1 and "nothing was measured" in complaint, complaint


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
