#!/usr/bin/env python3
"""Holds the names of the models' steps (model/*.pml) against the code.

Each inline of a model is named as a function in src/, or stands in the table of doc/design/model.md; the files
and functions that the table names must be there.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "doc/design/model.md"
TITLE = "## Steps with names of their own"


def has(text, function):
    return re.search(rf"\b{function}\(", text) is not None


def table():
    """(step, model) -> what the code has instead."""
    rows = {}
    section = PAGE.read_text().split(TITLE + "\n", 1)[1].split("\n## ", 1)[0]
    for steps, model, code in re.findall(r"^\| (`[^|]*) \| (\w+) \| ([^|]*) \|$", section, re.MULTILINE):
        for step in re.findall(r"`(\w+)`", steps):
            rows[step, model] = code
    return rows


def main():
    sources = {}
    for pattern in ("*.cpp", "*.hpp"):
        for path in (ROOT / "src").rglob(pattern):
            sources.setdefault(path.name, []).append(path.read_text())
    everything = "\n".join(text for texts in sources.values() for text in texts)
    rows = table()
    wrong, seen = [], set()
    for model in sorted((ROOT / "model").glob("*.pml")):
        for step in re.findall(r"^inline (\w+)\(", model.read_text(), re.MULTILINE):
            seen.add((step, model.stem))
            if (step, model.stem) not in rows and not has(everything, step):
                wrong.append(f"{model.name}: {step} is no function of src/, and not in {PAGE.name}")
    for key, code in rows.items():
        if key not in seen:
            wrong.append(f"{PAGE.name}: {key[1]}.pml has no step {key[0]}")
        for place in code.split(";"):
            names = re.findall(r"`([^`]+)`", place)
            if not names:
                continue  # not in src/
            file, functions = names[0], names[1:]
            text = "\n".join(sources.get(file, []))
            wrong += [f"{PAGE.name}: {file} has no {f}" for f in functions if not has(text, f)]
    for line in wrong:
        print(f"model: {line}")
    if not wrong:
        print(f"model: {len(seen)} steps, each named as in the code or in the table")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
