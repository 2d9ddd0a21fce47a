#!/bin/sh
# Planned against measured memory of worker-orcd on a GPU: one line for each model and cache.
# Usage: scripts/gpu_memory.sh [BUILD [MODEL...]]   default: build/cuda, the built-in model
set -eu
build=${1:-build/cuda}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- builtin
worker=$build/bin/worker-orcd
log=$(mktemp)
trap 'rm -f "$log"' EXIT

field() {  # of the one-line JSON object in $plan
  printf '%s' "$plan" | sed -n "s/.*\"$1\":\"\{0,1\}\([0-9a-z_]*\).*/\1/p"
}

mib() {
  echo $(($1 / 1048576))
}

for model in "$@"; do
  for flags in "" "--kv q8_0" "--max-batch 64"; do
    # Word splitting of the flags is wanted.
    # shellcheck disable=SC2086
    if ! plan=$("$worker" --plan-memory --model "$model" $flags); then
      continue # its own line says why
    fi
    : >"$log" # nothing of the worker before may pass for this one's
    before=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0)
    "$worker" --worker-id measure --port 0 --log-format json --model "$model" \
      --ctx "$(field context)" --max-batch "$(field slots)" --kv "$(field kv_type)" \
      --kv-memory "$(field kv_bytes)" 2>"$log" &
    pid=$!
    tries=0
    until grep -q '"message":"ready"' "$log"; do
      tries=$((tries + 1))
      if ! kill -0 "$pid" 2>/dev/null || [ "$tries" -gt 1200 ]; then
        cat "$log" >&2
        kill "$pid" 2>/dev/null || true
        exit 1
      fi
      sleep 0.1
    done
    after=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0)
    host=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")
    kill "$pid"
    wait "$pid" || true
    echo "$model $flags: VRAM planned $(mib "$(field device_bytes)") MiB" \
      "(weights $(mib "$(field weights_bytes)"), kv $(mib "$(field kv_bytes)")," \
      "scratch $(mib "$(field scratch_bytes)"), context $(mib "$(field runtime_bytes)"))," \
      "measured $((after - before)) MiB; host planned $(mib "$(field host_bytes)") MiB," \
      "measured $((host / 1024)) MiB"
  done
done
