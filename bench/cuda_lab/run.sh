#!/usr/bin/env bash
# Builds the probe and runs the named parts (default: all) on the card of this machine; results go to $OUT, or ./out.
set -u
cd "$(dirname "$0")"
out=${OUT:-out}
build=/tmp/cuda_lab
mkdir -p "$out" "$build"
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(probe peer)
for part in "${parts[@]}"; do
  case $part in
    probe)
      nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -I../../src probe.cu -o "$build/probe" &&
        "$build/probe" 2>&1 | tee "$out/probe.txt"
      ;;
    peer) python3 peer.py 2>&1 | tee "$out/peer.txt" | grep -E "SUM|step|Error" ;;
    *) echo "run.sh: no part '$part'; there are: probe, peer" >&2; exit 2 ;;
  esac
done
