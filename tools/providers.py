#!/usr/bin/env python3
"""Makes the table of doc/providers.md by a run: each guarantee by each provider.

  providers.py [--build DIR] [--optimised DIR] [--bench FILE] [--write] [PROVIDER ...]

--build      folder of a build with tests (build/debug)
--optimised  folder of an optimised build (build/release), whose library, installed into a folder of its
             own, plays the conformance program; where it is not built, none is played
--bench      the benchmark (bench/cmi_bench of the optimised build); without one there, no figures are
             measured
--write      puts the table into doc/providers.md instead of printing it alone

What stands in the table was seen in this run: a test of the contract that passed, failed or was
skipped, statements of the conformance program, or a figure of the benchmark. A provider that is not on
this machine is marked untested; what is said of verbs was seen in the last run of the machines of
test/verbs (`./run test -L verbs`). What does not hold is printed, with what was said about it.
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "doc/providers.md"
BEGIN, END = "<!-- table: made by tools/providers.py -->", "<!-- end of the table -->"
SKIPPED = 77
NOT_HERE = "does not open this provider"  # the reason of the contract's cases, test/fabric/world.cpp
SECONDS = 60  # for one group of tests
FIGURE_SECONDS = 120  # for the figures of one provider
STATEMENT_SECONDS = 90  # the program itself gives up after 60
PER_PROCESSOR = 3  # statements at once: they wait more than they compute

# Name for CMI_PROVIDER, and the prefix of its cases among the contract tests; none: no cases.
PROVIDERS = [
    ("net", "net"),
    ("tcp;ofi_rxm", "rxm"),
    ("sockets", "sockets"),
    ("verbs;ofi_rxm", None),
    ("ofi:shm", None),
    ("udp;ofi_rxd", None),
]
GUARANTEES = [
    ("keys enforced", ["a_key_*", "nothing_reaches_*", "a_rogue_*", "a_refused_operation_*"], "no"),
    ("CAS coherent", ["compare_and_swap_is_exact_*"], "by the home"),
    ("kill survived", ["a_killed_peer_*", "a_dead_peer_*", "a_home_that_dies_*"], "no"),
    ("idle: sleeps", ["the_descriptor_is_quiet_*"], "no descriptor"),
]
FIGURES = [
    ("miss 4 KiB", "load_miss_4k"),
    ("CAS", "cas"),
    ("flush, 1000 pages of 8 bytes", "flush_sparse"),
    ("sequential read", "read_seq"),
]
IDLE = ("idle_cpu_home", "idle_cpu_importer")


def contract(program, prefix, patterns, lacking):
    """yes, no, `lacking` where the provider does not offer it, or untested where it is not there."""
    chosen = ",".join(f"{prefix}: {pattern}" for pattern in patterns)
    try:
        run = subprocess.run([program, f"--test-case={chosen}"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "no (did not end)"
    cases = re.search(r"test cases:\s+(\d+)", run.stdout)
    # As tools/later-libfabric has it: a provider that does not open has neither kept nor broken anything.
    if cases is None or cases.group(1) == "0" or NOT_HERE in run.stdout:
        return "untested"
    if run.returncode == SKIPPED:
        return lacking
    return "yes" if run.returncode == 0 else "no"


def contract_on_machines(build, patterns, lacking):
    """As contract(), from what the emulated machine with a verbs device has left in the build folder."""
    folder = build / "verbs/alone"
    try:
        status = int((folder / "contract.status").read_text())
        lines = (folder / "contract.log").read_text().splitlines()
    except (OSError, ValueError):
        return "untested"
    skipped, matching = False, []
    for line in lines:
        over = re.match(r"[0-9.]+ s: (.*)$", line)
        skipped = skipped or line.startswith("SKIPPED")
        if over is None:
            continue
        case = over.group(1).removeprefix("verbs: ")
        if any(fnmatch.fnmatch(case, pattern) for pattern in patterns):
            matching.append(skipped)
        skipped = False
    if not matching:
        return "untested"
    if status not in (0, SKIPPED):
        return "no"
    return lacking if any(matching) else "yes, emulated"


def conformance_program(build):
    """The path of the program, made against an installation of this build; None where it is not built."""
    if not (build / "libcmi.so").exists():
        return None
    work = build / "providers"
    subprocess.run([ROOT / "test/conformance/check", build, work, "cmake", shutil.which("cc")],
                   stdout=subprocess.DEVNULL, timeout=10 * SECONDS, check=True)
    return work / "conformance"


def said_of(passed, skipped, total):
    return f"{passed} of {total}" + (f", {skipped} skipped" if skipped else "")


def conformance(program, provider):
    """How many statements of the conformance program hold."""
    if program is None:
        return "not played"
    env = dict(os.environ, CMI_PROVIDER=provider)
    names = subprocess.run([program, "list"], stdout=subprocess.PIPE, text=True, timeout=SECONDS,
                           check=True).stdout.split()

    def status_of(name):
        try:
            run = subprocess.run([program, "one", name], env=env, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=STATEMENT_SECONDS,
                                 check=False)
            status, said = run.returncode, run.stdout
        except subprocess.TimeoutExpired:
            status, said = "none: it did not end", ""
        if status not in (0, SKIPPED):
            print(f"{provider}: {name}: status {status}\n{said}", file=sys.stderr)
        return status

    with ThreadPoolExecutor(PER_PROCESSOR * (os.cpu_count() or 1)) as pool:
        statuses = list(pool.map(status_of, names))
    return said_of(statuses.count(0), statuses.count(SKIPPED), len(statuses))


def conformance_on_machines(build):
    """As conformance(), from what the emulated machine has left: the statements that were chosen for it."""
    try:
        lines = (build / "verbs/alone/conformance.log").read_text().splitlines()
    except OSError:
        return "untested"
    planned = [int(line.split("..")[1]) for line in lines if re.fullmatch(r"1\.\.\d+", line)]
    ok = [line for line in lines if line.startswith("ok ")]
    skipped = sum(line.endswith("# SKIP") for line in ok)
    if not planned:
        return "untested"
    return said_of(len(ok) - skipped, skipped, planned[0]) + " chosen, emulated"


def number(value):
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def cell(row):
    """Our figure, and the raw one beside it."""
    if row is None or row.get("value") is None:
        return "not measured"
    raw = row.get("raw")
    beside = f" ({number(raw)})" if isinstance(raw, (int, float)) and raw > 0 else ""
    return f"{number(row['value'])}{beside} {row['unit']}"


def figures(bench, provider):
    """The cells of one provider's figures; the idle ones come first."""
    if not os.access(bench, os.X_OK):
        return ["not measured"] * (len(IDLE) + len(FIGURES))
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [bench, "--quick", "--json", out.name, "--seconds", str(FIGURE_SECONDS)]
        for row in (*IDLE, *(row for _, row in FIGURES)):
            command += ["--only", row]
        env = dict(os.environ, CMI_PROVIDER=provider)
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=FIGURE_SECONDS + 20, check=False)
        rows = {}
        for line in Path(out.name).read_text().splitlines():
            row = json.loads(line)
            rows[row["name"]] = row
    return [cell(rows.get(name)) for name in (*IDLE, *(row for _, row in FIGURES))]


def refused(provider):
    """Whether the library never uses it."""
    source = (ROOT / "src/fabric/ofi/refused.cpp").read_text()
    name = provider.removeprefix("ofi:")
    return any(f'"{part}"' in source for part in (name, *name.split(";")))


def table(options):
    program = str(options.build / "test/fabric_tests")
    played = conformance_program(options.optimised)
    names = [g for g, _, _ in GUARANTEES] + ["conformance", "idle CPU, home", "idle CPU, importer"]
    names += [f for f, _ in FIGURES]
    columns = [["guarantee", *names]]
    for provider, prefix in PROVIDERS:
        if options.providers and provider not in options.providers:
            continue
        if "verbs" in provider:
            cells = [contract_on_machines(options.build, *guarantee[1:]) for guarantee in GUARANTEES]
            cells += [conformance_on_machines(options.build)] + ["untested"] * (len(IDLE) + len(FIGURES))
        elif prefix is None:
            text = "refused" if refused(provider) else "untested"
            cells = [text] * len(names)
        else:
            cells = [contract(program, prefix, *guarantee[1:]) for guarantee in GUARANTEES]
            if "untested" in cells[:1]:
                cells += ["untested"] * (1 + len(IDLE) + len(FIGURES))
            else:
                cells += [conformance(played, provider)]
                cells += figures(str(options.bench), provider)
        columns.append([f"`{provider}`", *cells])
        print(", ".join(columns[-1]), file=sys.stderr)
    # A row for each guarantee and a column for each provider: so no line gets wider than a document's.
    lines = ["| " + " | ".join(row) + " |" for row in zip(*columns, strict=True)]
    return "\n".join([lines[0], "|" + " --- |" * len(columns), *lines[1:]])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build/debug")
    parser.add_argument("--optimised", type=Path, default=ROOT / "build/release")
    parser.add_argument("--bench", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("providers", nargs="*")
    options = parser.parse_args()
    options.bench = options.bench or options.optimised / "bench/cmi_bench"
    made = table(options)
    print(made)
    if options.write:
        page = PAGE.read_text()
        before, rest = page.split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}")


if __name__ == "__main__":
    main()
