#!/usr/bin/env bash
# An upgrade with running workers, the way back, a removal and a purge, in a bare Debian with a systemd of its own:
#   try_upgrade.sh [llorch_VERSION_ARCH.deb [FOLDER]]
# FOLDER (a new one below /tmp unless told) is made by debootstrap where it is not there, and stays when it was named.
#   LLORCH_PREVIOUS_DEB  the version before; without it the same programs under an older version's name
# Without an argument the package of $LLORCH_TEST_PACKAGES is taken. Exit code 77: there is none, or this machine cannot.
# systemd runs in namespaces (processes, mounts, network, cgroups): nothing of this machine is touched, and all of it goes with it.
set -euo pipefail
. "$(dirname "$0")/bare_root.sh"
fail() { echo "try_upgrade: $*" >&2; exit 1; }
new=$(package_to_try "$@")
skip_unless_root
cgroups=$(findmnt -n -t cgroup2 -o TARGET | head -1)
[ -w "${cgroups:-/none}" ] || { echo "SKIPPED: no writable cgroup2 here, which systemd needs" >&2; exit 77; }

work=$(mktemp -d)
root=$(realpath -m "${2:-$work/root}")
group=$cgroups/llorch-try-$$
init="" supervisor="" last=""
cleanup() {
  local ended=$?
  if [ "$ended" -ne 0 ] && [ -n "$init" ]; then
    echo "try_upgrade: '$last' there ended the test; its journal:" >&2
    on "journalctl -b --no-pager -u pool-managerd -u orchestratord | tail -25" >&2 || true
  fi
  if [ -n "$init" ]; then kill -KILL "$init" 2> /dev/null || true; fi  # the first of its namespace: all others go along
  if [ -n "$supervisor" ]; then wait "$supervisor" 2> /dev/null || true; fi
  if [ -d "$group" ]; then find "$group" -depth -type d -exec rmdir {} \; 2> /dev/null || true; fi
  release_bare_root "$root"
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# The package before: its programs differ from the new ones by a last byte, so that old and new can be told from each other.
previous=${LLORCH_PREVIOUS_DEB:-}
if [ -z "$previous" ]; then
  dpkg-deb --raw-extract "$new" "$work/previous"
  for program in "$work"/previous/usr/bin/*; do if [ ! -L "$program" ]; then printf '\0' >> "$program"; fi; done
  (cd "$work/previous" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) > "$work/md5sums"
  mv "$work/md5sums" "$work/previous/DEBIAN/md5sums"
  sed -i -E 's/^Version: .*/&~before/' "$work/previous/DEBIAN/control"
  previous=$work/previous.deb
  dpkg-deb --root-owner-group -Znone --build "$work/previous" "$previous" > /dev/null
fi
new_version=$(dpkg-deb --field "$new" Version)
old_version=$(dpkg-deb --field "$previous" Version)
dpkg --compare-versions "$old_version" lt "$new_version" || fail "$old_version is no version before $new_version"

# The machine: what the package needs is there before it starts, since its network has no way out.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
make_bare_root "$root" "$suite"
cp "$previous" "$root/old.deb"
cp "$new" "$root/new.deb"
quietly() { "$@" > "$work/log" 2>&1 || { tail -20 "$work/log" >&2; fail "$*"; }; }
quietly inside "$root" apt-get update -qq
quietly inside "$root" apt-get install -y -qq --no-install-recommends systemd systemd-sysv
quietly inside "$root" apt-get install -y -qq --no-install-recommends --allow-downgrades /new.deb  # its libraries
quietly inside "$root" dpkg --purge llorch
rm -rf "$root/var/lib/llorch"
release_bare_root "$root"

mkdir "$group"
(
  echo 0 > "$group/cgroup.procs"
  exec unshare --mount --pid --fork --uts --ipc --cgroup --net sh -ec '
    cd "$1"
    mount --make-rprivate /
    mount --bind . . && cd "$1"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=755 tmpfs dev
    for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
    mkdir dev/shm dev/pts
    mount -t tmpfs tmpfs dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
    ln -s pts/ptmx dev/ptmx  # PrivateDevices= of a unit wants both
    ip link set lo up
    exec chroot . env -i container=llorch PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
  ' sh "$root"
) > "$work/boot.log" 2>&1 &
supervisor=$!
until_true() {
  local _
  for _ in $(seq 600); do if "$@" > /dev/null 2>&1; then return; fi; sleep 0.1; done
  on "journalctl -b --no-pager | tail -30" >&2 || tail "$work/boot.log" >&2
  fail "'$*' never came true"
}
is_up() { init=$(pgrep -P "$supervisor") && [ "$(cat "/proc/$init/comm")" = systemd ]; }
# on COMMANDS: a shell there, as root, which asks the machine's pool and its orchestrator.
on() {
  last=$1
  nsenter --target "$init" --mount --pid --net --ipc --uts --cgroup --root --wd \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    LLORCH_POOL=http://127.0.0.1:9200 LLORCH_ORCHESTRATOR=http://127.0.0.1:8080 sh -ec "$1"
}
until_true is_up
until_true on '[ "$(systemctl is-system-running)" = running ]'
echo "systemd runs in a bare $suite"

install_version() { quietly on "apt-get install -y -qq --no-install-recommends --allow-downgrades /$1.deb"; }
processes() { pgrep --ns "$init" --nslist pid -x "$1" | sort; }
manager() { processes pool-managerd; }
worker_pids() { processes llorch-cpud || true; }
nothing_runs() { ! processes llorch-cpud && ! processes pool-managerd && ! processes llorch-pool && ! processes orchestratord; }
# Which program a process runs: its hash, whatever is at its path by now.
program_of() { sha256sum < "/proc/$1/exe"; }
installed() { sha256sum < "$root/usr/bin/$1"; }
# ask NAME TOKENS: an answer into a file of this name, straight from the worker.
ask() {
  nsenter --target "$init" --net curl -sN --max-time 300 "$worker/execute" -H 'Content-Type: application/json' \
    -d "{\"job_id\":\"$1\",\"prompt\":\"Once upon a time\",\"max_tokens\":$2,\"temperature\":0}" > "$work/$1"
}
ends_well() { [ "$(grep -c '^event: end' "$work/$1")" = 1 ]; }

install_version old
# One command is enough: the orchestrator wants the pool. Both come back with the machine.
on 'systemctl enable --now -q orchestratord && systemctl enable -q pool-managerd && systemctl is-active -q pool-managerd'
until_true on 'llorch status | grep -E "^local +connected"'
on 'llorch-pool worker spawn cpu --model builtin'
worker=$(on 'llorch-pool worker list --json' | grep -oE 'http://127.0.0.1:[0-9]+' | head -1)
first_worker=$(worker_pids)
[ -n "$first_worker" ] || fail "no worker runs"
ask alone 900
ends_well alone || fail "the worker does not answer: $(tail -3 "$work/alone")"

# change_to deb VERSION: while eight answers are under way. None is cut, the worker stays, the manager is the new one and has adopted it.
change_to() {
  local before number answers=()
  before=$(manager)
  for number in 1 2 3 4 5 6 7 8; do
    ask "answer-$number" 900 &
    answers+=($!)
  done
  until_true grep -q '^event: token' "$work/answer-8"
  install_version "$1"
  [ "$(on "dpkg-query -W -f '\${Version}' llorch")" = "$2" ] || fail "$2 is not installed"
  until_true on 'systemctl is-active pool-managerd && llorch-pool health'
  wait "${answers[@]}"
  for number in 1 2 3 4 5 6 7 8; do
    ends_well "answer-$number" || fail "an answer was cut: $(tail -3 "$work/answer-$number")"
    cmp -s <(grep '"t":' "$work/alone") <(grep '"t":' "$work/answer-$number") || fail "an answer differs from the one alone"
  done
  [ "$(manager)" != "$before" ] || fail "the old manager still runs"
  [ "$(program_of "$(manager)")" = "$(installed pool-managerd)" ] || fail "the manager runs another program than the installed one"
  [ "$(worker_pids)" = "$first_worker" ] || fail "the worker did not stay: $first_worker, now $(worker_pids)"
  until_true on 'llorch-pool worker list | grep -E "^worker-cpu-0 +ready"'
  until_true on 'systemctl is-active orchestratord && llorch status | grep -E "^local +connected"'
  [ "$(program_of "$(processes orchestratord)")" = "$(installed orchestratord)" ] || fail "the orchestrator runs another program than the installed one"
  # What starts now is of this version, and the adopted worker obeys this manager.
  on 'llorch-pool worker spawn cpu --model builtin > /dev/null'
  local second
  second=$(comm -13 <(echo "$first_worker") <(worker_pids))
  [ "$(program_of "$second")" = "$(installed llorch-cpud)" ] || fail "a worker of another version was started"
  on 'llorch-pool worker stop worker-cpu-1 > /dev/null'
  echo "$2 with running workers: eight answers went on, the manager is new, the worker stayed"
}
change_to new "$new_version"
[ "$(program_of "$first_worker")" != "$(installed llorch-cpud)" ] || fail "old and new program cannot be told from each other"
change_to old "$old_version"
change_to new "$new_version"

# Removal: the service ends and takes its workers along; models, jobs and the configuration stay. Purge: models stay.
on 'cp /usr/share/doc/llorch/copyright /var/lib/llorch/mine.txt && chown llorch /var/lib/llorch/mine.txt && echo "# mine" >> /etc/llorch/config.toml'
quietly on 'apt-get remove -y -qq llorch'
until_true nothing_runs
on '! command -v llorch && grep -q "^# mine" /etc/llorch/config.toml'
install_version new
until_true on 'systemctl enable --now -q pool-managerd orchestratord && llorch-pool health && llorch status'
on 'grep -q "^# mine" /etc/llorch/config.toml && llorch-pool worker spawn cpu --model builtin > /dev/null'
quietly on 'apt-get purge -y -qq llorch'
until_true nothing_runs
on '[ ! -e /etc/llorch/config.toml ] && [ -s /var/lib/llorch/mine.txt ] && [ -d /var/lib/llorch/models ] && [ -s /var/lib/llorch/catalog.json ]'
echo "removed and purged: nothing runs, models stayed"
rm -rf "$root/var/lib/llorch"
