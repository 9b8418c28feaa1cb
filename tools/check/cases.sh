#!/bin/bash
# Builds the programs of test/cases against an installed library and runs them, each with a runtime
# folder and a time limit of its own. One line for each; fails if one of them does.
#   cases.sh PREFIX [program ...]
#   cases.sh --build BUILD_DIR CMAKE [program ...]   installs that build into a scratch folder first
# CC and CFLAGS act as ever; CMI_PROVIDER and the like are passed on.
#
# Programs that outsiders wrote and that have no program of the same name here:
#   kv             a hash table with a lock in each bucket, nodes that die: examples/05-kv, which
#                  run-kill and run-ycsb run, and test/api/kv_store.cpp
#   hot, hot-home  rewritten_import; how long a store to an import takes is a matter of the bench
#   rep2           calls_at_a_silent_home
#   ulimit-v, -w   refused_newcomers and few_descriptors
set -uo pipefail
here=$(cd "$(dirname "$0")/../../test/cases" && pwd -P)
scratch=$(mktemp -d)
shared=$(mktemp -d /dev/shm/cmi-cases.XXXXXX)
chmod 755 "$shared" # a case may act as another user
trap 'rm -rf "$scratch" "$shared"' EXIT

die() {
  echo "cases: $1" >&2
  exit 2
}

if [[ ${1:-} == --build ]]; then
  [[ $# -ge 3 ]] || die "usage: cases.sh --build BUILD_DIR CMAKE [program ...]"
  prefix=$scratch/prefix
  "$3" --install "$2" --prefix "$prefix" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
  shift 3
else
  [[ $# -ge 1 && -d $1 ]] || die "usage: cases.sh PREFIX [program ...]"
  prefix=$(cd "$1" && pwd -P)
  shift
fi
pc=$(find "$prefix" -name cmi.pc | head -n1)
[[ -n $pc ]] || die "there is no cmi.pc below $prefix"
export PKG_CONFIG_PATH=${pc%/*}
read -ra flags <<<"$(pkg-config --cflags --libs cmi)"
lib=$(pkg-config --variable=libdir cmi)
cmiadm=$(find "$prefix" -name cmiadm -type f -perm -u+x | head -n1)
[[ -z $cmiadm ]] || export CMIADM=$cmiadm

if [[ $# -gt 0 ]]; then
  programs=("$@")
else
  programs=()
  for source in "$here"/*.c; do
    name=$(basename "$source" .c)
    [[ $name == case ]] || programs+=("$name")
  done
fi
failed=0
for name in "${programs[@]}"; do
  [[ -f $here/$name.c ]] || die "there is no $name"
  # shellcheck disable=SC2086 # several flags
  "${CC:-cc}" -std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra ${CFLAGS:-} "$here/$name.c" "$here/case.c" -o "$scratch/$name" \
    "${flags[@]}" -Wl,-rpath,"$lib" -pthread || { echo "not ok $name: it does not build"; failed=1; continue; }
  mkdir -m 700 "$shared/$name" "$scratch/$name.folder"
  CMI_RUNTIME_DIR=$shared/$name CASE_FOLDER=$scratch/$name.folder \
    timeout --kill-after=5 120 "$scratch/$name" >"$scratch/out" 2>&1
  case $? in
    0) echo "ok $name" ;;
    77) echo "ok $name # SKIP $(sed 's/^skipped: //' "$scratch/out")" ;;
    *)
      echo "not ok $name"
      sed 's/^/  /' "$scratch/out"
      failed=1
      ;;
  esac
done
exit $failed
