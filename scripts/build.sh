#!/usr/bin/env bash
# Configures (once) and builds one preset: scripts/build.sh release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?"usage: scripts/build.sh PRESET"}
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset"
cmake --build "build/$preset"
