#!/usr/bin/env bash
# scripts/setup.sh on releases that differ, with commands in the package manager's place: what it installs and what it leaves.
# Usage: setup_test.sh ROOT
set -euo pipefail
root=${1:?"usage: setup_test.sh ROOT"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree/scripts" "$work/tree/tests/openai_sdk" "$work/bin"
cp "$root/scripts/setup.sh" "$work/tree/scripts/"
echo '{}' >"$work/tree/tests/openai_sdk/package-lock.json"
for tool in bash dirname mktemp rm cat cmp cp mkdir env sed uname; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done

fake() { printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"; }
fake id 'echo 0'
fake dpkg-query 'name=${!#}; [[ " $INSTALLED " != *" $name "* && "$INSTALLED" != all ]] || echo -n installed'
fake apt-get 'shift; [ "$1" = update ] && { : >"$WORK/lists"; exit; }; echo "${@:4}" >>"$WORK/installed"'
fake apt-cache '[ -e "$WORK/lists" ] && [[ " $ABSENT " != *" $2 "* ]] && echo "$2 | 1" || true'
fake npm 'mkdir -p node_modules'

# run "INSTALLED" "ABSENT" ARGUMENTS…
run() {
  : >"$work/installed"
  INSTALLED=$1 ABSENT=$2 WORK=$work PATH=$work/bin bash "$work/tree/scripts/setup.sh" "${@:3}" >"$work/said" 2>&1
}
fail() { echo "setup_test: $1" >&2; cat "$work/said" "$work/installed" >&2; exit 1; }

# A release with everything: the formatter comes along, and of Boost's versions the first one there is.
run '' 'libboost1.81-dev' test || fail 'failed on a release with everything'
grep -q 'clang-format-14 .*openssh-server' "$work/installed" || fail 'no clang-format-14 where the release has it'
grep -q 'chromium' "$work/installed" || fail 'no browser where the release has it'
grep -q 'libboost1.83-dev' "$work/installed" || fail 'expected libboost1.83-dev'

# One without formatter and browser, from scratch: everything else, and a word about them.
rm "$work/lists"
run '' 'libboost1.81-dev clang-format-14 chromium' test || fail 'failed where there is no clang-format-14'
grep -q 'openssh-server' "$work/installed" || fail 'the rest was not installed'
! grep -q 'clang-format-14' "$work/installed" || fail 'asked for what the release lacks'
! grep -q 'chromium' "$work/installed" || fail 'asked for a browser that the release lacks'
grep -q 'no clang-format-14' "$work/said" && grep -q 'no chromium' "$work/said" || fail 'did not say what is left out'

# The same again, with all that there is: nothing to do, and nothing fetched.
rm "$work/lists" && touch "$work/lists"
fake node ''
fake apt-get 'echo "apt-get $*" >>"$WORK/installed"'
run all 'clang-format-14 chromium' test || fail 'failed with everything there'
[ ! -s "$work/installed" ] || fail 'asked apt-get though nothing can be had'
echo 'setup.sh: three releases'
