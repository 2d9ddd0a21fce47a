#!/usr/bin/env bash
# What `make run` shows, the whole path: an orchestrator and a pool of their own, a worker that starts because somebody asks for
# its model, a story that streams through all three, and the house on one screen; then everything is stopped and nothing stays
# behind, after Ctrl-C or a failure too. Usage: scripts/run.sh BIN [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:?"usage: scripts/run.sh BIN [PROMPT]"}")
mkdir -p build
LLORCH_HOME=$(mktemp -d "$PWD/build/run.XXXXXX")
export LLORCH_HOME
unset LLORCH_POOL LLORCH_CONFIG LLORCH_ORCHESTRATOR LLORCH_TOKEN

cleanup() {
  local code=$?
  trap - EXIT INT TERM
  if ! "$bin/llorch" down > "$LLORCH_HOME/down" 2>&1; then
    cat "$LLORCH_HOME/down" >&2
    code=1
  fi
  rm -rf "$LLORCH_HOME"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

"$bin/llorch" up
echo
"$bin/llorch" run --verbose --model builtin "${2:-Once upon a time}"
echo
"$bin/llorch" status
