#!/usr/bin/env bash
# Runs every fuzzer on its committed corpus: scripts/fuzz.sh [SECONDS EACH] [JOBS] [NAME…]
# Findings and grown corpora stay under build/fuzz/findings. Exits 1 when any fuzzer found something.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
jobs=${2:-2}
shift $(($# > 2 ? 2 : $#))
scripts/build.sh fuzz fuzzers
out=$PWD/build/fuzz/findings
mkdir -p "$out"

fuzz_one() {
  local name=$1 seconds=$2 out=$3
  local corpus
  corpus=$(find src -type d -path "*/fuzz_corpus/${name%_fuzz}")
  mkdir -p "$out/$name"
  if "build/fuzz/fuzz/$name" "$out/$name" ${corpus:+"$corpus"} -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
      -malloc_limit_mb=512 -artifact_prefix="$out/$name-" >"$out/$name.log" 2>&1; then
    printf '%-20s %s\n' "$name" "$(grep -E '^Done ' "$out/$name.log" || echo finished)"
  else
    printf '%-20s FOUND SOMETHING, see %s\n' "$name" "$out/$name.log"
    return 1
  fi
}
export -f fuzz_one

if [ $# -gt 0 ]; then names=("$@"); else mapfile -t names < <(ls build/fuzz/fuzz); fi
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz_one "$@"' _ {} "$seconds" "$out"
