#!/usr/bin/env bash
# Formats every tracked source as .clang-format says; with --check it only says which are not. One version for
# everybody, because each formats a little differently. Exit 77: that version is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
version=14

format=""
for candidate in "clang-format-$version" clang-format; do
  if "$candidate" --version 2>/dev/null | grep -q "version $version\."; then format=$candidate; break; fi
done
if [ -z "$format" ]; then
  echo "format: SKIPPED: clang-format $version is not installed; scripts/setup.sh test installs it" >&2
  exit 77
fi

# A tree without git (a source archive) has nothing untracked in these folders.
list_sources() {
  git ls-files -z '*.h' '*.cc' '*.cu' '*.cuh' 2>/dev/null ||
    find src tests bench -regex '.*\.\(h\|cc\|cu\|cuh\)' -print0
}

if [ "${1:-}" = --check ]; then
  bad=$(list_sources | xargs -0 -n 32 -P 2 "$format" --dry-run 2>&1 | grep -oE '^[^: ]+:[0-9]+' | sort -u -t: -k1,1 || true)
  if [ -n "$bad" ]; then
    printf 'format: not formatted; run `make format`:\n%s\n' "$bad" >&2
    exit 1
  fi
else
  list_sources | xargs -0 -n 32 -P 2 "$format" -i
fi
