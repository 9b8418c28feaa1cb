#!/usr/bin/env python3
"""bench/plot.py makes pictures of stored rows: well-formed SVG that names what was measured.

  plot_test.py PLOT ROWS     the script, and what ./run bench --json has written
"""

import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
WORDS = {
    "rows_us.svg": {"load_miss_4k", "raw libfabric", "floor", "Open MPI", "Open MPI, UCX", "MPICH", "publish_shared_2"},
    "rows_op_s.svg": {"ycsb_a_1", "Redis"},
    "nodes.svg": {"publish_shared", "publish_shared, raw", "crowd", "crowd_messages", "ycsb_a_redis", "16", "nodes"},
    "threads.svg": {"absent pages", "absent pages, raw", "4"},
    "size.svg": {"home_wmb_0", "home_wmb_10", "hot_store_consist", "64M", "1G"},
    "dirty.svg": {"barrier", "raw libfabric", "8", "bytes stored to"},
}


def plot(script, rows, folder):
    return subprocess.run([sys.executable, script, str(rows), str(folder)], text=True, capture_output=True,
                          check=False)


def main():
    script, rows = sys.argv[1], Path(sys.argv[2])
    if shutil.which("gnuplot") is None:
        print("skipped: no gnuplot")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        ran = plot(script, rows, scratch / "pictures")
        assert ran.returncode == 0, ran.stderr
        made = {path.name: path for path in (scratch / "pictures").iterdir()}
        assert sorted(ran.stdout.split()) == sorted(str(path) for path in made.values()), ran.stdout
        for path in made.values():
            root = xml.parse(path).getroot()
            assert root.tag == SVG + "svg" and root.get("viewBox"), path
            assert next(root.iter(SVG + "path"), None) is not None, f"{path} draws nothing"
        for name, words in WORDS.items():
            texts = {"".join(text.itertext()).strip() for text in xml.parse(made[name]).getroot().iter(SVG + "text")}
            assert words <= texts, f"{name} lacks {words - texts} among {sorted(texts)}"

        # What cannot be drawn is told by its line, and nothing is drawn.
        for bad in ("{", '{"name":"x"}', '{"name":"x\'","unit":"us","value":1,"raw":null}', ""):
            broken = scratch / "broken.json"
            broken.write_text(bad)
            ran = plot(script, broken, scratch / "none")
            assert ran.returncode == 1 and "broken.json" in ran.stderr, (bad, ran)
            assert not (scratch / "none").exists()
        assert plot(script, scratch / "missing.json", scratch / "none").returncode == 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
