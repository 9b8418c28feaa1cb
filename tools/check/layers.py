#!/usr/bin/env python3
"""Checks every #include under src/ and tools/cmiadm against the drawings in doc/design/layers.md.

  layers.py [ROOT]     ROOT is the checkout, by default the one this file lies in

Prints one line per offence and exits with 1 if there are any, with 2 if the drawing is unreadable.
"""

import re
import sys
from pathlib import Path

DRAWING = re.compile(r"^```layers\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".hpp", ".cpp", ".h", ".c", ".inc", ".ipp"}
PUBLIC_HEADER_USERS = ("examples", "bench", "include", "python")
TOOLS = "tools/cmiadm"
TOOL_DRAWING = re.compile(r"^```cmiadm\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_drawing(root):
    """The folders below src/, from the lowest layer to the highest; and of each those on its level
    that it may not include, nor they it."""
    page = root / "doc/design/layers.md"
    found = DRAWING.findall(page.read_text())
    if len(found) != 1:
        sys.exit(f"{page}: expected one block ```layers, found {len(found)}")
    drawing = " ".join(found[0].split())
    order = [name.strip() for name in re.split(r"[<,|]", drawing)]
    if not all(order) or len(set(order)) != len(order):
        sys.exit(f"{page}: a folder is empty or stands twice: {order}")
    strangers = {}
    for level in re.split(r"[<,]", drawing):
        names = [name.strip() for name in level.split("|")]
        for name in names:
            strangers[name] = set(names) - {name}
    return order, strangers


def read_tool_drawing(root):
    """Folders (as in core/base) and headers that cmiadm may include."""
    page = root / "doc/design/layers.md"
    found = TOOL_DRAWING.findall(page.read_text())
    if len(found) != 1:
        sys.exit(f"{page}: expected one block ```cmiadm, found {len(found)}")
    return {name.strip() for name in found[0].replace("\n", ",").split(",") if name.strip()}


def check_tool(root):
    allowed = read_tool_drawing(root)
    offences = []
    for path in sources_below(root / TOOLS):
        for line, quoted, target in includes(path):
            if not quoted or (path.parent / target).is_file():
                continue
            if target in allowed or str(Path(target).parent) in allowed:
                continue
            offences.append(f"{path.relative_to(root)}:{line}: cmiadm may not see {target}")
    return offences


def sources_below(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCES and p.is_file())


def without_comments(text):
    """Keeps the line structure, so that line numbers stay right."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def includes(path):
    """Yields (line number, is quoted, what is included)."""
    text = without_comments(path.read_text())
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1) == '"', match.group(2)


def layer_of(name, order):
    """The longest folder of the drawing that holds `name`, or None."""
    return max((folder for folder in order if name.startswith(folder + "/")), key=len, default=None)


def check(root):
    order, strangers = read_drawing(root)
    src = root / "src"
    offences = []
    userfaultfd_users = []

    for path in sources_below(src):
        name = path.relative_to(src).as_posix()
        own = layer_of(name, order)
        if own is None:
            offences.append(f"src/{name}: lies in no folder of the drawing")
            continue
        for line, quoted, target in includes(path):
            where = f"src/{name}:{line}"
            if target.startswith("rdma/") and own != "fabric":
                offences.append(f"{where}: {target} belongs under src/fabric only")
            if target == "linux/userfaultfd.h":
                userfaultfd_users.append((name, where))
            if not quoted and not (src / target).is_file():
                continue
            if not quoted:
                offences.append(f"{where}: files of src/ are included in quotes: {target}")
            elif not (src / target).is_file():
                offences.append(f"{where}: not a file relative to src/: {target}")
            if ".." in Path(target).parts:
                offences.append(f"{where}: no .. in includes: {target}")
                continue
            used = layer_of(target, order)
            if used in strangers[own]:
                offences.append(f"{where}: {own} and {used} do not include each other: {target}")
            elif used is not None and order.index(used) > order.index(own):
                offences.append(f"{where}: {own} may not include {used}: {target}")

    for name, where in userfaultfd_users:
        if layer_of(name, order) != "core/memory/vm":
            offences.append(f"{where}: linux/userfaultfd.h belongs under src/core/memory/vm only")
    if len({name for name, _ in userfaultfd_users}) > 1:
        offences.append("linux/userfaultfd.h is included by more than one file: " +
                        ", ".join(where for _, where in userfaultfd_users))

    for folder in PUBLIC_HEADER_USERS:
        for path in sources_below(root / folder):
            for line, _, target in includes(path):
                if (src / target).is_file() or ".." in Path(target).parts:
                    offences.append(f"{path.relative_to(root)}:{line}: sees the public headers "
                                    f"only, not {target}")
    return offences + check_tool(root)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    offences = check(root)
    for offence in offences:
        print(offence)
    if offences:
        return 1
    print("layers: every include stands left of its user")
    return 0


if __name__ == "__main__":
    sys.exit(main())
