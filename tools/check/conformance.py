#!/usr/bin/env python3
"""Holds doc/conformance.md against the specification and against the tests.

A statement is a sentence of the two specification files, or a pair of a call and an error that the
call's list of errors names. Without one of the words in MODAL no sentence counts that says nothing
by itself: a call's title and parameters, what leads to a list, and what only names another page.
Each has an identifier that stays the same as long as its words do. The check fails if a statement has no row in the table, a row no
statement, or a row names a test that does not exist or is run by CMI_LONG=1 alone (--build), or one
that did not run and pass (--ran).

  conformance.py [--spec DIR] [--build DIR] [--ran FILE ...]   check
  conformance.py --list [--spec DIR]                           show every statement with its words
  conformance.py --update [--spec DIR]                         write statements.txt anew

The specification is not part of this repository. Without it, the identifiers of statements.txt
stand in.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OVERVIEW, CALLS = "cmi-5.txt", "libcmi-3.txt"
MODAL = re.compile(
    r"\b(?:shall|must|should|can|cannot|may|will|illegal|prohibited|required)\b", re.IGNORECASE)
REFERENCE = re.compile(r"^(?:For more \w+(?: on [\w ]+)?, ?see|See) ")
PROTOTYPE = re.compile(
    r"^(?:cmi_\w+\s?\*?|int|void\s?\*?)\s+(\w+)\s?\((?:cmi_ctxt|uint16_t|cmi_event)\b")
ERROR_ENTRY = re.compile(r"^(CMI_ERR_[A-Z]+) (?=[A-Z])")
OPEN_ISSUES = {3, 4, 5, 6}
STATUS = re.compile(r"  (?:test:|open, issue|unreachable, because|declined, because|informative\b)")
TAP = re.compile(r"^(ok|not ok) \d+ - ([ES]_\w+)( # SKIP)?", re.MULTILINE)

Statement = namedtuple("Statement", "ident file section line text")
Row = namedtuple("Row", "ident status line")


def sentences(text):
    """Yields (offset, sentence). A full stop inside i.e., e.g. and vs. ends nothing."""
    start = 0
    for end in re.finditer(r"[.?!][)'\"]?\s+", text):
        head = text[start:end.end()].rstrip()
        if re.search(r"(?:\bi\.e\.|\be\.g\.|\bvs\.)$", head):
            continue
        if re.search(r"\betc\.\)?$", head) and text[end.end():end.end() + 1].islower():
            continue
        yield start, head
        start = end.end()
    if text[start:].strip():
        yield start, text[start:].strip()


def words_of(sentence):
    return " ".join(re.findall(r"[a-z0-9_*|=<>]+", sentence.lower()))


def identifier(sentence):
    return "S-" + hashlib.sha1(words_of(sentence).encode()).hexdigest()[:6]


def overview_blocks(lines):
    """cmi(5): a line is a paragraph; a short line that ends like no sentence is a heading."""
    section = "Name"
    for number, line in enumerate(lines, 1):
        text = re.sub(r"^(?:•|Note\s*-)\s*", "", line.strip())
        if text == "Examples":
            return
        if text and len(text) < 60 and not text.endswith((".", ":", ",")):
            section = text
        elif text:
            yield section, [(number, text)], "body"


def call_blocks(lines):
    """libcmi(3): wrapped lines; a prototype, a label, a list item or an error begins a block. What
    stands between the prototype and "Returns:" are the call's title and its parameters."""
    call, block = "introduction", []
    state = "body"  # prototype, title, head, body, or errors: inside the list of a call's errors
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if number <= 2 or not text:
            continue
        prototype = PROTOTYPE.match(text)
        if prototype or state == "prototype":
            if prototype:
                if block:
                    yield call, block, state
                call, block, depth = prototype.group(1), [], 0
            depth += text.count("(") - text.count(")")
            state = "prototype" if depth > 0 else "title"
            continue
        if re.match(r"(?:Parameters|Returns|Note):$", text):
            if block:
                yield call, block, state
            block = []
            state = state if state == "title" and text.startswith("Param") else "head"
            continue
        new_block = bool(re.match(r"o [A-Za-z]", text))
        if state in ("title", "head", "errors") and ERROR_ENTRY.match(text):
            after, new_block = "errors", True
        elif state == "errors" and not text[0].islower():
            after, new_block = "body", True
        else:
            after = state
        if new_block and block:
            yield call, block, state
            block = []
        state = after
        block.append((number, re.sub(r"^o ", "", text)))
    if block:
        yield call, block, state


def error_pairs(lines):
    for call, block, _ in call_blocks(lines):
        entry = ERROR_ENTRY.match(block[0][1])
        if entry:
            number, text = block[0][0], " ".join(part for _, part in block)
            yield Statement(f"E-{call}-{entry.group(1)}", CALLS, call, number, text)


def says_something(sentence, state):
    if MODAL.search(sentence):
        return True
    return state != "title" and not sentence.endswith(":") and not REFERENCE.match(sentence)


def statements_of(file, blocks):
    for section, block, state in blocks:
        if ERROR_ENTRY.match(block[0][1]):
            continue
        text, starts = "", []
        for number, part in block:
            starts.append((len(text), number))
            text += part + " "
        for offset, sentence in sentences(text):
            if says_something(sentence, state):
                number = max(line for start, line in starts if start <= offset)
                yield Statement(identifier(sentence), file, section, number, sentence)


def extract(spec):
    """Every statement by identifier. A sentence that stands twice counts where it stands first."""
    overview = (spec / OVERVIEW).read_text(encoding="utf-8").splitlines()
    calls = (spec / CALLS).read_text(encoding="utf-8").splitlines()
    found = {}
    for statement in (*statements_of(OVERVIEW, overview_blocks(overview)),
                      *statements_of(CALLS, call_blocks(calls)), *error_pairs(calls)):
        first = found.setdefault(statement.ident, statement)
        if words_of(first.text) != words_of(statement.text):
            sys.exit(f"two statements share {statement.ident}: lengthen the identifiers")
    return found


def read_list(path):
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            ident, file, section, number = line.split("\t")
            found[ident] = Statement(ident, file, section, int(number), "")
    return found


def write_list(path, statements):
    lines = ["# The statements of the specification: identifier, file, section, line. Their words",
             "# stay in the specification. Written by conformance.py --update."]
    lines += [f"{s.ident}\t{s.file}\t{s.section}\t{s.line}" for s in statements.values()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def entries(path):
    """Yields (line, [identifier, where, what it demands, status]): a list item of the page. Its first part ends
    where the status begins, which is the first line in the item's own indentation that begins like one."""
    number, head, status = 0, [], []
    for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines() + [""], 1):
        begins = re.match(r"- (?=[SE]-)", line)
        if number and (begins or not line.startswith("  ")):
            yield number, [*" ".join(head).split("|"), " ".join(status)]
            number = 0
        if begins:
            number, head, status = line_number, [line[2:]], []
        elif number:
            (status if status or STATUS.match(line) else head).append(line.strip())


def read_rows(path, problems):
    rows = {}
    for number, cells in entries(path):
        cells = [cell.strip().strip("`") for cell in cells]
        if len(cells) != 4 or not all(cells):
            problems.append(f"{path.name}:{number}: a row has four parts, none of them empty")
            continue
        if cells[0] in rows:
            problems.append(f"{path.name}:{number}: {cells[0]} has a row already, "
                            f"in line {rows[cells[0]].line}")
        rows[cells[0]] = Row(cells[0], cells[3], number)
    return rows


def tests_of(row, problems):
    """The tests that a status names. Tests and open issues may stand together, with semicolons."""
    alone = re.match(r"(?:unreachable, because|declined, because|informative:)(.*)$", row.status)
    if alone:
        if not alone.group(1).strip():
            problems.append(f"{row.ident} (line {row.line}): a reason is missing")
        return []
    names = []
    for part in row.status.split(";"):
        part = part.strip()
        issue = re.fullmatch(r"open, issue (\d+)", part)
        if part.startswith("test:"):
            given = [name.strip().strip("`") for name in part[len("test:"):].split(",")]
            if not all(given):
                problems.append(f"{row.ident} (line {row.line}): a test has no name")
            names += [name for name in given if name]
        elif issue is None or int(issue.group(1)) not in OPEN_ISSUES:
            problems.append(f"{row.ident} (line {row.line}): not a status: {part!r}")
    return names


def bare(name):
    """ctest's names are LABEL/CASE; rows name the case."""
    return name.rpartition("/")[2]


def results_of(files):
    """Test name -> why it does not count; None if it passed. A later file overrules, where the test ran in it:
    what failed beside others may have run again. The statements of the C program are many to a test: of these its
    output tells, in TAP."""
    results = {}
    for file in files:
        try:
            cases = list(ElementTree.parse(file).getroot().iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            sys.exit(f"{file}: no results of ctest --output-junit: {error}")
        ran = {}
        for case in cases:
            name, status = bare(case.get("name")), case.get("status", "run")
            if status == "fail" or any(case.find(tag) is not None for tag in ("failure", "error")):
                ran[name] = "failed"
            elif case.find("skipped") is not None or status != "run":
                results.setdefault(name, "did not run")
            elif ran.get(name) != "failed":
                ran[name] = None
            for verdict, statement, skipped in TAP.findall(case.findtext("system-out") or ""):
                if verdict == "not ok":
                    ran[statement] = "failed"
                elif skipped:
                    results.setdefault(statement, "did not run")
                elif ran.get(statement) != "failed":
                    ran[statement] = None
        results.update(ran)
    return results


def registered_in(build):
    """Two tables: test name -> name of the program that runs it; and the names of what only CMI_LONG=1 runs."""
    shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"],
                           check=True, capture_output=True, text=True).stdout
    registered, by_default = {}, set()
    for test in json.loads(shown)["tests"]:
        command = test.get("command", [""])
        names = {bare(test["name"]): Path(command[0]).name}
        if names[bare(test["name"])] == "together":
            names.update((statement, Path(command[1]).name) for statement in command[2:])
        registered.update(names)
        labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
        if "long" not in labels:
            by_default.update(names)
    return registered, registered.keys() - by_default


def check_tests(rows, results, registered, problems):
    for row in rows.values():
        for name in tests_of(row, problems):
            program, _, case = name.partition(":")
            if registered is not None:
                known, long = registered
                if name not in known and not (case and known.get(case) == program):
                    problems.append(f"{row.ident} (line {row.line}): there is no test {name}")
                    continue
                if (name if name in known else case) in long:
                    problems.append(f"{row.ident} (line {row.line}): only CMI_LONG=1 runs test {name}")
            if results is not None:
                reason = results.get(name, results.get(case, "is not among the results"))
                if reason:
                    problems.append(f"{row.ident} (line {row.line}): test {name} {reason}")


def check_conformance_program(statements, problems):
    """The statements that test/conformance shows: each test there is named after one."""
    begins = {ident.replace("-", "_") for ident in statements}
    shown = set()
    for source in sorted((ROOT / "test" / "conformance").glob("*.c")):
        for name in re.findall(r"^[A-Z_]+\(([ES]_\w+)[,)]", source.read_text(), re.MULTILINE):
            found = max((b for b in begins if name == b or name.startswith(b + "_")), key=len,
                        default=None)
            if found is None:
                problems.append(f"{source.name}: {name} is not named after a statement")
            shown.add(found)
    return shown - {None}


def check_statements(statements, rows, problems):
    for ident, statement in statements.items():
        if ident not in rows:
            problems.append(f"{ident} has no row ({statement.file}, line {statement.line}, "
                            f"{statement.section})")
    for ident, row in rows.items():
        if ident not in statements:
            problems.append(f"{ident} (line {row.line}) is no statement of the specification")


def kind_of(row):
    if row.status.startswith("test:"):
        return "with tests and open" if "open, issue" in row.status else "with tests"
    return re.match(r"[a-z]*", row.status).group(0)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", type=Path, default=ROOT.parent / "shared" / "spec",
                        help="folder of the two specification files (default ../shared/spec)")
    parser.add_argument("--doc", type=Path, default=ROOT / "doc" / "conformance.md")
    parser.add_argument("--statements", type=Path,
                        default=Path(__file__).resolve().parent / "statements.txt")
    parser.add_argument("--ran", type=Path, nargs="+", action="extend",
                        help="from ctest --output-junit: each named test must have run and passed")
    parser.add_argument("--build", type=Path,
                        help="build folder: each named test must be registered "
                             "(default build/debug, where it is and nothing --ran)")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--update", action="store_true")
    return parser.parse_args()


def main():
    options = parse_arguments()
    problems = []
    have_spec = all((options.spec / file).is_file() for file in (OVERVIEW, CALLS))
    if have_spec:
        statements = extract(options.spec)
    elif options.list or options.update:
        sys.exit(f"the specification is not in {options.spec}")
    else:
        print(f"the specification is not in {options.spec}: using {options.statements.name}")
        statements = read_list(options.statements)
    debug = ROOT / "build" / "debug"
    if not options.ran and not options.build and (debug / "CTestTestfile.cmake").is_file():
        options.build = debug
    if options.list:
        for s in statements.values():
            print(f"{s.ident}\t{s.file}:{s.line}\t{s.section}\t{s.text}")
        return 0
    if options.update:
        write_list(options.statements, statements)
        return 0
    if have_spec:
        listed = read_list(options.statements) if options.statements.is_file() else {}
        if [s[:4] for s in listed.values()] != [s[:4] for s in statements.values()]:
            problems.append(f"{options.statements.name} is out of date: use --update")

    if not options.doc.is_file():
        sys.exit(f"there is no {options.doc}")
    rows = read_rows(options.doc, problems)
    check_statements(statements, rows, problems)
    shown = check_conformance_program(statements, problems)
    check_tests(rows, results_of(options.ran) if options.ran else None,
                registered_in(options.build) if options.build else None, problems)

    for problem in problems:
        print(problem)
    if not options.ran:
        print("without --ran: whether the named tests pass was not checked")
    print(f"{len(shown)} statements are shown by the C program too")
    counts = Counter(kind_of(row) for row in rows.values())
    print(f"{len(statements)} statements, {len(rows)} rows ("
          + ", ".join(f"{count} {word}" for word, count in counts.most_common())
          + f"), {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
