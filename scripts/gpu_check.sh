#!/usr/bin/env bash
# Everything that needs a GPU, in one table: scripts/gpu_check.sh BUILD_DIR [MODEL.gguf [PLANNED.gguf...]]
#   BUILD_DIR: build/cuda, or a folder with its bin/ and tests/ copied to a machine with an NVIDIA driver.
#   MODEL: a model to serve; without one the built-in story model. CHAT=MODEL.gguf: one with a chat template, asked for JSON.
#   PLANNED: models whose memory plan and time to load are looked at (llorch-convert --random makes some).
# SANITIZE=1 also runs compute-sanitizer's memcheck and racecheck, which takes minutes. Results go to $OUT, or ./gpu_check.
set -u
build=$(realpath "${1:?"usage: scripts/gpu_check.sh BUILD_DIR [MODEL.gguf [PLANNED.gguf...]]"}")
model=${2:-builtin}
shift $(($# > 2 ? 2 : $#))
root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-gpu_check}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
row() { printf '  %-44s %s  %s\n' "$1" "$2" "$3"; [ "$2" != FAIL ] || failed=1; }
summary_of() { grep -E '^\[  (PASSED|FAILED) ' "$1" | head -1 | sed 's/\[  [A-Z]*  *\] //'; }

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || { echo "gpu_check: no NVIDIA driver here" >&2; exit 1; }
cd "$root" || exit 1
if "$build/tests/conformance_test" >"$out/conformance.txt" 2>&1; then row "conformance of every op" pass "$(summary_of "$out/conformance.txt")"; else row "conformance of every op" FAIL "$out/conformance.txt"; fi
for file in tests/golden/gpt2_tiny tests/golden/gpt2_bf16 tests/golden/families/* tests/golden/quantised/*.gguf; do
  name=$(basename "$(dirname "$file")")/$(basename "$file")
  if "$build/bin/llorch-checkpoints" --model "$file" --backend cuda:0 >"$out/checkpoints.txt" 2>&1; then
    row "checkpoints: $name" pass "$(grep -cE '^ +[0-9]+ .* pass$' "$out/checkpoints.txt") of 12"
  else
    row "checkpoints: $name" FAIL "$(grep -m1 -E 'FAIL|fail|error' "$out/checkpoints.txt" | cut -c1-80)"
  fi
done
if [ -x "$build/tests/worker_ffi_test" ]; then
  if LLORCH_FFI_DEVICE=0 "$build/tests/worker_ffi_test" models/builtin/stories.gguf >"$out/ffi.txt" 2>&1; then row "the C interface on the card" pass "$(tail -1 "$out/ffi.txt")"; else row "the C interface on the card" FAIL "$(head -1 "$out/ffi.txt")"; fi
fi
checks=()
if "$build/bin/llorch-convert" models/builtin/stories.gguf "$work/stories-f32.gguf" --type f32 >/dev/null 2>&1; then checks+=(--f32 "$work/stories-f32.gguf"); fi
[ -z "${CHAT:-}" ] || checks+=(--chat "$CHAT")
for planned in "$@"; do checks+=(--plan "$planned"); done
if python3 tests/gpu/worker_check.py "$build/bin" "$model" "${checks[@]}" --json "$out/worker.json"; then :; else failed=1; fi
if [ -n "${SANITIZE:-}" ]; then
  for tool in memcheck racecheck; do
    compute-sanitizer --tool $tool "$build/tests/conformance_test" --gtest_filter='-*LongContext*:*EveryTypeAndOddShapes*:*TooLargeAnAllocation*:*NoMemoryToKeep*' >"$out/$tool.txt" 2>&1
    found=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$tool.txt" | tail -1 | sed 's/=*//')
    case $found in *" 0 errors"* | *" 0 hazards"*) row "compute-sanitizer $tool" pass "$found" ;; *) row "compute-sanitizer $tool" FAIL "$found" ;; esac
  done
fi
[ $failed = 0 ] && echo "all of it passed" || echo "something failed, see $out"
exit $failed
