#!/usr/bin/env python3
"""Holds the mutations of the library (what mutated() asks for) against doc/design/mutations.md and the tests.

Each must stand in the page, with the file where it is and with tests that exist, and must be named in
test/; and what the page names must exist. Each rule of doc/design/protocol.md must be named by its number,
in parentheses, in a row or where the page says what changes nothing.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "doc/design/mutations.md"
PROTOCOL = ROOT / "doc/design/protocol.md"
NAME = re.compile(r"\bmutate_[a-z_]+\b")
# A list item: what is broken (rule, ...): `mutate_name` in `file`, `file`, and below it, indented, the tests.
ROW = re.compile(r"^- (?:(?!\n- |\n\n)[\s\S])*?:\s+`(mutate_[a-z_]+)`\s+in\s+((?:`[^`]+`,\s+)*`[^`]+`)\n"
                 r"((?:  [^\n]+(?:\n|\Z))+)", re.MULTILINE)
RULE = re.compile(r"^(\d+)\. ", re.MULTILINE)
NUMBERS = re.compile(r"\((\d+(?:, \d+)*)\)")
NOTHING = re.compile(r"^## What changes nothing.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def text_of(folder, patterns):
    return {path: path.read_text() for pattern in patterns
            for path in sorted((ROOT / folder).rglob(pattern))}


def unnamed_rules():
    page = PAGE.read_text()
    parts = [row.group(0) for row in ROW.finditer(page)] + NOTHING.findall(page)
    named = {int(n) for part in parts for group in NUMBERS.findall(part) for n in group.split(",")}
    last = max(map(int, RULE.findall(PROTOCOL.read_text())))
    return [rule for rule in range(1, last + 1) if rule not in named]


def main():
    wrong = []
    places = {}
    for path, text in text_of("src", ("*.cpp", "*.hpp")).items():
        for name in re.findall(r'\bmutated(?:_late)?\(\s*"(mutate_[a-z_]+)"\s*\)', text):
            places.setdefault(name, set()).add(path.name)
    tests = "\n".join(text_of("test", ("*.cpp", "*.hpp", "CMakeLists.txt")).values())
    used = set(NAME.findall(tests))
    cases = set(re.findall(r'(?:TEST|PROCESS)_CASE\(\s*"([^"]+)"', tests))
    rows = {}
    for name, where, seen_by in ROW.findall(PAGE.read_text()):
        rows[name] = (set(re.findall(r"`([^`]+)`", where)),
                      [test.strip() for test in seen_by.split(";")])
    for name in sorted(places.keys() | rows.keys() | used):
        if name not in places:
            wrong.append(f"{name}: the library has no such mutation")
            continue
        if name not in used:
            wrong.append(f"{name}: no test switches it on")
        if name not in rows:
            wrong.append(f"{name}: not in {PAGE.relative_to(ROOT)}")
            continue
        files, seen_by = rows[name]
        if files != places[name]:
            wrong.append(f"{name}: is in {', '.join(sorted(places[name]))}, "
                         f"not in {', '.join(sorted(files))}")
        for test in seen_by:
            if test != f"checker/{name}_is_caught" and test not in cases:
                wrong.append(f"{name}: there is no test {test}")
    for rule in unnamed_rules():
        wrong.append(f"rule {rule} of {PROTOCOL.relative_to(ROOT)}: not in {PAGE.relative_to(ROOT)}")
    for line in wrong:
        print(f"mutations: {line}")
    print(f"mutations: {len(places)}, {len(wrong)} things wrong" if wrong else
          f"mutations: {len(places)}, each in the list and in a test, of every rule")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
