"""Runs named checks and prints TAP, the protocol that Meson and dev.d/count_tests.py read case by case.

A check is a function: it returns when good, raises AssertionError when not, Skip when it cannot run here.
"""

import subprocess
import sys
import traceback


class Skip(Exception):
    """The reason why a check cannot run on this machine."""


def run(checks):
    """checks: (name, function) pairs. Leaves the program with status 1 when one failed."""
    checks = list(checks)
    print(f"1..{len(checks)}")
    failures = 0
    for number, (name, check) in enumerate(checks, 1):
        try:
            check()
            print(f"ok {number} - {name}")
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}")
        except Exception as error:  # a check that breaks is a check that fails
            failures += 1
            print(f"not ok {number} - {name}")
            text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            for line in text.splitlines():
                print(f"# {line}")
        sys.stdout.flush()
    sys.exit(1 if failures else 0)


def checks_of(namespace):
    """Every function called check_* of a module, in order; the name is its first docstring line."""
    found = [value for name, value in namespace.items() if name.startswith("check_") and callable(value)]
    return [(function.__doc__.splitlines()[0].rstrip("."), function) for function in found]


def command(*words, **options):
    """Runs a program; its output is in the AssertionError when it fails. Returns standard output."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        shown = " ".join(str(word) for word in words)
        raise AssertionError(f"{shown}\nstatus {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
