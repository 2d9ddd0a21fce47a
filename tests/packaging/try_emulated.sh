#!/usr/bin/env bash
# A pool whose every program is run by an emulator of user programs (qemu), as on an emulated host of another kind (try_host.sh): it starts,
# is found by its commands, its worker says what one says without the emulator, a manager that comes after a kill adopts it, and all ends.
#   try_emulated.sh BIN               the programs are this machine's own, copied with a mark in their headers, for which qemu is registered
#   try_emulated.sh BIN ARM64 ROOT    the pool's programs are those in the folder ARM64, for 64-bit ARM; ROOT has their C library (the folder
#                                     that `make portable` builds against, or a bare root); what is asked for is compared with BIN's answer
# qemu is registered in a user namespace (Linux 6.7 or newer): nothing of this machine changes, and all of it is gone afterwards. Exit code 77:
# this machine cannot.
set -euo pipefail
fail() { echo "try_emulated: $*" >&2; exit 1; }
skip() { echo "SKIPPED: $*" >&2; exit 77; }
bin=$(realpath "${1:?"usage: try_emulated.sh BIN [ARM64 ROOT]"}")
other=${2:+$(realpath "$2")}
machine=${2:+aarch64}
machine=${machine:-$(uname -m)}
root=${2:+$(realpath "${3:?"usage: try_emulated.sh BIN ARM64 ROOT"}")}
qemu=$(command -v "qemu-$machine-static") || skip "qemu-$machine-static is not here: apt install qemu-user-static"
if [ -z "${LLORCH_TRY_INSIDE:-}" ]; then
  unshare --user --map-root-user --pid --fork true 2> /dev/null || skip "this machine has no user namespaces"
  LLORCH_TRY_INSIDE=1 exec unshare --user --map-root-user --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi

# --- inside ---
work=$(mktemp -d)
end() {
  code=$?
  [ $code -eq 0 ] || tail -n 20 "$work"/home/logs/*.log >&2 || true
  rm -rf "$work"
  exit $code
}
trap end EXIT
ip link set lo up
formats=/proc/sys/fs/binfmt_misc
if [ -z "$other" ]; then  # ELF of 64 bits, with the mark in a byte that nobody reads
  line=":llorch-marked:M:0:\x7fELF\x02\x01\x01\x00\x00Q:\xff\xff\xff\xff\xff\xff\xff\x00\x00\xff:$qemu:F"
else  # ELF of 64 bits for this kind of machine (183)
  any=$(printf '\\x00%.0s' {1..9})
  line=":llorch-arm64:M:0:\x7fELF\x02\x01\x01\x00\x00$any\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\x00$any\xff\xff:$qemu:F"
fi
if ! mount -t binfmt_misc binfmt_misc $formats 2> /dev/null || ! printf '%s' "$line" > $formats/register; then
  skip "this kernel has no binfmt_misc for a user namespace (Linux 6.7 has)"
fi
# Keepers hand no environment on, so what QEMU_LD_PREFIX would name lies where programs look.
[ -z "$other" ] || mount -t overlay overlay -o "lowerdir=/usr/lib:$root/lib" /usr/lib || skip "no overlay of folders in a user namespace"
mkdir "$work/bin" "$work/home"
for program in llorch llorch-pool pool-managerd llorch-cpud; do
  if [ -n "$other" ]; then
    cp "$other/$program" "$work/bin/" 2> /dev/null || ln -s "$bin/$program" "$work/bin/"  # who asks may be this machine's
  else
    strip -o "$work/bin/$program" "$bin/$program" 2> /dev/null || cp "$bin/$program" "$work/bin/"
    printf Q | dd of="$work/bin/$program" bs=1 seek=9 conv=notrunc status=none
  fi
done
"$work/bin/llorch-pool" --version > /dev/null || fail "a program does not run under the emulator"
unset LLORCH_POOL LLORCH_CONFIG LLORCH_ORCHESTRATOR LLORCH_TOKEN LLORCH_CA_FILE XDG_RUNTIME_DIR
export LLORCH_HOME=$work/home QEMU_CPU=max PATH=$work/bin:$PATH
manager() { sed -nE 's/.*"pid":([0-9]+).*/\1/p' "$work/home/pool.json"; }
show() { printf '\n$ %s\n' "$*"; "$@"; }

show llorch-pool start
[ "$(readlink "/proc/$(manager)/exe")" = "$qemu" ] || fail "the manager does not run under the emulator"
show llorch-pool worker spawn cpu --model builtin --ctx 256 --slots 2
answer=$(show llorch run --pool -m builtin --raw --temp 0 -n 12 "Once upon a time" | tee /dev/stderr | tail -1)
here=$(LLORCH_HOME=$work/other "$bin/llorch" run --local --raw --temp 0 -n 12 "Once upon a time")
[ -n "$answer" ] && [ "$answer" = "$here" ] || fail "the emulated worker says '$answer', this machine's own '$here'"
kill -9 "$(manager)"
show llorch-pool start
show llorch-pool worker list | tee "$work/list"
grep -q 'worker-cpu-0 *ready' "$work/list" || fail "the worker was not adopted"
show llorch-pool stop
runs_still() {
  local words
  for file in /proc/[0-9]*/cmdline; do
    words=$(tr '\0' ' ' < "$file" 2> /dev/null) || continue
    case "$words" in *"$work/bin/"*) echo "$words" ;; esac
  done
}
for _ in $(seq 100); do [ -n "$(runs_still)" ] || break; sleep 0.1; done  # a keeper ends behind its worker
[ -z "$(runs_still)" ] || fail "left after the pool's end: $(runs_still)"
echo "try_emulated: a pool under qemu-$machine started, answered, was adopted and ended"
