#!/usr/bin/env bash
# Runs the tests of our kernels for 64-bit ARM under an emulator: NEON must give the bits that the definition gives.
#   scripts/check_arm64.sh [GTEST_FILTER]
# The first time it fetches packages and builds libraries (scripts/portable_sysroot.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
filter=${1:-Packed*:*Linear*:*Attention*:ThreadPool*}
scripts/setup.sh check-arm64
LLORCH_SYSROOT=$(scripts/portable_sysroot.sh arm64)
export LLORCH_SYSROOT
grep -qsF "LLORCH_SYSROOT:PATH=$LLORCH_SYSROOT" build/arm64-check/CMakeCache.txt || rm -rf build/arm64-check
cmake --preset arm64-check >/dev/null
cmake --build build/arm64-check --target compute_test
# A processor with dot products of bytes, and one without them, which takes the plain kernels.
for cpu in neoverse-n1 cortex-a72; do
  echo "check_arm64: $cpu"
  qemu-aarch64 -cpu "$cpu" -L "$LLORCH_SYSROOT" build/arm64-check/tests/compute_test --gtest_brief=1 --gtest_filter="$filter"
done
