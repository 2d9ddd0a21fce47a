#!/usr/bin/env bash
# What `make run` shows: the built-in model tells a story. Usage: scripts/run.sh BIN [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:?"usage: scripts/run.sh BIN [PROMPT]"}
"$bin/llorch" run --verbose "${2:-Once upon a time}"
