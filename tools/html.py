#!/usr/bin/env python3
"""HTML of the headers and of the manual: headers by Doxygen, pages of the manual by mandoc, in one tree.

  html.py FOLDER     FOLDER/html is made anew; index.html is its beginning

Fails on any warning of Doxygen or of mandoc, and where a page refers to one of ours that is not there.
Exit status 1 with what is wrong, 77 where doxygen or mandoc is missing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = re.compile(r'<a class="Xr" href="man_([^"]*)_(\d)\.html">([^<]*)</a>')


class Wrong(Exception):
    pass


def read_pages():
    """({page: its path}, {alias: page}), pages as ("seg_at", "3")."""
    pages, aliases = {}, {}
    for path in sorted((ROOT / "doc/man").glob("*.[0-9]")):
        key = (path.stem, path.suffix[1:])
        other = re.match(r"\.so man\d/(\S+)\.(\d)$", path.read_text().strip())
        if other:
            aliases[key] = (other[1], other[2])
        else:
            pages[key] = path
    for alias, page in aliases.items():
        if page not in pages:
            raise Wrong(f"{alias[0]}({alias[1]}) stands for a page that is not there")
    return pages, aliases


def id_of(page):
    return f"man_{page[0]}_{page[1]}"


def body_of(path, pages, aliases):
    ran = subprocess.run(["mandoc", "-W", "warning,stop", "-T", "html", "-O", "fragment,man=man_%N_%S.html", str(path)],
                         text=True, capture_output=True, check=False)
    if ran.returncode != 0 or ran.stderr:
        raise Wrong(ran.stderr.strip() or f"mandoc fails at {path}")

    def link(found):
        page = (found[1], found[2])
        page = aliases.get(page, page)
        if page in pages:
            return f'<a href="{id_of(page)}.html">{found[3]}</a>'
        if page[0].startswith(("cmi", "seg_", "tok_", "rseg_", "evt_", "atm_")):
            raise Wrong(f"{path.name}: {found[1]}({found[2]}) is no page")
        return found[3]  # of another manual

    body = REFERENCE.sub(link, ran.stdout)
    # Its own header and footer are those of paper.
    return re.sub(r'<table class="(head|foot)">.*?</table>', "", body, flags=re.DOTALL)


def brief_of(path):
    return re.search(r"^\.Nd (.*)$", path.read_text(), re.MULTILINE)[1]


def write_pages(folder, pages, aliases):
    index = ["/** \\mainpage libcmi",
             "Headers: cmi.h, cmi/ofi/cmi_impl.h, cmi/ofi/cmi_sync.h, cmi/ofi/cmi_arena.h for C, cmi/cmi.hpp for C++ 20.",
             "", "The manual, of which cmi(7) is the beginning:"]
    order = sorted(pages, key=lambda page: ({"7": 0, "3": 1, "8": 2}[page[1]], page[0]))
    for page in order:
        title = f"{page[0]}({page[1]})"
        body = body_of(pages[page], pages, aliases).replace("*/", "*&#47;").replace("\\endhtmlonly", "")
        (folder / f"{id_of(page)}.dox").write_text(
            f"/** \\page {id_of(page)} {title}\n\\htmlonly[block]\n{body}\n\\endhtmlonly\n*/\n")
        index.append(f'- \\ref {id_of(page)} "{title}" &mdash; {brief_of(pages[page])}')
    (folder / "index.dox").write_text("\n".join(index) + "\n*/\n")


def main():
    if len(sys.argv) != 2:
        print("usage: html.py FOLDER", file=sys.stderr)
        return 2
    for tool in ("doxygen", "mandoc"):
        if shutil.which(tool) is None:
            print(f"html: skipped: there is no {tool}")
            return 77
    folder = Path(sys.argv[1]).resolve()
    version = re.search(r"project\(cmi VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    try:
        pages, aliases = read_pages()
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "html", ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            write_pages(Path(scratch), pages, aliases)
            settings = (ROOT / "doc/Doxyfile").read_text() + (
                f'PROJECT_NUMBER = {version}\nINPUT = "{ROOT}/include" "{scratch}"\n'
                f'STRIP_FROM_PATH = "{ROOT}/include" "{scratch}"\nSTRIP_FROM_INC_PATH = "{ROOT}/include"\n'
                f'OUTPUT_DIRECTORY = "{folder}"\n')
            ran = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True, check=False)
            said = ran.stderr.strip()
            if ran.returncode != 0 or said:
                raise Wrong(said or "doxygen fails")
        # What was asked for is there.
        for page in pages:
            made = folder / "html" / f"{id_of(page)}.html"
            if not made.is_file() or "manual-text" not in made.read_text():
                raise Wrong(f"{made.name} is not there, or empty")
        for header in ("cmi_8h", "cmi__impl_8h", "cmi__sync_8h", "cmi__arena_8h"):
            if not (folder / "html" / f"{header}.html").is_file():
                raise Wrong(f"{header}.html is not there")
    except (Wrong, OSError) as error:
        print(f"html: {error}", file=sys.stderr)
        return 1
    print(f"html: {len(pages)} pages of the manual and the headers, without a warning: {folder}/html/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
