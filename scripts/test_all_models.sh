#!/usr/bin/env bash
# Every model that is here, on every backend of this machine: all checks of `llorch matrix`. Its flags may follow (--quick, --json FILE …);
# with `--models builtin,tinyllama,qwen-0.5b,phi3,mistral --random DIR` also those that cannot be had, as random weights (docs/models/README.md).
exec "${LLORCH_BIN:-$(dirname "$0")/../build/release/bin}/llorch" matrix "$@"
