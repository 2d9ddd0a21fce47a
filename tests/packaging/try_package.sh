#!/usr/bin/env bash
# Installs a package in a bare Debian and tries it there, as root and with apt's mirror of this machine:
#   try_package.sh [llorch_VERSION_ARCH.deb [FOLDER [SUITE]]]
# FOLDER (a new one below /tmp unless told) is made by debootstrap where it is not there, and stays when it was named. SUITE is
# this machine's unless told. Without an argument the package of $LLORCH_TEST_PACKAGES is taken; exit code 77: there is none. A llorch-worker-cuda beside the package is installed too: without a card it must say what it lacks.
set -euo pipefail
. "$(dirname "$0")/bare_root.sh"
deb=$(package_to_try "$@")
skip_unless_root
work=$(mktemp -d)
root=$(realpath -m "${2:-$work/root}")
suite=${3:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
fail() { echo "try_package: $*" >&2; exit 1; }
trap 'release_bare_root "$root"; rm -rf --one-file-system "$work"' EXIT
make_bare_root "$root" "$suite"
apt() { inside "$root" apt-get -y -qq --no-install-recommends "$@" > "$work/log" 2>&1 || { tail -20 "$work/log" >&2; fail "apt-get $*"; }; }
run() { inside_alone "$root" "$@"; }

cp "$deb" "$root/llorch.deb"
apt update
apt install /llorch.deb
run getent passwd llorch > /dev/null || fail "no user was made"
for unit in pool-managerd orchestratord; do [ -f "$root/usr/lib/systemd/system/$unit.service" ] || fail "the unit of $unit is not there"; done
[ -s "$root/usr/share/bash-completion/completions/llorch" ] || fail "the completions are not there"
run llorch --version
run llorch doctor || true
story=$(run llorch run --temp 0 -n 12 "Once upon a time")
echo "it tells:$story"
[ -n "$story" ] || fail "no story"
run sh -ec 'llorch up && llorch run -n 4 "Once upon a time" > /dev/null && llorch status && llorch down > /dev/null'
run sh -ec 'llorch-pool worker spawn cpu --model builtin && llorch run --pool -m builtin -n 8 "Once upon a time" && llorch-pool stop'
cuda=${deb/llorch_/llorch-worker-cuda_}
if [ -f "$cuda" ]; then
  cp "$cuda" "$root/llorch-worker-cuda.deb"
  apt install /llorch-worker-cuda.deb
  run worker-orcd --version
  run llorch-cudad --version > /dev/null
  if [ ! -e /dev/nvidia0 ]; then
    # A model that is there, or the file would be what is missing.
    if said=$(run worker-orcd --worker-id w0 --model builtin --port 0 --callback-url http://localhost:9999/ready 2>&1); then fail "worker-orcd ran without a card"; fi
    said=${said##*$'\n'}
    grep -q "CUDA devices found: none (no NVIDIA driver is installed" <<< "$said" || fail "without a card worker-orcd says: $said"
    echo "without a card: $said"
  fi
  apt remove llorch-worker-cuda
fi
# The same version again, a removal that leaves models, a purge that does too.
apt install --reinstall /llorch.deb
run sh -c 'mkdir -p /var/lib/llorch/models && echo weights > /var/lib/llorch/models/x'
apt remove llorch
if run sh -c 'command -v llorch'; then fail "llorch is still there"; fi
[ -f "$root/etc/llorch/config.toml" ] || fail "the removal took the configuration along"
run dpkg --purge llorch > "$work/log" 2>&1
[ ! -e "$root/etc/llorch/config.toml" ] || fail "the purge left the configuration"
[ -f "$root/var/lib/llorch/models/x" ] || fail "models are gone"
rm -rf "$root/var/lib/llorch"
echo "installed, tried, installed again, removed and purged in a bare $suite; models stayed"
