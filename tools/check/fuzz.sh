#!/bin/bash
# Builds the libFuzzer programs of test/fuzz with clang and sanitizers, and runs each for a while from
# its seeds in test/fuzz/corpus. Fails where an input does harm; the input stays in build/fuzz/found.
#   fuzz.sh [--keep] [SECONDS [TARGET ...]]
# SECONDS is the time for each target (60). --keep then replaces the seeds of each by the fewest and
# smallest inputs, old and new, that reach as much.
set -euo pipefail
cd "$(dirname "$0")/../.."
keep=
[[ ${1:-} == --keep ]] && keep=yes && shift
seconds=${1:-60}
[[ $# -gt 0 ]] && shift
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(ls test/fuzz/corpus)
./run build fuzz fuzz_programs

# As in the tests of the sanitized builds.
export LSAN_OPTIONS=suppressions=$PWD/test/support/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
found=build/fuzz/found
mkdir -p "$found"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for target in "${targets[@]}"; do
  program=build/fuzz/test/fuzz_$target seeds=test/fuzz/corpus/$target
  mkdir "$work/$target"
  status=0
  "$program" -max_total_time="$seconds" -max_len=2048 -timeout=60 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix="$found/$target-" "$work/$target" "$seeds" \
    >"$work/log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
  # Seeds alone are no fuzzing.
  if [[ $status != 0 || ${runs:-0} -le $(find "$seeds" -type f | wc -l) ]]; then
    failed=$((failed + 1))
    tail -n 60 "$work/log"
    echo "fuzz: $target FAILED ($status) after ${runs:-no} inputs"
    continue
  fi
  echo "fuzz: $target: $runs inputs in $seconds s did no harm"
  if [[ -n $keep ]]; then
    mkdir "$work/$target.kept"
    "$program" -merge=1 -max_len=2048 "$work/$target.kept" "$seeds" "$work/$target" >"$work/log" 2>&1
    rm -f "$seeds"/*
    cp "$work/$target.kept"/* "$seeds/"
  fi
done
[[ $failed == 0 ]]
