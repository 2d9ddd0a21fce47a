#!/usr/bin/env bash
# What `make run` shows: a model is opened, described and run. Usage: scripts/run.sh BIN [MODEL]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:?"usage: scripts/run.sh BIN [MODEL]"}
model=${2:-tests/golden/gpt2_tiny}
"$bin/llorch-inspect" "$model"
echo
"$bin/llorch-checkpoints" --model "$model"
