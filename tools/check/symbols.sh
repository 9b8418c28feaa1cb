#!/bin/bash
# Compares the symbols that the shared library shows with cmake/symbols.txt.
#   symbols.sh LIBCMI_SO
set -euo pipefail
library=$1
list=$(dirname "$0")/../../cmake/symbols.txt

# The version node itself is an absolute symbol (A).
shown=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
if ! diff -u --label cmake/symbols.txt --label "$library" \
    <(grep -v '^#' "$list" | sort -u) <(echo "$shown"); then
  echo "symbols: the library and cmake/symbols.txt differ"
  exit 1
fi
echo "symbols: $(wc -l <<<"$shown") shown, as listed"
