#!/usr/bin/env python3
"""Prints the tests that failed, from ctest's JUnit files, each with the end of what it printed.

usage: failures.py FILE.xml ...
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

LINES = 40   # of each test
TESTS = 12   # with their output; of others the name


def main():
    shown = 0
    for file in sys.argv[1:]:
        run = "/".join(Path(file).with_suffix("").parts[-2:])
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            if case.get("status") != "fail":
                continue
            print(f"*** {run}: {case.get('name')}, after {float(case.get('time')):.1f} s")
            shown += 1
            if shown <= TESTS:
                lines = (case.findtext("system-out") or "").rstrip().splitlines()
                print("\n".join("    " + line for line in lines[-LINES:]))


if __name__ == "__main__":
    main()
