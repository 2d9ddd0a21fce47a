#!/usr/bin/env bash
# Uses programs made by scripts/build_portable.sh where there is nothing but Linux and glibc 2.31: in a root folder that holds
# those two (LLORCH_SYSROOT's glibc), and the programs.
#   LLORCH_SYSROOT=… try_portable.sh DIR/<architecture>
# A worker answers, also as OpenAI's endpoint; the greedy answer of models of three weight types is printed as a hash, the same on every
# machine; the checkpoints of every golden model are computed; `llorch run` tells a story; a pool starts a worker which tells one, and a
# model comes over HTTPS from a host that is named. Programs for another machine are run by qemu-*-static, children included where the
# kernel has binfmt_misc for each user namespace (Linux 6.7), else only those that start none. Needs root or user namespaces; takes a
# minute, under qemu many. Everything happens in namespaces of its own and is gone afterwards.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath "${1:?"usage: LLORCH_SYSROOT=… try_portable.sh DIR/<architecture>"}")
: "${LLORCH_SYSROOT:?"names the folder that scripts/portable_sysroot.sh made"}"
machine=$(sed -nE 's/.*"machine": "(.*)".*/\1/p' "$folder/manifest.json")
if [ -z "${LLORCH_TRY_INSIDE:-}" ]; then
  user=()
  # What is registered in a user namespace of its own is nobody else's.
  [ "$(id -u)" -eq 0 ] && [ "$machine" = "$(uname -m)" ] || user=(--user --map-root-user)
  LLORCH_TRY_INSIDE=1 exec unshare ${user[@]+"${user[@]}"} --mount --pid --fork --kill-child --mount-proc "$0" "$folder"
fi

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root/try"; umount -lR "$root/root" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT
mkdir -p "$root/try" "$root/root"
mount -t tmpfs -o mode=755 llorch "$root/root"
mkdir -p "$root"/root/{bin,proc,dev,etc,tmp,home,models}
cp -a "$LLORCH_SYSROOT"/lib "$root/root/"
[ ! -d "$LLORCH_SYSROOT/lib64" ] || cp -a "$LLORCH_SYSROOT/lib64" "$root/root/"
cp -a "$folder"/bin/. "$root/root/bin/"
cp "$source_dir/models/builtin/stories.gguf" "$root/root/models/"
cp -rL "$source_dir"/tests/golden/{gpt2_tiny,families/*} "$root/root/models/"
echo '127.0.0.1 localhost hub.test' >"$root/root/etc/hosts"
mount -t proc proc "$root/root/proc"
mount --rbind /dev "$root/root/dev"
chroot=$(PATH=$PATH:/usr/sbin command -v chroot)
run_prefix=()
has_children=yes
if [ "$machine" != "$(uname -m)" ]; then
  qemu=$(command -v "qemu-$machine-static")
  formats=/proc/sys/fs/binfmt_misc
  # The line that qemu's package registers for the whole machine, with this qemu, which is opened now (F): the root need not have it.
  line=$(sed -nE "s#^(:qemu-$machine:.*):[^:]*:[^:]*\$#\1:$qemu:F#p" "/usr/lib/binfmt.d/qemu-$machine.conf" 2>/dev/null || true)
  if [ -z "$line" ] || ! mount -t binfmt_misc binfmt_misc $formats 2>/dev/null || ! printf '%s' "$line" >$formats/register; then
    has_children=no
    cp "$qemu" "$root/root/qemu"
    run_prefix=(/qemu)
    echo "try_portable: no binfmt_misc of our own here: what starts children is not tried" >&2
  fi
fi
# run PROGRAM ARGUMENT…: inside, with nothing of this machine's environment.
run() {
  local program=$1
  shift
  env -i HOME=/home PATH=/bin LLORCH_HOME=/home LLORCH_CONFIG=/dev/null SSL_CERT_FILE=/etc/ca.pem \
    "$chroot" "$root/root" "${run_prefix[@]}" "/bin/$program" "$@"
}
until_true() { for _ in $(seq 600); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.1; done; echo "try_portable: '$*' never came true" >&2; return 1; }

for program in "$folder"/bin/*; do
  said=$(run "${program##*/}" --version)
  echo "${program##*/} $said"
done

# Greedy answers of the same weights in three types.
for type in f32 q8_0 q4_k_m; do
  model=/models/$type.gguf
  run llorch-convert /models/stories.gguf "$model" --type "$type" >/dev/null 2>"$root/try/convert" || { cat "$root/try/convert" >&2; exit 1; }
  run llorch-cpud --worker-id try --model "$model" --port 0 --threads 2 --chat-template vicuna --log-format json >"$root/try/worker.log" 2>&1 &
  worker=$!
  until_true grep -qE '"port": ?[0-9]+' "$root/try/worker.log"
  port=$(grep -oE '"port": ?[0-9]+' "$root/try/worker.log" | grep -oE '[0-9]+' | head -1)
  until_true curl -sf "http://127.0.0.1:$port/health"
  curl -sfN "http://127.0.0.1:$port/execute" -H 'Content-Type: application/json' \
    -d '{"job_id":"a","prompt":"Once upon a time","max_tokens":64,"temperature":0}' >"$root/try/answer"
  grep -q '^event: end' "$root/try/answer"
  text=$(sed -nE 's/^data: .*"t":"(([^"\\]|\\.)*)".*/\1/p' "$root/try/answer" | tr -d '\n')
  [ -n "$text" ]
  echo "$type: weights $(sha256sum <"$root/root$model" | cut -c1-16), answer $(sha256sum <<<"$text" | cut -c1-16): ${text:0:60}…"
  curl -sf "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"messages":[{"role":"user","content":"Tell me a story."}],"max_tokens":32,"temperature":0}' >"$root/try/chat"
  python3 -c 'import json, sys; print("chat:", repr(json.load(open(sys.argv[1]))["choices"][0]["message"]["content"][:60]))' "$root/try/chat"
  curl -sf -X POST "http://127.0.0.1:$port/shutdown" -H 'Content-Type: application/json' >/dev/null
  wait "$worker"
done
for model in "$root"/root/models/*/config.json; do
  model=$(basename "$(dirname "$model")")
  run llorch-checkpoints --model "/models/$model" >"$root/try/checkpoints" || { cat "$root/try/checkpoints" >&2; exit 1; }
  echo "checkpoints of $model: $(tail -1 "$root/try/checkpoints")"
done

if [ $has_children = yes ]; then
  story=$(run llorch run --temp 0 -n 24 "Once upon a time")
  [ -n "$story" ]
  echo "llorch run: $story"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=hub.test -addext subjectAltName=DNS:hub.test \
    -keyout "$root/try/key.pem" -out "$root/root/etc/ca.pem" 2>/dev/null
  cp "$source_dir/models/builtin/stories.gguf" "$root/try/story.gguf"
  cat >"$root/try/hub.py" <<'PYTHON'
import http.server, os, ssl, sys
os.chdir(sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
open('hub.port', 'w').write(str(server.server_port))
server.serve_forever()
PYTHON
  python3 "$root/try/hub.py" "$root/try" "$root/root/etc/ca.pem" >/dev/null 2>&1 &
  until_true test -s "$root/try/hub.port"
  run llorch-pool models download "https://hub.test:$(cat "$root/try/hub.port")/story.gguf" --id story
  cmp "$root/try/story.gguf" "$(find "$root/root/home" -name story.gguf)"
  run llorch-pool serve --port 0 >"$root/try/manager.log" 2>&1 &
  until_true run llorch-pool health
  run llorch-pool worker spawn cpu --model story
  story=$(run llorch run --pool --model story "Once upon a time")
  [ -n "$story" ]
  echo "the pool's worker: ${story:0:100}…"
  run llorch-pool stop
fi
echo "$folder: tried with nothing but glibc 2.31"
