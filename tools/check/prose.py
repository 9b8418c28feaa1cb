#!/usr/bin/env python3
"""Checks the documents of the tree: no line of a *.md file is longer than WIDTH characters, and every source file
that doc/design/walk.md names is there.

  prose.py [ROOT]     ROOT is the checkout, by default the one this file lies in

Tables and code fences count like any other line: a table that gets too wide becomes a list. Allowed is a line
that is one word, a URL for instance, with what indents it or makes it a list item: it cannot be broken.

Prints one line per offence and exits with 1 if there are any.
"""

import re
import sys
from pathlib import Path

WIDTH = 120
SKIPPED = {".git", "build", "node_modules", "third_party"}
ONE_WORD = re.compile(r"^\s*(?:[-*>]\s+|\d+\.\s+)?\S+\s*$")


def documents(root):
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if not SKIPPED.intersection(parts) and path.is_file():
            yield path


def offences_of(path, name):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if len(line) > WIDTH and not ONE_WORD.match(line):
            yield f"{name}:{number}: {len(line)} characters, at most {WIDTH}"


def lost_ways(root):
    walk = root / "doc/design/walk.md"
    if not walk.is_file():
        yield "doc/design/walk.md is not there"
        return
    sources = [path.relative_to(root).as_posix() for path in (root / "src").rglob("*.[ch]pp")]
    for name in re.findall(r"`([\w/]+\.[ch]pp)`", walk.read_text(encoding="utf-8")):
        if not any(source.endswith("/" + name) for source in sources):
            yield f"doc/design/walk.md: names {name}, which is not there"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    offences, pages = [], 0
    for path in documents(root):
        pages += 1
        offences += offences_of(path, path.relative_to(root).as_posix())
    lost = list(lost_ways(root))
    for line in offences + lost:
        print(line)
    if not pages:
        sys.exit(f"{root}: no documents found")
    print(f"prose: {pages} pages, {len(offences)} lines too long")
    return 1 if offences or lost else 0


if __name__ == "__main__":
    sys.exit(main())
