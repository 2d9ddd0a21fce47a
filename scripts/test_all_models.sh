#!/usr/bin/env bash
# Every model that is here, on every backend of this machine: all checks of `llorch matrix`. Its flags may follow (--quick, --json FILE …).
exec "${LLORCH_BIN:-$(dirname "$0")/../build/release/bin}/llorch" matrix "$@"
