#!/usr/bin/env bash
# Installs a package in a bare Debian and tries it there, as root and with apt's mirror of this machine:
#   try_package.sh llorch_VERSION_ARCH.deb [FOLDER]
# FOLDER (a new one below /tmp unless told) is made by debootstrap where it is not there, and stays when it was named.
set -euo pipefail
deb=$(realpath "${1:?"usage: try_package.sh FILE.deb [FOLDER]"}")
root=${2:-}
work=$(mktemp -d)
cleanup() {
  for place in proc dev/pts dev; do umount "${root:-$work/root}/$place" 2> /dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
root=${root:-$work/root}
command -v debootstrap > /dev/null || { echo "try_package: apt install debootstrap" >&2; exit 1; }
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $suite" 'Created-By: Packages' | head -1)
[ -x "$root/usr/bin/apt-get" ] || debootstrap --variant=minbase "$suite" "$root" "$mirror" > "$work/log" 2>&1 || { tail -5 "$work/log" >&2; exit 1; }
cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2> /dev/null || true
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

cp "$deb" "$root/llorch.deb"
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends /llorch.deb > "$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
inside getent passwd llorch > /dev/null
inside llorch --version
inside llorch doctor || true
story=$(inside llorch run --temp 0 -n 12 "Once upon a time")
echo "it tells:$story"
[ -n "$story" ]
inside sh -c 'llorch up > /dev/null && llorch run -n 4 "Once upon a time" > /dev/null && llorch status && llorch down > /dev/null'
# An upgrade to the same version, a removal that leaves models, a purge that does too.
inside apt-get install -y -qq --reinstall --no-install-recommends /llorch.deb > "$work/log" 2>&1
inside sh -c 'mkdir -p /var/lib/llorch/models && echo weights > /var/lib/llorch/models/x'
inside apt-get remove -y -qq llorch > "$work/log" 2>&1
if inside sh -c 'command -v llorch'; then echo "try_package: llorch is still there" >&2; exit 1; fi
[ -f "$root/etc/llorch/config.toml" ]
inside dpkg --purge llorch > "$work/log" 2>&1
[ ! -e "$root/etc/llorch/config.toml" ]
[ -f "$root/var/lib/llorch/models/x" ]
echo "installed, tried, upgraded, removed and purged in a bare $suite; models stayed"
