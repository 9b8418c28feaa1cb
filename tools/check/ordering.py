#!/usr/bin/env python3
"""Checks that doc/design/ordering.md names each file with an order of memory that is given by hand.

  ordering.py [ROOT]     ROOT is the checkout, by default the one this file lies in

Prints one line per file that is missing there, or named and has no such order; exits with 1 if there are any.
"""

import re
import sys
from pathlib import Path

ORDER = re.compile(r"memory_order_\w+|memory_order::\w+|__ATOMIC_(?!SEQ_CST_)\w+|atomic_(?:thread|signal)_fence|__sync_\w+")
NAMED = re.compile(r"`((?:core|fabric|events|include)/[\w/]+\.(?:hpp|cpp|h))`")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    found = set()
    for base, shown in ((root / "src", ""), (root / "include", "include/")):
        for path in base.rglob("*"):
            if path.suffix in {".hpp", ".cpp", ".h"} and ORDER.search(without_comments(path.read_text())):
                found.add(shown + path.relative_to(base).as_posix())
    named = set(NAMED.findall((root / "doc/design/ordering.md").read_text()))
    problems = [f"{name}: has an order of memory that doc/design/ordering.md does not give a reason for"
                for name in sorted(found - named)]
    problems += [f"doc/design/ordering.md: {name} has no such order, or is not there" for name in sorted(named - found)]
    print("\n".join(problems) or f"ordering: {len(found)} files with orders of memory, each with its reason")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
