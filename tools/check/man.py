#!/usr/bin/env python3
"""Holds the manual in doc/man against the public headers and against cmiadm.

  man.py [ROOT]     ROOT is the checkout, by default the one this file lies in

Fails unless
- each function of the headers has a page of its name with its prototype, and no page shows another;
- the errors in a page's ERRORS are those that the header's comment lists for the function, which
  may say "as NAME()";
- each constant, structure, member and type of <cmi.h>, and each counter, is mentioned in some page,
  and each constant that a page mentions exists;
- each variable of the environment in the header's head is in cmi(7), and the reverse;
- each command and option of cmiadm is in cmiadm(8) and in the completion;
- each page that a page refers to exists, and mandoc has nothing to say (skipped where it is not
  installed).
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

FUNCTION = re.compile(
    r"(?:^/\*\*(?P<comment>(?:(?!\*/).)*?)\*/\s*)?"
    r"^(?:typedef|CMI_EXPORT) (?P<result>[^;#{}()]*?)\b(?P<name>cmi_fn_\w+|cmi_ini|cmi_get_error"
    r"|cmi_ofi_\w+)\((?P<arguments>[^;{}]*?)\);", re.MULTILINE | re.DOTALL)
CONSTANT = re.compile(r"^\s*(?:#define )?(CMI_\w+|SEGV_CMI)\b(?!\()", re.MULTILINE)
TYPE = re.compile(r"^(?:typedef )?(?:struct|union|enum) (cmi_\w+) \{|^\} (cmi_\w+);"
                  r"|^typedef (?:(?!cmi_fn_)[^;(){])*?\b(cmi_\w+);", re.MULTILINE)
# Not for clients to name: include guards, helpers of macros, unions that only hold the members.
INTERNAL = {"CMI_H", "CMI_EXPORT", "CMI_FNS_", "CMIFN", "CMI_OFI_CMI_IMPL_H",
            "CMI_OFI_CMI_SYNC_H", "CMI_OFI_CMI_ARENA_H"}
INTERNAL_TYPES = {"cmi_cfg_op", "cmi_ds_op", "cmi_event_info", "cmi_flush_epoch"}
# Pages of the system that ours may refer to.
FOREIGN = {("getrlimit", "2"), ("read", "2"), ("write", "2"), ("fork", "2"), ("poll", "2"), ("sigaction", "2"), ("siglongjmp", "3")}
HEADERS = ("cmi.h", "cmi/ofi/cmi_impl.h", "cmi/ofi/cmi_sync.h", "cmi/ofi/cmi_arena.h")
MACROS = {"cmi_mb", "cmi_wmb", "cmi_rmb"}


def normal(text):
    """A declaration in one spelling of its blanks."""
    return re.sub(r"\s*([*,()])\s*", r" \1 ", " ".join(text.split())).replace("  ", " ").strip()


def errors_in(comment, functions):
    """The CMI_ERR_ names of the Errors part of a header's comment."""
    part = re.search(r"Errors:(.*)", re.sub(r"^\s*\*", " ", comment or "", flags=re.MULTILINE),
                     re.DOTALL)
    if part is None:
        return set()
    found = set(re.findall(r"CMI_ERR_\w+", part.group(1)))
    for other in re.findall(r"\bas (\w+)\(\)", part.group(1)):
        found |= errors_in(functions[other]["comment"], functions)
    return found


def functions_of(root):
    functions = {}
    for header in HEADERS:
        text = (root / "include" / header).read_text()
        for match in FUNCTION.finditer(text):
            name = match["name"].removeprefix("cmi_fn_")
            functions[name] = {"comment": match["comment"], "header": header,
                               "prototype": normal(f"{match['result']} {name}({match['arguments']})")}
    return functions


def prototypes_of(page):
    """name -> prototype, of the page's SYNOPSIS."""
    found, result = {}, ""
    synopsis = re.search(r"^\.Sh SYNOPSIS\n(.*?)^\.Sh", page, re.MULTILINE | re.DOTALL)
    text = synopsis.group(1) if synopsis else ""
    for line in re.finditer(r"^\.Ft (.*)$|^\.Fn (\w+)$|^\.Fo (\w+)\n((?:\.Fa .*\n)*)\.Fc$", text,
                            re.MULTILINE):
        if line.group(1):
            result = line.group(1)
            continue
        name = line.group(2) or line.group(3)
        arguments = re.findall(r'\.Fa "?([^"\n]*)"?', line.group(4) or "")
        found[name] = normal(f"{result} {name}({', '.join(arguments)})")
    return found


def section(page, name):
    found = re.search(rf"^\.Sh {name}\n(.*?)(?=^\.Sh|\Z)", page, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def check_functions(functions, pages, problems):
    for name, function in functions.items():
        page = pages.get((name, "3"))
        if page is None:
            problems.append(f"{name}: no page {name}.3")
            continue
        shown = prototypes_of(page).get(name)
        if shown != function["prototype"]:
            problems.append(f"{name}.3: shows {shown!r}, the header has {function['prototype']!r}")
        if name in MACROS or function["header"] != "cmi.h" and name in ("cmi_ofi_mb", "cmi_ofi_wmb"):
            continue
        listed = set(re.findall(r"^\.It Dv (CMI_ERR_\w+)", section(page, "ERRORS"), re.MULTILINE))
        wanted = errors_in(function["comment"], functions)
        for error in sorted(wanted - listed):
            problems.append(f"{name}.3: {error} of the header is missing under ERRORS")
        for error in sorted(listed - wanted):
            problems.append(f"{name}.3: {error} is not in the header's comment")
    known = set(functions) | MACROS
    for (name, _), page in pages.items():
        for shown in prototypes_of(page):
            if shown not in known:
                problems.append(f"{name}: shows {shown}(), which no header has")


def check_names(root, pages, problems):
    header = (root / "include/cmi.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    extension = "".join(re.sub(r"/\*.*?\*/", "", (root / "include" / name).read_text(),
                               flags=re.DOTALL) for name in HEADERS[1:])
    constants = {name for name in CONSTANT.findall(code + extension)} - INTERNAL
    types = {name for groups in TYPE.findall(code) for name in groups if name} - INTERNAL_TYPES
    manual = "\n".join(pages.values())
    words = set(re.findall(r"\w+", manual))
    for name in sorted((constants | types) - words):
        problems.append(f"{name} of cmi.h is in no page")
    head = re.search(r"^ \* Environment.*?\*/", header, re.MULTILINE | re.DOTALL).group(0)
    variables = set(re.findall(r"^ \*   (CMI_\w+)", head, re.MULTILINE))
    described = set(re.findall(r"^\.It Ev (CMI_\w+)", section(pages[("cmi", "7")], "ENVIRONMENT"),
                               re.MULTILINE))
    for name in sorted(variables ^ described):
        problems.append(f"{name}: in one of cmi.h's head and cmi.7's ENVIRONMENT alone")
    text = re.sub(r"^\.Dt .*", "", manual, flags=re.MULTILINE)
    for name in sorted(set(re.findall(r"\bCMI_[A-Z_]*[A-Z]\b", text)) - constants - variables):
        problems.append(f"the manual has {name}, which is in no header")


def check_members(root, pages, problems):
    """Members of the structures of all headers, the counters among them."""
    words = set(re.findall(r"\w+", "\n".join(pages.values())))
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", (root / "include" / header).read_text(), flags=re.DOTALL)
        for name, body in re.findall(r"^(?:typedef )?struct (cmi_\w+) \{(.*?)^\}", text,
                                     re.MULTILINE | re.DOTALL):
            members = set(re.findall(r"(\w+)(?:\[\d+\])?;|\(\*(\w+)\)", body))
            for member in sorted({one for pair in members for one in pair if one} - {"reserved"}):
                if member not in words:
                    problems.append(f"{name}.{member} of {header} is in no page")


def check_references(pages, problems):
    for (name, volume), page in pages.items():
        for target in re.findall(r"^\.Xr (\w+) (\d)", page, re.MULTILINE):
            if target not in pages and target not in FOREIGN:
                problems.append(f"{name}.{volume}: refers to {target[0]}({target[1]})")
            if target == (name, volume):
                problems.append(f"{name}.{volume}: refers to itself")


def check_tool(root, pages, problems):
    main = (root / "tools/cmiadm/main.cpp").read_text()
    commands = set(re.findall(r'^    \{"(\w+)", \w+, "', main, re.MULTILINE))
    options = set(re.findall(r'(?:add_option|flag)\(\s*"--([\w-]+)"', main))
    page, completion = pages[("cmiadm", "8")], (root / "tools/cmiadm/cmiadm.bash").read_text()
    if not commands or not options:
        problems.append("main.cpp: no commands or options found")
    shown = set(re.findall(r"^\.It Cm (\w+)", page, re.MULTILINE))
    for name in sorted(commands ^ shown):
        problems.append(f"cmiadm.8: the command {name} is only there, or only in main.cpp")
    for name in sorted(options):
        if f"Fl -{name}" not in page:
            problems.append(f"cmiadm.8: the option --{name} is missing")
    for name in sorted(commands) + sorted("--" + option for option in options):
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", completion):
            problems.append(f"cmiadm.bash: {name} is missing")


def lint(paths, problems):
    if shutil.which("mandoc") is None:
        print("mandoc is not installed: the pages were not linted")
        return
    for path in paths:
        said = subprocess.run(["mandoc", "-Tlint", "-W", "style", str(path)], text=True,
                              capture_output=True, check=False)
        for line in (said.stdout + said.stderr).splitlines():
            # Of the system's own index of pages, and of references to it.
            if "mandoc.db" not in line and "referenced manual not found" not in line:
                problems.append(line)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    folder = root / "doc/man"
    pages, sources, problems = {}, [], []
    for path in sorted(folder.iterdir()):
        text = path.read_text()
        alias = re.match(r"\.so man\d/(\S+)\n\Z", text)
        if alias:
            text = (folder / alias.group(1)).read_text()
        else:
            sources.append(path)
        pages[(path.stem, path.suffix[1:])] = text
    functions = functions_of(root)
    if len(functions) < 28:
        sys.exit(f"only {len(functions)} functions found in the headers")
    check_functions(functions, pages, problems)
    check_names(root, pages, problems)
    check_members(root, pages, problems)
    check_references(pages, problems)
    check_tool(root, pages, problems)
    lint(sources, problems)
    for problem in problems:
        print(problem)
    print(f"man: {len(functions)} functions, {len(pages)} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
