#!/bin/bash
# Compiles each installed header alone, twice included, as C11 and as C++17, those of C++ as C++20, with
# every compiler found.
#   headers.sh [INCLUDE_DIR]
set -euo pipefail
include=$(cd "${1:-$(dirname "$0")/../../include}" && pwd)

# pedantic LANGUAGE STANDARD COMPILER HEADER [flag ...]
pedantic() {
  local language=$1 standard=$2 compiler=$3 header=$4
  shift 4
  printf '#include <%s>\n#include <%s>\nint cmi_header_is_alone;\n' "$header" "$header" |
    "$compiler" -x "$language" -std="$standard" -fsyntax-only -Wall -Wextra -Wpedantic -Werror \
      "$@" -I "$include" - || {
        echo "$header does not compile alone: $compiler -std=$standard $*"
        return 1
      }
}

compilers=0 failures=0
mapfile -t headers < <(cd "$include" && find . -name '*.h' -printf '%P\n' | sort)
mapfile -t cpp_headers < <(cd "$include" && find . -name '*.hpp' -printf '%P\n' | sort)
# One of them is for those that have Boost.
boost=
for place in /usr/include /usr/local/include; do
  [[ ! -e $place/boost/interprocess/managed_external_buffer.hpp ]] || boost=there
done
[[ ${#headers[@]} -gt 0 ]] || { echo "no headers in $include"; exit 1; }
for pair in gcc:g++ clang:clang++; do
  command -v "${pair%:*}" >/dev/null && command -v "${pair#*:}" >/dev/null || continue
  compilers=$((compilers + 1))
  for header in "${headers[@]}"; do
    for feature in -UCMI_NOTHING -D_GNU_SOURCE -D_POSIX_C_SOURCE=200809L; do
      pedantic c c11 "${pair%:*}" "$header" "$feature" || failures=$((failures + 1))
    done
    pedantic c++ c++17 "${pair#*:}" "$header" || failures=$((failures + 1))
  done
  for header in "${cpp_headers[@]}"; do
    [[ $header != cmi/interprocess.hpp || -n $boost ]] || continue
    pedantic c++ c++20 "${pair#*:}" "$header" || failures=$((failures + 1))
  done
done
[[ $compilers -gt 0 ]] || { echo "no compiler found"; exit 1; }
[[ $failures -eq 0 ]] || exit 1
[[ -n $boost ]] || echo "headers: cmi/interprocess.hpp was left out, there is no Boost (libboost-dev)"
echo "headers: $((${#headers[@]} + ${#cpp_headers[@]})) compile alone with $compilers compiler(s)"
