#!/usr/bin/env python3
"""Prints the names of the Meson tests that suites and names mean, one a line, each once.

Usage: test_names.py MESON FOLDER WORD... A word is suite:NAME, or the name of a test. Status 2 with the reason if a
word means no test: Meson passes over unknown names, and takes an empty list of names for all tests.
"""

import os
import sys

from test_programs import introspect


def main():
    meson, folder, words = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
    tests = introspect(meson, folder, "--tests")
    found = {}
    for word in words:
        suite = word.removeprefix("suite:")
        if suite == word:
            names = [test["name"] for test in tests if test["name"] == word]
        else:
            # Meson writes a suite as PROJECT:SUITE.
            names = [test["name"] for test in tests if suite in [full.split(":")[-1] for full in test["suite"]]]
        if not names:
            print(f"dev: no such test: {word}" if suite == word else f"dev: no tests in suite {suite}", file=sys.stderr)
            sys.exit(2)
        found.update(dict.fromkeys(names))
    print("\n".join(found))


if __name__ == "__main__":
    main()
