#!/usr/bin/env bash
# Configures (once) and builds one preset, or one target of it: scripts/build.sh release [TARGET]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?"usage: scripts/build.sh PRESET [TARGET]"}
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset"
cmake --build "build/$preset" --target "${2:-all}"
