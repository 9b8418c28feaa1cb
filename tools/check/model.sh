#!/bin/bash
# Checks the protocol's models (model/*.pml, doc/design/model.md) with spin: every test holds, every
# mutation is found, every search is complete. Two searches at a time.
#   model.sh [PATTERN]   only runs whose line "model test mutation" matches the pattern
# A run that fails leaves its last steps in the output.
set -euo pipefail
cd "$(dirname "$0")/../../model"
model_dir=$PWD
pan_seconds=240  # of one search: far more than any needs, so that nothing hangs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v spin >/dev/null || { echo "model: spin is missing (./run prepare ci)"; exit 3; }

# The number that a model gives to a mutation.
number_of() { awk -v name="$2" '$1 == "#define" && $2 == name { print $3; exit }' "$1".pml memory_tests.inc; }

# gcc looks for dead stores for 20 s in the functions that spin makes, at -O1; the searches are no faster for it.
build() {
  local name=$1
  mkdir "$work/$name"
  cd "$work/$name"
  { spin -a "$model_dir/$name.pml" &&
    "${CC:-gcc}" -Og -w -DSAFETY -DCOLLAPSE -DMEMLIM=2000 -DVECTORSZ=1024 -I"$model_dir" -o pan pan.c
  } >build.log 2>&1 && [[ -x pan ]] || { echo "model: $name cannot be built"; cat build.log; return 1; }
}

# one MODEL TEST MUTATION NUMBER ("-": none): prints a line; fails unless the result is what is expected.
# REACHED_K for a mutation: the test's expectation K must be come to, or it says nothing.
one() {
  local name=$1 test=$2 mutation=$3 number=$4 seconds states line wrong=
  local -a pan=(env "TEST=$test" "MUTATION=${number#-}" timeout --kill-after=5 "$pan_seconds" "../$name/pan")
  [[ $mutation != REACHED_* ]] || pan=(env "REACH=${mutation#REACHED_}" "${pan[@]:1}")
  mkdir "$work/$name.$test.$mutation"
  cd "$work/$name.$test.$mutation"
  # Of the processor: the same on a busy machine.
  TIMEFORMAT=%U
  seconds=$({ time "${pan[@]}" -m200000 -w21 >out 2>&1; } 2>&1) || wrong="pan ended with $?"
  states=$(awk '/states, stored/ { print $1; exit }' out)
  if [[ -z $states ]]; then
    wrong=${wrong:-"no result"}
  elif grep -q -e 'search depth too small' -e 'out of memory' out; then
    wrong="bounds too small"
  elif [[ $mutation != - ]]; then
    grep -q 'errors: 1$' out || wrong="not found"
  elif ! grep -q 'errors: 0$' out || grep -q 'Search not completed' out; then
    wrong=$(grep -m1 -e '^pan:1' -e 'Search not completed' out)
  fi
  line=$(printf '%-10s %-26s %-26s %8s states %6s s' "$name" "$test" "$mutation" "${states:-?}" "$seconds")
  [[ -z $wrong ]] && { echo "$line"; return; }
  echo "$line  FAILED: $wrong"
  if compgen -G '*.trail' >/dev/null; then
    "${pan[@]}" -r "$(echo *.trail)" 2>&1 | grep ':.proc ' | tail -60
  else
    tail -5 out
  fi
  return 1
}
export -f one
export work model_dir pan_seconds

mapfile -t models < <(printf '%s\n' *.pml | sed 's/\.pml$//')
mapfile -t tests < <(sed -n 's/^    {"\([a-z_0-9]*\)", .*/\1/p' memory_tests.inc)
[[ ${#models[@]} -gt 1 && ${#tests[@]} -gt 1 ]] || { echo "model: nothing to check"; exit 1; }

# Each mutation of a model stands in the list, and only those.
defined=$(for m in "${models[@]}"; do
  grep -ho 'MUTANT([A-Z_]*)' "$m.pml" | sed 's/.*(\(.*\))/\1/' | sort -u | sed "s/^/$m /"
done)
listed=$(awk '!/^#/ { print $1, $2 }' mutations.txt)
if ! diff <(sort <<<"$defined") <(sort <<<"$listed"); then
  echo "model: mutations.txt (right) and the models (left) differ"
  exit 1
fi

# A line for each expectation of each test.
expectations() {
  awk '/^    \{"[a-z_0-9]*", / { split($0, part, "\""); test = part[2]; n = 0 }
       /^};/ { test = "" }
       test != "" { while (sub(/expect[a-z_]*\(/, "")) print "memory " test " REACHED_" ++n " -" }' memory_tests.inc
}

runs=$(
  for m in "${models[@]}"; do
    if [[ $m == memory ]]; then
      for t in "${tests[@]}"; do echo "$m $t - -"; done
      expectations
    else
      echo "$m - - -"
    fi
  done
  while read -r m mutation test; do
    [[ $m == \#* ]] && continue
    number=$(number_of "$m" "$mutation")
    echo "$m ${test:--} $mutation ${number:-without_a_number}"
  done <mutations.txt
)
runs=$(grep -- "${1:-}" <<<"$runs") || { echo "model: no run matches"; exit 1; }

export -f build
status=0
awk '{ print $1 }' <<<"$runs" | sort -ru | xargs -P2 -n1 bash -c 'build "$1"' _ || exit 1
xargs -P2 -n4 bash -c 'one "$@"' _ <<<"$runs" || status=1
echo "model: $(wc -l <<<"$runs") runs in $SECONDS s"
exit $status
