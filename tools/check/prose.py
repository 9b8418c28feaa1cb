#!/usr/bin/env python3
"""Checks the documents of the tree:
- no line of a *.md file is longer than WIDTH characters;
- pages of LINES are at most so many lines long;
- each item of doc/design/tried.md is one line;
- doc/design/walk.md names each source file once, and each of them is there;
- doc/design/locking.md names every mutex below src/, and names none that is not there.

  prose.py [ROOT]     ROOT is the checkout, by default the one this file lies in

Tables and code fences count like any other line: a table that gets too wide becomes a list. Allowed is a line
that is one word, a URL for instance, with what indents it or makes it a list item: it cannot be broken.

Prints one line per offence and exits with 1 if there are any.
"""

import re
import sys
from pathlib import Path

WIDTH = 120
LINES = {"doc/design/walk.md": 60, "doc/design/performance.md": 200}
SKIPPED = {".git", "build", "node_modules", "third_party"}
# A member, or a variable of a namespace; not a reference, and not a level of lock_order.hpp.
MUTEX = re.compile(r"^\s*(?:static |mutable |inline |constinit )*(?:std::)?(?:Mutex|HandoverMutex|mutex)\s+(\w+)\b")
CLASS = re.compile(r"^\s*(?:class|struct)\s+(?:CMI_TSA\(.*\)\s+)?(?:alignas\(.*\)\s+)?(?:\w+::)*(\w+)")
MUTEXES_THEMSELVES = {"src/core/base/lock.hpp", "src/core/base/handover_mutex.hpp"}
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


def too_long(root):
    for name, most in LINES.items():
        lines = len((root / name).read_text(encoding="utf-8").splitlines())
        if lines > most:
            yield f"{name}: {lines} lines, at most {most}"


def long_items(root):
    for number, line in enumerate((root / "doc/design/tried.md").read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(" "):
            yield f"doc/design/tried.md:{number}: an item goes on in a second line"


def lost_ways(root):
    walk = root / "doc/design/walk.md"
    if not walk.is_file():
        yield "doc/design/walk.md is not there"
        return
    text = walk.read_text(encoding="utf-8")
    sources = [path.relative_to(root).as_posix() for path in (root / "src").rglob("*.[ch]pp")]
    seen = set()
    for name in re.findall(r"`([\w/]+\.[ch]pp)`", text):
        if not any(source.endswith("/" + name) for source in sources):
            yield f"doc/design/walk.md: names {name}, which is not there"
        if name in seen:
            yield f"doc/design/walk.md: names {name} twice"
        seen.add(name)


def mutexes(root):
    """Yields (file, line number, class or "", name) of each mutex that is a member or has static lifetime."""
    for path in sorted((root / "src").rglob("*.[ch]pp")):
        name = path.relative_to(root).as_posix()
        if name in MUTEXES_THEMSELVES:
            continue
        scopes = []  # of each open brace: the class that it opens, or ""
        pending = ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code = re.sub(r'"(?:\\.|[^"\\])*"', '""', re.sub(r"//.*", "", line))
            found = MUTEX.match(code)
            if found:
                yield name, number, next((scope for scope in reversed(scopes) if scope), ""), found.group(1)
            opened = CLASS.match(code)
            if opened and not code.rstrip().endswith(";"):
                pending = opened.group(1)
            for brace in re.findall(r"[{};]", code):
                if brace == "{":
                    scopes.append(pending)
                    pending = ""
                elif brace == "}" and scopes:
                    scopes.pop()


def unlisted_locks(root):
    page = root / "doc/design/locking.md"
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:\w+::)*(\w+::\w+)`", text)) | set(re.findall(r"`(\w+)`", text))
    there = set()
    for path, number, owner, name in mutexes(root):
        there.update((name, f"{owner}::{name}"))
        whole = f"{owner}::{name}" if owner else name
        if whole not in named:
            yield f"{path}:{number}: {whole} does not stand in doc/design/locking.md"
    if not there:
        yield "src/: no mutex found"
    for name in sorted(named):
        if name not in there and re.search(r"(?:^|_|:)(?:mu|mutex|lock)_?$", name):
            yield f"doc/design/locking.md: names {name}, which is not there"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    offences, pages = [], 0
    for path in documents(root):
        pages += 1
        offences += offences_of(path, path.relative_to(root).as_posix())
    found = [line for check in (too_long, long_items, lost_ways, unlisted_locks) for line in check(root)]
    for line in offences + found:
        print(line)
    if not pages:
        sys.exit(f"{root}: no documents found")
    print(f"prose: {pages} pages, {len(offences)} lines too long")
    return 1 if offences or found else 0


if __name__ == "__main__":
    sys.exit(main())
