#!/usr/bin/env bash
# What `make demo` shows: three hosts where only sshd runs (three homes on loopback) join the fleet; an answer whose worker is
# killed in the middle goes on, word for word; why it is where it is, and the whole house. Leaves nothing behind.
# Usage: scripts/demo.sh BIN [PICTURE.svg]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:?"usage: scripts/demo.sh BIN [PICTURE.svg]"}")
picture=${2:-}
for program in sshd ssh ssh-keygen strip python3; do
  PATH=$PATH:/usr/sbin command -v $program > /dev/null || { echo "the demo needs $program: scripts/setup.sh test" >&2; exit 1; }
done
work=$(mktemp -d /tmp/llorch-demo.XXXXXX)
export LLORCH_HOME=$work/home
unset LLORCH_POOL LLORCH_CONFIG LLORCH_ORCHESTRATOR LLORCH_TOKEN
hosts=(anna bert carl)
sshds=()

cleanup() {
  local code=$? pid
  trap - EXIT INT TERM
  "$bin/llorch" down "${hosts[@]}" > /dev/null 2>&1 || true
  "$bin/llorch" down > /dev/null 2>&1 || true
  for pid in "${sshds[@]}"; do kill "$pid" 2> /dev/null || true; done
  rm -rf "$work"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# A host: an sshd with a home and keys of its own, as tests/support/test_sshd makes them.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
make_host() {
  local name=$1 folder=$work/$1 port
  port=$(free_port)
  mkdir -p "$folder/home/.config/llorch"
  printf '[pool]\nport = 0\n[worker]\nthreads = 1\n' > "$folder/home/.config/llorch/config.toml"
  ssh-keygen -q -t ed25519 -N '' -C demo -f "$folder/host_key"
  printf '#!/bin/sh\nexport HOME=%s\ncd "$HOME" || exit 1\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n' "$folder/home" > "$folder/login"
  chmod 700 "$folder/login"
  cat > "$folder/sshd_config" << END
Port $port
ListenAddress 127.0.0.1
HostKey $folder/host_key
AuthorizedKeysFile $work/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
ForceCommand $folder/login
END
  cat >> "$work/config" << END
Host $name
  HostName 127.0.0.1
  Port $port
  IdentityFile $work/key
  IdentitiesOnly yes
  UserKnownHostsFile $work/known_hosts
  GlobalKnownHostsFile /dev/null
END
  echo "[127.0.0.1]:$port $(cat "$folder/host_key.pub")" >> "$work/known_hosts"
  [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
  "$(PATH=$PATH:/usr/sbin command -v sshd)" -D -e -f "$folder/sshd_config" 2> "$folder/sshd.log" &
  sshds+=($!)
}

mkdir -p "$work/bin" "$work/programs" "$LLORCH_HOME"
printf '[orchestrator]\nport = 0\n[pool]\nport = 0\n[worker]\nthreads = 1\n' > "$LLORCH_HOME/config.toml"
ssh-keygen -q -t ed25519 -N '' -C demo -f "$work/key"
for host in "${hosts[@]}"; do make_host "$host"; done
# The user's own ssh, with this configuration in place of ~/.ssh/config.
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$work/config" > "$work/bin/ssh"
chmod 700 "$work/bin/ssh"
for program in llorch-pool pool-managerd llorch-cpud; do strip -o "$work/programs/$program" "$bin/$program"; done
export PATH=$work/bin:$bin:$PATH LLORCH_HOST_PROGRAMS=$work/programs

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
prompt="Once upon a time"
ask=(llorch jobs submit --model builtin --prompt "$prompt" --temp 0 -n 700)

story() {
  show llorch up "${hosts[@]}"
  # A worker on each of two hosts: one will die, the other go on.
  "${ask[@]}" --pin anna > "$work/alone"
  "${ask[@]}" --pin bert > "$work/alone.bert"
  local host pid job
  for host in anna bert; do
    llorch pool worker list --json --host $host | python3 -c 'import json, sys; print(json.load(sys.stdin)["workers"][0]["pid"])' > "$work/pid.$host"
  done

  printf '\n$ llorch jobs submit --model builtin --prompt "%s"   # its worker is killed in the middle\n' "$prompt"
  "${ask[@]}" > "$work/moved" &
  local asked=$!
  for _ in $(seq 2000); do
    [ "$(stat -c %s "$work/moved")" -lt 60 ] || break
    sleep 0.002
  done
  read -r job host < <(llorch jobs list --limit 1 --json | python3 -c '
import json, sys
task = json.load(sys.stdin)["tasks"][0]
print(task["job_id"], task["host"])')
  pid=$(cat "$work/pid.$host")
  kill -9 "$pid"
  echo "(process $pid, the worker on $host, was killed after $(stat -c %s "$work/moved") characters)"
  wait "$asked"
  fold -s -w 100 "$work/moved"
  cmp "$work/alone" "$work/moved" && echo "(word for word what it says undisturbed)"
  show llorch jobs show "$job"
  show llorch why "$job"
  show llorch status
}

story 2>&1 | tee "$work/shown"
[ "${PIPESTATUS[0]}" = 0 ] || exit 1
if [ -n "$picture" ]; then
  # Of the look at each host the last line is enough there.
  grep -v -e "^ok  .* \(lets us in\|runs\|has\|answers\)" -e "^    need" "$work/shown" |
    python3 scripts/terminal_svg.py "three hosts, and an answer whose worker is killed in the middle" > "$picture"
fi
