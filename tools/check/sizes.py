#!/usr/bin/env python3
"""Checks that files, functions, classes and structs of src/, tools/, bench/ and python/ stay small.

  sizes.py [ROOT]     ROOT is the checkout, by default the one this file lies in

A place that must be larger says why in a comment of the form `// Size: reason`: in the comment at the
top of the file, or in that directly above the class, struct or function. A reason that is no longer
needed is an offence, too. Functions and classes are found by Universal Ctags. Prints one line per
offence and exits with 1 if there are any, with 2 if ctags is missing.
"""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

FOLDERS = ("src", "tools", "bench", "python")
CODE = {".hpp", ".h", ".cpp", ".c"}
FILE_LINES = {".hpp": 300, ".h": 300, ".cpp": 400, ".c": 400, ".py": 400, ".sh": 400}
FUNCTION_LINES = 60
CLASS_LINES = 600  # its body, and its functions in the .cpp files
PUBLIC_METHODS = 25
PUBLIC_FIELDS = 15

SIZE = re.compile(r"^\s*(?://|#)\s*Size: \S")
COMMENT = re.compile(r"^\s*(?://|#(?!\s*(?:include|pragma|define|if|endif)))")
MACROS = ("CMI_GUARDED_BY", "CMI_PT_GUARDED_BY", "CMI_REQUIRES", "CMI_EXCLUDES", "CMI_ACQUIRE",
          "CMI_RELEASE", "CMI_TRY_ACQUIRE", "CMI_ACQUIRED_AFTER", "CMI_ACQUIRED_BEFORE", "CMI_TSA")


class Source:
    def __init__(self, path):
        self.lines = path.read_text().splitlines()
        # Places of reasons, by the number of the line that they stand for: 0 is the file's top.
        self.reasons = {}
        top = True
        for number, line in enumerate(self.lines, 1):
            if top and not (COMMENT.match(line) or line.startswith("#!")):
                top = False
            if SIZE.match(line):
                self.reasons[0 if top else self.below(number)] = number
        self.needed = set()

    def below(self, number):
        """The first line behind the comment that this one belongs to."""
        while number <= len(self.lines) and COMMENT.match(self.lines[number - 1]):
            number += 1
        return number

    def excused(self, line):
        """Whether a reason stands above this line, of which ctags may name a later one of several."""
        for place in (line, line - 1, line - 2) if line else (0,):
            if place in self.reasons and not self.ends_between(place, line):
                self.needed.add(place)
                return True
        return False

    def ends_between(self, first, last):
        return any(re.search(r"[;}]\s*$", text) for text in self.lines[max(first - 1, 0):max(last - 1, 0)])


def tags_of(root, folders):
    command = ["ctags", "--options=NONE", "--languages=C,C++", "--langmap=C++:.hpp.cpp.h,C:.c",
               "--kinds-C++=+p", "--output-format=json", "--fields=+neaKZSi", "--fields-C++=+{properties}",
               "-I", ",".join(f"{m}+" for m in MACROS), "-R", "-f", "-", *folders]
    try:
        done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"sizes: no Universal Ctags (universal-ctags): {e}", file=sys.stderr)
        sys.exit(2)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"_type": "tag"')]


def fields_of(name, classes):
    """The public fields of a class and of those that it inherits from, which lie in its namespace or around it."""
    tag, _, fields = classes[name]
    for base in filter(None, tag.get("inherits", "").split(",")):
        scope = name.split("::")[:-1]
        while scope and "::".join((*scope, base)) not in classes:
            scope.pop()
        base = "::".join((*scope, base))
        if base in classes and base != name:
            fields = fields | fields_of(base, classes)
    return fields


def measures(root, folders):
    """Yields (path, line or 0, what it is, how much, at most)."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in FILE_LINES:
                lines = path.read_text().count("\n")
                yield path.relative_to(root).as_posix(), 0, "lines", lines, FILE_LINES[path.suffix]
    tags = tags_of(root, folders)
    classes = {}
    for tag in tags:
        if tag["kind"] in ("class", "struct") and "end" in tag:
            name = "::".join(filter(None, (tag.get("scope"), tag["name"])))
            classes.setdefault(name, (tag, set(), set()))
    own_lines = collections.Counter({n: t["end"] - t["line"] + 1 for n, (t, _, _) in classes.items()})
    for tag in tags:
        scope = classes.get(tag.get("scope"))
        if tag["kind"] == "function":
            if "end" not in tag:
                raise SystemExit(f"{tag['path']}:{tag['line']}: ctags finds no end of {tag['name']}")
            lines = tag["end"] - tag["line"] + 1
            scope_name = tag.get("scope", "").split("::")[-1]
            name = tag["name"]
            if scope_name and not scope_name.startswith("__anon"):
                name = f"{scope_name}::{name}"
            yield tag["path"], tag["line"], f"lines of {name}()", lines, FUNCTION_LINES
            if scope and tag["path"] != scope[0]["path"]:
                own_lines[tag["scope"]] += lines
        if scope is None or tag.get("access") != "public" or tag["path"] != scope[0]["path"]:
            continue
        if not scope[0]["line"] < tag["line"] <= scope[0]["end"]:
            continue
        if tag["kind"] in ("prototype", "function"):
            if tag["name"].lstrip("~") != scope[0]["name"] and "operator" not in tag["name"]:
                scope[1].add((tag["name"], tag.get("signature")))
        elif tag["kind"] == "member" and "static" not in tag.get("properties", ""):
            scope[2].add(tag["name"])
    for name, (tag, methods, _) in sorted(classes.items()):
        fields = fields_of(name, classes)
        name = name.split("::")[-1]
        yield tag["path"], tag["line"], f"public methods of {name}", len(methods), PUBLIC_METHODS
        yield tag["path"], tag["line"], f"public fields of {name}", len(fields), PUBLIC_FIELDS
    for name, lines in sorted(own_lines.items()):
        tag = classes[name][0]
        yield tag["path"], tag["line"], f"lines of class {name.split('::')[-1]}", lines, CLASS_LINES


def check(root, folders=FOLDERS):
    sources = {}
    offences = []
    for path, line, what, value, most in measures(root, folders):
        source = sources.setdefault(path, Source(root / path))
        if value > most and not source.excused(line):
            where = f"{path}:{line}" if line else path
            offences.append(f"{where}: {value} {what}, at most {most}")
    for path, source in sources.items():
        for place, number in source.reasons.items():
            if place not in source.needed:
                offences.append(f"{path}:{number}: a reason for a size that is not over")
    return offences


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    offences = check(root)
    for offence in offences:
        print(offence)
    if offences:
        return 1
    print("sizes: files, functions, classes and structs are within the bounds, or say why not")
    return 0


if __name__ == "__main__":
    sys.exit(main())
