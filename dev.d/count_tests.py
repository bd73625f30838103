#!/usr/bin/env python3
"""Adds up test cases over build folders and prints the closing line `N passed, N failed[, N skipped]`.

A Meson test counts as its GoogleTest cases (test-results/NAME.xml), else as its TAP lines, else as one case. A test
that failed without a failed case (a crash, a hang, no start) counts as one failure, and so does a test whose report has
no case (a filter that selects none). Status 0 only if some case ran and none failed.
"""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def count_xml(path):
    """Reads GoogleTest's report. None if it is missing or incomplete."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    count = Count()
    for case in root.iter("testcase"):
        if case.get("status") == "notrun":
            continue
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.get("result") == "skipped" or case.find("skipped") is not None:
            count.skipped += 1
        else:
            count.passed += 1
    return count


def count_tap(text):
    """Counts TAP lines. None if the text has no TAP plan."""
    if not re.search(r"^1\.\.\d+", text, re.MULTILINE):
        return None
    count = Count()
    for outcome, rest in re.findall(r"^(ok|not ok)\b(.*)$", text, re.MULTILINE):
        if outcome == "not ok":
            count.failed += 1
        elif re.search(r"#\s*skip", rest, re.IGNORECASE):
            count.skipped += 1
        else:
            count.passed += 1
    return count


def count_test(entry, results):
    """Counts one line of Meson's testlog.json."""
    name = entry["name"].rsplit(" / ", 1)[-1]
    result = entry["result"]
    if result == "SKIP":
        return Count(skipped=1)
    good = result in ("OK", "EXPECTEDFAIL")
    count = count_xml(results / f"{name}.xml") or count_tap(entry.get("stdout") or "")
    if count is None:
        return Count(passed=int(good), failed=int(not good))
    if count == Count() or (not good and count.failed == 0):
        count.failed = 1
    return count


def count_folder(folder):
    total = Count()
    with open(folder / "meson-logs" / "testlog.json", encoding="utf-8") as log:
        for line in log:
            entry = json.loads(line)
            count = count_test(entry, folder / "test-results")
            if count.failed:
                print(f"failed: {entry['name']} ({count.failed}): see {folder}/meson-logs/testlog.txt")
            total.add(count)
    return total


def main(folders):
    total = Count()
    for folder in folders:
        try:
            total.add(count_folder(pathlib.Path(folder)))
        except OSError as error:
            print(f"no test results: {error}")
            total.failed += 1
    line = f"{total.passed} passed, {total.failed} failed"
    if total.skipped:
        line += f", {total.skipped} skipped"
    print(line)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
