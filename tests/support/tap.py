"""Runs named checks and prints TAP, the protocol that Meson and dev.d/count_tests.py read case by case.

A check is a function. It returns on success, raises AssertionError on failure, and Skip if it cannot run here.
"""

import subprocess
import sys
import traceback


class Skip(Exception):
    """The reason why a check cannot run on this machine."""


def run(checks):
    """checks: (name, function) pairs. Exits with status 1 if a check failed."""
    checks = list(checks)
    print(f"1..{len(checks)}")
    failures = 0
    for number, (name, check) in enumerate(checks, 1):
        try:
            check()
            print(f"ok {number} - {name}")
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}")
        except Exception as error:  # any other exception is a failure too
            failures += 1
            print(f"not ok {number} - {name}")
            text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            for line in text.splitlines():
                print(f"# {line}")
        sys.stdout.flush()
    sys.exit(1 if failures else 0)


def checks_of(namespace):
    """Every function check_* of a module, in order. Its name is the first line of its docstring."""
    found = [value for name, value in namespace.items() if name.startswith("check_") and callable(value)]
    return [(function.__doc__.splitlines()[0].rstrip("."), function) for function in found]


def command(*words, **options):
    """Runs a program and returns its standard output. On failure the AssertionError holds the output."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        shown = " ".join(str(word) for word in words)
        raise AssertionError(f"{shown}\nstatus {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
