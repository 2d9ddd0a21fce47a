#!/usr/bin/env bash
# `llorch up HOST` where HOST is another kind of machine: 64-bit ARM, every program of it run by qemu, its shell and tools too.
#   try_host.sh DIST BIN [FOLDER]
# DIST has arm64/ of scripts/build_portable.sh, BIN the programs of this machine. FOLDER, a bare Debian 11 for ARM64, is made by debootstrap
# where it is not there (a new one below /tmp unless told), and stays when it was named. The host's sshd is this machine's, chrooted to FOLDER
# at the login. qemu is registered in a user namespace (Linux 6.7 or newer), so nothing of this machine changes; all of it is gone afterwards.
# It is looked at, gets programs, answers, is asked by `llorch pool`, and is taken down. Exit code 77: this machine cannot.
set -euo pipefail
. "$(dirname "$0")/bare_root.sh"
fail() { echo "try_host: $*" >&2; exit 1; }
dist=$(realpath "${1:?"usage: try_host.sh DIST BIN [FOLDER]"}")
bin=$(realpath "${2:?"usage: try_host.sh DIST BIN [FOLDER]"}")
[ -x "$dist/arm64/bin/llorch-pool" ] || fail "there are no programs in $dist/arm64/bin; scripts/build_portable.sh arm64 makes them"
PATH=$PATH:/usr/sbin:/sbin

# --- outside: the folder, and the namespaces ---
if [ -z "${LLORCH_TRY_INSIDE:-}" ]; then
  skip_unless_root
  for program in sshd ssh ssh-keygen qemu-aarch64-static; do
    command -v $program > /dev/null || { echo "SKIPPED: $program is not here: scripts/setup.sh test portable-arm64" >&2; exit 77; }
  done
  work=$(mktemp -d)
  root=$(realpath -m "${3:-$work/root}")
  trap 'rm -rf --one-file-system "$work"' EXIT
  if [ ! -x "$root/bin/bash" ]; then
    # Unpacked and not configured: enough for a shell and its tools.
    debootstrap --foreign --arch=arm64 --variant=minbase bullseye "$root" "$(mirror_of_apt)" > "$work/log" 2>&1 ||
      { tail -5 "$work/log" >&2; fail "no Debian 11 for ARM64 can be had"; }
  fi
  mkfifo "$work/go"
  # Every user of this machine is itself there: sshd gives up root before a login.
  # shellcheck disable=SC2094  # read there, written here
  LLORCH_TRY_INSIDE=$work unshare --user --mount --net --uts --pid --fork --kill-child --mount-proc "$0" "$dist" "$bin" "$root" < "$work/go" &
  child=$!
  exec 3> "$work/go"
  until [ "$(readlink /proc/$child/ns/user)" != "$(readlink /proc/self/ns/user)" ]; do kill -0 $child; sleep 0.05; done
  for map in uid_map gid_map; do echo "0 0 65536" > /proc/$child/$map; done
  echo go >&3
  wait $child
  exit
fi

# --- inside ---
read -r _
work=$LLORCH_TRY_INSIDE root=$3 qemu=$(command -v qemu-aarch64-static)
hostname there
ip link set lo up
formats=/proc/sys/fs/binfmt_misc
line=$(sed -nE "s#^(:qemu-aarch64:.*):[^:]*:[^:]*\$#\1:$qemu:F#p" /usr/lib/binfmt.d/qemu-aarch64.conf)
if [ -z "$line" ] || ! mount -t binfmt_misc binfmt_misc $formats || ! printf '%s' "$line" > $formats/register; then
  echo "SKIPPED: this kernel has no binfmt_misc for a user namespace (Linux 6.7 has)" >&2
  exit 77
fi
# sshd changes to a folder only where nobody else may write on the way to it.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/there
mount --bind "$root" /run/there
root=/run/there
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=700 tmpfs "$root/root"
[ "$(chroot "$root" uname -m)" = aarch64 ] || fail "the host is no 64-bit ARM: $(chroot "$root" uname -m)"

ssh-keygen -q -t ed25519 -N "" -C test -f "$work/key"
ssh-keygen -q -t ed25519 -N "" -C test -f "$work/host_key"
cat > "$work/sshd_config" << END
Port 2222
ListenAddress 127.0.0.1
HostKey $work/host_key
AuthorizedKeysFile $work/key.pub
ChrootDirectory $root
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
END
cat > "$work/config" << END
Host arm
  HostName 127.0.0.1
  Port 2222
  User root
  IdentityFile $work/key
  IdentitiesOnly yes
  UserKnownHostsFile $work/known_hosts
  GlobalKnownHostsFile /dev/null
END
mkdir "$work/bin" "$work/home"
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$work/config" > "$work/bin/ssh"
chmod 700 "$work/bin/ssh"
"$(command -v sshd)" -D -e -f "$work/sshd_config" 2> "$work/sshd.log" &
printf '[orchestrator]\nport = 0\nlocal-pool = false\n' > "$work/home/config.toml"
export PATH=$work/bin:$bin:$PATH LLORCH_HOME=$work/home LLORCH_HOST_PROGRAMS=$dist
unset LLORCH_POOL LLORCH_CONFIG LLORCH_ORCHESTRATOR LLORCH_TOKEN XDG_RUNTIME_DIR
show() { printf '\n$ %s\n' "$*"; "$@"; }
trap 'code=$?; [ $code -eq 0 ] || tail -n 20 "$work/sshd.log" "$work"/home/logs/orchestrator.log >&2; exit $code' EXIT
until ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new arm true; do kill -0 $!; sleep 0.2; done

show llorch up arm
show llorch hosts
show llorch pool --host arm status
# What is said there and here: the same weights, greedily.
there=$(show llorch jobs submit --model builtin --pin arm --temp 0 -n 24 --prompt "Once upon a time" | tee /dev/stderr | tail -1)
here=$(LLORCH_HOME=$work/other "$bin/llorch" run --raw --temp 0 -n 24 "Once upon a time")
[ -n "$there" ] || fail "the host's worker said nothing"
[ "$there" = "$here" ] || echo "try_host: this machine says: $here" >&2
llorch jobs list --json | grep -q '"host":"arm"' || fail "the job did not run there"
said=$(llorch pool --host arm worker stop '; touch /tmp/owned' 2>&1) && fail "a worker of an odd name was stopped: $said"
[ ! -e "$root/tmp/owned" ] || fail "a word reached a shell"
show llorch down arm
left=$(chroot "$root" sh -c 'for p in /proc/[0-9]*; do tr "\0" " " < $p/cmdline; echo; done' | grep -c 'llorch-cpud\|pool-managerd' || true)
[ "$left" = 0 ] || fail "$left programs are left there"
show llorch down
echo "try_host: a host of 64-bit ARM was set up, answered and was taken down"
