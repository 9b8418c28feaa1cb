#!/bin/bash
# clang-tidy over the library, with the checks of .clang-tidy, clang's warnings, and its analysis of locks
# and of their order. The sources are joined folder by folder, which takes a fifth of the time.
#   tidy.sh [FOLDER ...]   of those folders alone, as core_memory_home; by default of all
# A place where a check is wrong says NOLINT, the check's name and the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tidy=$(command -v clang-tidy) || { echo "there is no clang-tidy"; exit 1; }
build=build/tidy
mkdir -p "$build"
cmake --preset clang --fresh -B "$build" -DCMI_UNITY=ON -DCMI_WERROR=OFF -DCMI_BUILD_BENCH=OFF \
  -DCMI_BUILD_EXAMPLES=OFF >"$build/configure.log" 2>&1 || {
    cat "$build/configure.log"
    exit 1
  }
# The largest first.
mapfile -t units < <(find "$build/CMakeFiles/cmi_objects.dir/Unity" -name '*.cxx' -printf '%s %p\n' |
  sort -rn | cut -d' ' -f2)
if [[ $# -gt 0 ]]; then
  wanted=$(printf '|unity_%s_cxx.cxx' "$@")
  mapfile -t units < <(printf '%s\n' "${units[@]}" | grep -E "/(${wanted#|})\$")
fi
[[ ${#units[@]} -gt 0 ]] || { echo "no sources"; exit 1; }

# check UNIT: prints what it finds, in one piece.
check() {
  local found status=0
  found=$("$tidy" -p "$build" --quiet --warnings-as-errors='*' --extra-arg=-Wthread-safety-beta "$1" 2>/dev/null) ||
    status=1
  [[ -z $found ]] || printf '%s\n' "$found"
  return $status
}
export -f check
export tidy build
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -I{} bash -c 'check "$1"' bash {} || exit 1
echo "tidy: ${#units[@]} folders, nothing found"
