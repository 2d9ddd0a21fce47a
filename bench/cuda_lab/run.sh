#!/usr/bin/env bash
# Builds the laboratory and runs the named parts (default: all) on the card of this machine; results go to $OUT, or ./out.
set -u
cd "$(dirname "$0")"
out=${OUT:-out}
build=/tmp/cuda_lab
mkdir -p "$out" "$build"
flags=(-std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -Xptxas -v)
formats=("Plain<F16>:f16" "Plain<BF16>:bf16" "Q8:q8" "Affine<4>:q4" "Affine<5>:q5" "Q6:q6")
if [ -n "${FORMATS:-}" ]; then read -ra formats <<<"$FORMATS"; fi
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(probe products attention step peer)
for part in "${parts[@]}"; do
  case $part in
    products | step) for f in "${formats[@]}"; do
        [ $part/$f = "step/Plain<BF16>:bf16" ] && continue  # the step hands halves on
        nvcc "${flags[@]}" "-DLAB_FORMAT=${f%%:*}" $part.cu -o "$build/${part}_${f##*:}" >"$build/${part}_${f##*:}.log" 2>&1 &
      done ;;
    peer | profile | sanitize) ;;
    *) nvcc "${flags[@]}" "$part.cu" -o "$build/$part" >"$build/$part.log" 2>&1 & ;;
  esac
done
wait
grep -hE "error|warning|[1-9][0-9]* bytes spill" "$build"/*.log | sort | uniq -c | head -20
for part in "${parts[@]}"; do
  case $part in
    products | step) for f in "${formats[@]}"; do [ ! -x "$build/${part}_${f##*:}" ] || "$build/${part}_${f##*:}"; done 2>&1 | tee "$out/$part.txt" | grep -E "ok$|WRONG|SUM|STEP|:[0-9]+:" ;;
    profile) for f in f16 q4; do
        ncu --clock-control none --section SpeedOfLight --section WarpStateStats --section SchedulerStats --section MemoryWorkloadAnalysis \
          -k regex:product "$build/products_$f" profile
        cuobjdump --dump-sass "$build/products_$f" | gzip >"$out/$f.sass.gz"
      done >"$out/profile.txt" 2>&1 ;;
    sanitize) for program in step_q4 step_f16 attention; do
        for tool in memcheck racecheck; do
          echo "$program under $tool: $(timeout 100 compute-sanitizer --tool $tool "$build/$program" check 2>&1 | grep -E "ERROR SUMMARY|RACECHECK SUMMARY" || echo none)"
        done
      done | tee "$out/sanitize.txt" ;;
    peer) python3 peer.py 2>&1 | tee "$out/peer.txt" | grep -E "SUM|step|Error" ;;
    *) "$build/$part" 2>&1 | tee "$out/$part.txt" ;;
  esac
done
