#!/usr/bin/env bash
# What `make demo` shows: three hosts where only sshd runs (network namespaces; homes on loopback ports where those are not
# allowed) join the fleet; an answer whose worker is killed in the middle goes on, word for word; why it is where it is, and
# the whole house. Leaves nothing behind. Fails where a word is another one, or where no worker died in the middle.
# Usage: scripts/demo.sh BIN [PICTURE.svg]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:?"usage: scripts/demo.sh BIN [PICTURE.svg]"}")
picture=${2:-}
for program in sshd ssh ssh-keygen strip python3 setpriv; do
  PATH=$PATH:/usr/sbin command -v $program > /dev/null || { echo "the demo needs $program: scripts/setup.sh test" >&2; exit 1; }
done
# In namespaces of its own, where they are allowed: whatever happens to it, nothing is left behind.
if [ -z "${LLORCH_TEST_ISOLATED:-}" ]; then
  if unshare --net --pid --fork --kill-child --mount-proc true 2> /dev/null; then
    LLORCH_TEST_ISOLATED=1 exec unshare --net --pid --fork --kill-child --mount-proc "$0" "$bin" ${picture:+"$picture"}
  fi
fi
begun=$SECONDS
work=$(mktemp -d "${TMPDIR:-/tmp}/llorch-demo.XXXXXX")
export LLORCH_HOME=$work/home
unset LLORCH_POOL LLORCH_CONFIG LLORCH_ORCHESTRATOR LLORCH_TOKEN XDG_RUNTIME_DIR
hosts=(anna bert carl)
made=

cleanup() {
  local code=$?
  trap - EXIT INT TERM
  "$bin/llorch" down "${hosts[@]}" > /dev/null 2>&1 || true
  "$bin/llorch" down > /dev/null 2>&1 || true
  exec 3>&- # the hosts go with it
  [ -z "$made" ] || wait "$made" || true
  rm -rf "$work"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir -p "$work/programs" "$LLORCH_HOME"
printf '[orchestrator]\nport = 0\n[pool]\nport = 0\n[worker]\nthreads = 1\n' > "$LLORCH_HOME/config.toml"
mkfifo "$work/orders"
python3 tests/fleet_hosts/hosts.py "$work/hosts" "${hosts[@]}" < "$work/orders" > "$work/made" &
made=$!
exec 3> "$work/orders"
until grep -q kind "$work/made"; do kill -0 $made; sleep 0.05; done
for host in "${hosts[@]}"; do
  mkdir -p "$work/hosts/$host/home/.config/llorch"
  printf '[pool]\nport = 0\n[worker]\nthreads = 1\n' > "$work/hosts/$host/home/.config/llorch/config.toml"
done
for program in llorch-pool pool-managerd llorch-cpud; do strip -o "$work/programs/$program" "$bin/$program"; done
# The user's own ssh, with a configuration that knows the hosts in place of ~/.ssh/config.
export PATH=$work/hosts/bin:$bin:$PATH LLORCH_HOST_PROGRAMS=$work/programs

fail() {
  echo "demo: $*" >&2
  exit 1
}

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
prompt="Once upon a time"
ask=(llorch jobs submit --model builtin --prompt "$prompt" --temp 0 -n 700)

# The id and the host of the next job that runs; makes the second file once it looks.
find_running() {
  python3 - "$LLORCH_HOME/orchestrator.json" "$work/looks" << 'PYTHON'
import json, sys, time, urllib.request
url = json.load(open(sys.argv[1]))["url"]
open(sys.argv[2], "w").close()
for _ in range(2000):
    task = json.load(urllib.request.urlopen(url + "/v2/tasks?limit=1", timeout=10))["tasks"][0]
    if task["status"] == "running":
        print(task["job_id"], task["host"])
        break
    time.sleep(0.005)
else:
    sys.exit("no job began")
PYTHON
}

# Asks, and kills the worker once it has begun to answer: sets `job`, `host` and `heard`. False: the answer was over by then.
ask_and_kill() {
  : > "$work/moved"
  rm -f "$work/looks"
  find_running > "$work/where" &
  local finding=$! asked
  until [ -e "$work/looks" ]; do kill -0 $finding; sleep 0.01; done
  "${ask[@]}" > "$work/moved" &
  asked=$!
  for _ in $(seq 2000); do
    heard=$(stat -c %s "$work/moved")
    [ "$heard" -lt 60 ] || break
    sleep 0.002
  done
  wait "$finding" || { wait "$asked"; return 1; }
  read -r job host < "$work/where"
  echo "kill $host llorch-cpud" >&3
  wait "$asked" || fail "the answer failed"
  [ "$(llorch jobs show "$job" --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["attempts"]))')" = 2 ]
}

story() {
  show llorch up "${hosts[@]}"
  # A worker on each of two hosts: one will die, the other go on. On a busy machine they are behind everybody who has to hear
  # them before one can be killed.
  "${ask[@]}" --pin anna > "$work/alone"
  "${ask[@]}" --pin bert > "$work/alone.bert"
  echo "nice anna llorch-cpud" >&3
  echo "nice bert llorch-cpud" >&3
  local host=bert job heard tries=5

  until ask_and_kill; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "no worker was killed in the middle of its answer; is this machine busy?"
    "${ask[@]}" --pin "$host" > /dev/null
  done
  cmp "$work/alone" "$work/moved" || fail "the answer is not what it is undisturbed"
  printf '\n$ llorch jobs submit --model builtin --prompt "%s"   # its worker is killed in the middle\n' "$prompt"
  echo "(kill -9 of the worker on $host, after $heard characters)"
  fold -s -w 100 "$work/moved"
  echo "(word for word what it says undisturbed)"
  show llorch jobs show "$job"
  show llorch why "$job"
  show llorch status
}

story 2>&1 | tee "$work/shown"
printf '\n(%s seconds)\n' $((SECONDS - begun))
if [ -n "$picture" ]; then
  # Of the look at each host the last line is enough there, and the folders of this run say nothing.
  grep -v -e "^ok  .* \(lets us in\|runs\|has\|answers\)" -e "^ok  its pool answers" -e "^    programs need" "$work/shown" |
    python3 scripts/terminal_svg.py "three hosts, and an answer whose worker is killed in the middle" > "$picture"
  echo
  echo "drawn: $picture"
fi
