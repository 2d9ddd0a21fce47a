#!/usr/bin/env bash
# The same on one backend: scripts/test_multi_model.sh cpu|cuda [flags of `llorch matrix`]
exec "${LLORCH_BIN:-$(dirname "$0")/../build/release/bin}/llorch" matrix --backends "${1:?"usage: scripts/test_multi_model.sh BACKEND"}" "${@:2}"
