#!/bin/bash
# Holds the shared library that is shipped against cmake/symbols.txt, which lists the symbols that it shows, and
# sees to it that nothing in it fails on purpose: no name of a fault point or a mutation that src/ has, and not the
# variables that arm them.
#   symbols.sh LIBCMI_SO
set -euo pipefail
library=$1
root=$(dirname "$0")/../..
list=$root/cmake/symbols.txt

# The version node itself is an absolute symbol (A).
shown=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
if ! diff -u --label cmake/symbols.txt --label "$library" \
    <(grep -v '^#' "$list" | sort -u) <(echo "$shown"); then
  echo "symbols: the library and cmake/symbols.txt differ"
  exit 1
fi
echo "symbols: $(wc -l <<<"$shown") shown, as listed"

# Without debug information and local symbols, whose names are those of functions as well.
bare=$(mktemp)
trap 'rm -f "$bare"' EXIT
strip -o "$bare" "$library"
names=$(grep -rzohP --include='*.cpp' --include='*.hpp' \
  '\b(fault_point|fault_point_fails|mutated|mutated_late)\(\s*"\K[^"]+' "$root/src" | tr '\0' '\n' | sort -u)
if [[ $(wc -l <<<"$names") -lt 100 ]]; then
  echo "symbols: src/ has $(wc -l <<<"$names") fault points: they are not found any more"
  exit 1
fi
texts=$(strings -a -n 3 "$bare")
found=$({ grep -E 'mutate_|mutation_|CMI_FAULT_(POINT|COUNT)' <<<"$texts"
          grep -Fx -f <(echo "$names") <<<"$texts"; } | sort -u || true)
if [[ -n $found ]]; then
  echo "symbols: the library has $(wc -l <<<"$found") texts of fault points, as:"
  head -n 5 <<<"$found"
  exit 1
fi
echo "symbols: none of $(wc -l <<<"$names") fault points and mutations is in it"

# As Debian hardens what it ships: checked stacks and copies, a table of jumps that is read-only from the start.
hardened=$(readelf -W -d -l "$library")
for sign in GNU_RELRO BIND_NOW; do
  grep -q "$sign" <<<"$hardened" || { echo "symbols: the library is built without $sign"; exit 1; }
done
used=$(nm -D --undefined-only "$library")
grep -q __stack_chk_fail <<<"$used" || { echo "symbols: the library has no stack protector"; exit 1; }
echo "symbols: hardened"
