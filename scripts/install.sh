#!/usr/bin/env bash
# Installs what was built: programs, the library for C, manual pages, completions, systemd's units, documents.
#   scripts/install.sh BIN [--prefix DIR] [--destdir DIR]
#     BIN        the folder with the programs: build/release/bin
#     --prefix   where they will be found (/usr/local)
#     --destdir  stands before every path that is written, for packages (nothing)
# Manual pages and completions come from the programs themselves. Those for another machine are run by what LLORCH_RUN says:
# LLORCH_RUN="qemu-aarch64-static -L FOLDER".
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { echo "usage: scripts/install.sh BIN [--prefix DIR] [--destdir DIR]" >&2; exit 2; }

bin="" prefix=/usr/local destdir=""
while [ $# -gt 0 ]; do
  case "$1" in
    --prefix | --destdir) [ $# -ge 2 ] || usage; declare "${1#--}=$2"; shift ;;
    -*) usage ;;
    *) [ -z "$bin" ] || usage; bin=$1 ;;
  esac
  shift
done
[ -n "$bin" ] && [ "${prefix#/}" != "$prefix" ] || usage
programs=(llorch llorch-pool llorch-cpud pool-managerd orchestratord llorch-inspect llorch-tokenize llorch-convert llorch-bench
  llorch-checkpoints llorch-perplexity)
for program in "${programs[@]}"; do
  [ -x "$bin/$program" ] || { echo "install.sh: $bin/$program is not there; \`make\` builds it" >&2; exit 1; }
done
[ -x "$bin/worker-orcd" ] && programs+=(worker-orcd)
to=$destdir$prefix
# What a user's own settings say must not change what is made here.
unset LLORCH_CONFIG LLORCH_POOL LLORCH_ORCHESTRATOR LLORCH_TOKEN
run() { ${LLORCH_RUN:-} "$bin/$1" "${@:2}"; }
version=$(run llorch --version | cut -d' ' -f2)

install -d "$to/bin"
for program in "${programs[@]}"; do install -m 0755 "$bin/$program" "$to/bin/$program"; done
if [ -x "$bin/worker-orcd" ]; then ln -sfn worker-orcd "$to/bin/llorch-cudad"; fi
if [ -f "$bin/libhwy.so.1" ]; then install -m 0644 "$bin/libhwy.so.1" "$to/bin/"; fi

# The library for programs in C, where it was built: beside the programs' folder.
library=$(find "$bin/../lib" -maxdepth 1 -type f -name 'libllorch_worker.so.*' 2> /dev/null | head -1)
if [ -n "$library" ]; then
  file=${library##*/} # libllorch_worker.so.0.1.0
  release=${file#libllorch_worker.so.}
  install -d "$to/lib" "$to/include/llorch/ffi"
  install -m 0644 "$library" "$to/lib/$file"
  ln -sfn "$file" "$to/lib/libllorch_worker.so.${release%%.*}"
  ln -sfn "libllorch_worker.so.${release%%.*}" "$to/lib/libllorch_worker.so"
  install -m 0644 src/ffi/worker_ffi.h "$to/include/llorch/ffi/"
fi

# Manual pages: of llorch and llorch-pool from their tables of commands, of the others from what --help says.
man=$to/share/man/man1
install -d "$man"
page_from_help() {
  local program=$1
  run "$program" --help | awk -v name="$program" -v version="$version" '
    { gsub(/\\/, "\\e"); gsub(/-/, "\\-"); lines[NR] = $0 }
    END {
      about = lines[1]; sub(/\.$/, "", about)
      title = name; gsub(/-/, "\\-", title)
      print ".TH " toupper(title) " 1 \"\" \"llama\\-orch " version "\" \"User Commands\""
      print ".SH NAME"; print title " \\- " about
      print ".SH DESCRIPTION"; print ".nf"
      for (i = 1; i <= NR; i++) print (lines[i] ~ /^[.\x27]/ ? "\\&" : "") lines[i]
      print ".fi"
    }'
}
for program in "${programs[@]}"; do
  case "$program" in
    llorch | llorch-pool) run "$program" manual ;;
    *) page_from_help "$program" ;;
  esac | gzip -9n > "$man/$program.1.gz"
done

install -d "$to/share/bash-completion/completions" "$to/share/zsh/vendor-completions" "$to/share/fish/vendor_completions.d"
for program in llorch llorch-pool; do
  run "$program" completion bash > "$to/share/bash-completion/completions/$program"
  run "$program" completion zsh > "$to/share/zsh/vendor-completions/_$program"
  run "$program" completion fish > "$to/share/fish/vendor_completions.d/$program.fish"
done

# The units name the programs where they now are.
for kind in system user; do
  install -d "$to/lib/systemd/$kind"
  for unit in packaging/systemd/"$kind"/*.service; do
    sed -E "s#^ExecStart=\S*/#ExecStart=$prefix/bin/#" "$unit" > "$to/lib/systemd/$kind/${unit##*/}"
  done
done

doc=$to/share/doc/llorch
install -d "$doc/examples"
install -m 0644 README.md CHANGELOG.md LICENSE docs/RUNBOOK.md docs/PRODUCTION_CHECKLIST.md docs/coming_from.md docs/api_worker.md docs/api_pool.md \
  docs/api_orchestrator.md "$doc/"
install -m 0644 packaging/README.md "$doc/SERVICES.md"
install -m 0644 packaging/config.toml "$doc/examples/config.toml"
echo "${#programs[@]} programs in $prefix/bin${destdir:+ below $destdir}, manual pages, completions for bash, zsh and fish, units, documents"
