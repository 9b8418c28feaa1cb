#!/usr/bin/env python3
"""Compiles the snippets of README.md: each block ```c as C11 and as C++17, each block ```cpp as C++20; and
the examples of cmi_cpp(7) as C++20.

  readme.py [ROOT]     ROOT is the checkout, by default the one this file lies in

A snippet is the body of a function in whose place its #include lines stand first; what it uses and
does not declare (ctxt) are the function's arguments. Fails where a compiler warns, and where there
are fewer snippets than README.md is known to have.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

LEAST = {"c": 2, "cpp": 8}
MANUAL = "doc/man/cmi_cpp.7"
BOOST = [Path(root) / "include/boost/interprocess" for root in ("/usr", "/usr/local")]
PRELUDE = {
    "c": ("#include <stdio.h>\n#include <string.h>\n#include <cmi.h>\n"
          "#include <cmi/ofi/cmi_impl.h>\n"),
    "cpp": ("#include <iostream>\n#include <map>\n#include <mutex>\n#include <shared_mutex>\n"
            "#include <cmi/cmi.hpp>\nusing namespace std::chrono_literals;\n"),
}
LANGUAGES = {"c": [("c", "c11", "CC"), ("c++", "c++17", "CXX")], "cpp": [("c++", "c++20", "CXX")]}
COMPILERS = {"CC": ("gcc", "clang"), "CXX": ("g++", "clang++")}
FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused", "-Werror"]


def snippets(root):
    """(language, file and line, code)"""
    text = (root / "README.md").read_text()
    for match in re.finditer(r"^```(c|cpp)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield match.group(1), f"README.md:{text.count(chr(10), 0, match.start()) + 1}", match.group(2)
    text = (root / MANUAL).read_text()
    for match in re.finditer(r"^\.Bd -literal\n(.*?)^\.Ed$", text, re.MULTILINE | re.DOTALL):
        code = match.group(1).replace("\\e", "\\")
        yield "cpp", f"{MANUAL}:{text.count(chr(10), 0, match.start()) + 1}", code


def program(kind, code):
    lines = code.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = [line for line in lines if not line.startswith("#include")]
    declared = re.search(r"cmi_ctxt \*ctxt\b", code)
    arguments = "void" if declared or kind == "cpp" else "cmi_ctxt *ctxt"
    head = f"void snippet({arguments});\nvoid snippet({arguments}) {{"
    return PRELUDE[kind] + "\n".join(includes + [head] + body + ["}"]) + "\n"


def compile_one(root, kind, place, code, problems):
    ways = 0
    for language, standard, tool in LANGUAGES[kind]:
        for compiler in filter(shutil.which, COMPILERS[tool]):
            ways += 1
            said = subprocess.run(
                [compiler, "-x", language, f"-std={standard}", *FLAGS, f"-I{root / 'include'}", "-"],
                input=program(kind, code), text=True, capture_output=True, check=False)
            if said.returncode != 0:
                problems.append(f"{place}: {compiler} -std={standard}:\n{said.stderr}")
    return ways


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    problems, ways, count = [], 0, dict.fromkeys(LEAST, 0)
    for kind, place, code in snippets(root):
        count[kind] += 1
        if "<cmi/interprocess.hpp>" in code and not any(folder.exists() for folder in BOOST):
            print(f"readme: {place} is left out, there is no Boost (libboost-dev)")
            continue
        ways += compile_one(root, kind, place, code, problems)
    for kind, least in LEAST.items():
        if count[kind] < least:
            problems.append(f"README.md and the manual have {count[kind]} blocks of {kind}, not {least} or more")
    if ways == 0:
        problems.append("no compiler found")
    for problem in problems:
        print(problem)
    print(f"readme: {sum(count.values())} snippets, {ways} compilations, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
