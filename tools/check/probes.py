#!/usr/bin/env python3
"""Holds the probes that the library has against those that cmi_probes(7) lists.

  probes.py LIBCMI_SO

Fails where one of the two has a probe that the other has not, or another number of arguments. A
library without any was built without <sys/sdt.h>: exit status 77.
"""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "doc/man/cmi_probes.7"
LISTED = re.compile(r"^\.It Cm (\w+) Ta ([^\n]*?) Ta ", re.MULTILINE)
NOTE = re.compile(r"Provider: libcmi\s+Name: (\w+)\s+Location:[^\n]*\s+Arguments:([^\n]*)")


def main():
    notes = subprocess.run(["readelf", "--notes", "--wide", sys.argv[1]], capture_output=True,
                           text=True, check=True).stdout
    has = {name: len(arguments.split()) for name, arguments in NOTE.findall(notes)}
    if not has:
        print("probes: the library has none: it was built without <sys/sdt.h>")
        sys.exit(77)
    listed = {name: len(arguments.split(", ")) for name, arguments in
              LISTED.findall(PAGE.read_text())}
    for name in sorted(has.keys() | listed.keys()):
        if has.get(name) != listed.get(name):
            print(f"probes: {name}: the library has {has.get(name)} arguments, {PAGE.name} "
                  f"{listed.get(name)}")
    if has != listed:
        sys.exit(1)
    print(f"probes: {len(has)}, as listed")


main()
