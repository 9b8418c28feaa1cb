#!/bin/bash
# Checks the formatting of all C and C++ files against .clang-format; --fix formats them.
set -euo pipefail
cd "$(dirname "$0")/../.."
mode=(--dry-run -Werror)
[[ ${1:-} == --fix ]] && mode=(-i)
mapfile -d '' files < <(find include src test examples bench tools python \
  \( -name '*.h' -o -name '*.c' -o -name '*.hpp' -o -name '*.cpp' \) -print0 2>/dev/null | sort -z)
[[ ${#files[@]} -gt 0 ]] || { echo "format: no files"; exit 1; }
clang-format --style=file "${mode[@]}" "${files[@]}"
echo "format: ${#files[@]} files"
