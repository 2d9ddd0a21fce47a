#!/usr/bin/env bash
# What `make run` shows: a pool of its own starts a worker for the built-in model, which tells a story; then everything is
# stopped and nothing stays behind, after Ctrl-C or a failure too. Usage: scripts/run.sh BIN [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:?"usage: scripts/run.sh BIN [PROMPT]"}")
mkdir -p build
LLORCH_HOME=$(mktemp -d "$PWD/build/run.XXXXXX")
export LLORCH_HOME
unset LLORCH_POOL LLORCH_CONFIG
manager=

cleanup() {
  local code=$?
  trap - EXIT INT TERM
  if [ -n "$manager" ]; then
    "$bin/llorch-pool" stop > /dev/null 2>&1 || kill "$manager" 2> /dev/null || true
    wait "$manager" 2> /dev/null || true
  fi
  rm -rf "$LLORCH_HOME"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# In a session of its own: Ctrl-C is for this script, which stops the manager in good order.
setsid "$bin/llorch-pool" serve --port 0 > /dev/null 2> "$LLORCH_HOME/manager.log" < /dev/null &
manager=$!
for _ in $(seq 200); do
  "$bin/llorch-pool" health > /dev/null 2>&1 && break
  if ! kill -0 "$manager" 2> /dev/null; then
    cat "$LLORCH_HOME/manager.log" >&2
    exit 1
  fi
  sleep 0.05
done

"$bin/llorch-pool" worker spawn cpu --model builtin
echo
"$bin/llorch" run --pool --verbose --model builtin "${2:-Once upon a time}"
echo
"$bin/llorch-pool" status
