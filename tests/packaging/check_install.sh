#!/usr/bin/env bash
# What scripts/install.sh puts where, and that what it makes is good: check_install.sh SOURCE_DIR BIN_DIR
set -euo pipefail
source_dir=$1
bin=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_install: $*" >&2; exit 1; }

"$source_dir/scripts/install.sh" "$bin" --prefix /opt/x --destdir "$work/root" > "$work/said"
grep -q "programs in /opt/x/bin below" "$work/said" || fail "said: $(cat "$work/said")"
to=$work/root/opt/x
[ "$(find "$work/root" -mindepth 1 -maxdepth 1)" = "$work/root/opt" ] || fail "files outside of the prefix"

# The installed program runs, and finds the others beside it.
LLORCH_HOME=$work/home "$to/bin/llorch" doctor --json | grep -q '"name":"programs","state":"ok"' || fail "the programs are not together"

# A page for each program, which groff reads without a word.
for program in "$to"/bin/*; do
  page=$to/share/man/man1/${program##*/}.1.gz
  [ -L "$program" ] || [ -f "$page" ] || fail "${program##*/} has no manual page"
done
gzip -dc "$to/share/man/man1/llorch.1.gz" | grep -q '^\.SS "llorch jobs submit"' || fail "llorch(1) lacks commands"
gzip -dc "$to/share/man/man1/llorch-pool.1.gz" | grep -q '^\.SS "llorch\\-pool models download"' || fail "llorch-pool(1) lacks commands"
if command -v groff > /dev/null; then
  for page in "$to"/share/man/man1/*.gz; do
    said=$(gzip -dc "$page" | groff -K utf8 -man -Tutf8 -ww -rLL=120n 2>&1 > /dev/null | grep -v "can't break line\|cannot adjust line\|cannot break line" || true)
    [ -z "$said" ] || fail "${page##*/}: $said"
  done
fi
for program in llorch llorch-pool; do
  bash -n "$to/share/bash-completion/completions/$program" || fail "$program's completion for bash is broken"
  grep -q "complete -o default -F _${program//-/_} $program\$" "$to/share/bash-completion/completions/$program" || fail "$program is not completed"
  grep -q "^complete -c $program " "$to/share/fish/vendor_completions.d/$program.fish" || fail "$program's completion for fish is of another program"
done
grep -q 'matrix' "$to/share/zsh/vendor-completions/_llorch" || fail "the completion for zsh lacks commands"
grep -q "models download') choices" "$to/share/zsh/vendor-completions/_llorch-pool" || fail "llorch-pool's completion for zsh lacks commands"
for kind in system user; do
  for program in pool-managerd orchestratord; do
    grep -q "^ExecStart=/opt/x/bin/$program" "$to/lib/systemd/$kind/$program.service" || fail "the $kind unit of $program names another program"
  done
done

# The library for C, where it was built: a program compiles against what was installed, and runs.
if [ -e "$bin/../lib/libllorch_worker.so" ]; then
  printf '#include <ffi/worker_ffi.h>\nint main(void) { int error = 0; return cuda_init(-2, &error) == 0 \\\n && error == CUDA_ERROR_INVALID_DEVICE ? 0 : 1; }\n' > "$work/program.c"
  cc -I"$to/include/llorch" "$work/program.c" -L"$to/lib" -lllorch_worker -o "$work/program" || fail "no program compiles against the library"
  LD_LIBRARY_PATH=$to/lib "$work/program" || fail "a program with the library does not run"
fi

# It must be able to fail: a program that is not there.
mkdir "$work/empty"
if "$source_dir/scripts/install.sh" "$work/empty" --destdir "$work/none" 2> "$work/said"; then fail "nothing was installed, and nobody said so"; fi
grep -q "llorch is not there" "$work/said" || fail "said: $(cat "$work/said")"
[ ! -e "$work/none" ] || fail "half an installation was left"

# The package, where this is Debian: its files, its scripts, what it needs. Not compressed: the programs here have their symbols.
if ! command -v dpkg-deb > /dev/null || ! command -v dpkg-shlibdeps > /dev/null; then
  echo "installed; no dpkg here, so no package was made"
  exit 0
fi
LLORCH_DEB_COMPRESSION=none LLORCH_TAR_LEVEL=1 "$source_dir/scripts/package.sh" "$bin" "$work/packages" > "$work/said" || fail "package.sh: $(cat "$work/said")"
deb=$(echo "$work"/packages/llorch_*.deb)
dpkg-deb --field "$deb" Depends | grep -q libc6 || fail "the package needs no libc6"
dpkg-deb --contents "$deb" > "$work/contents"
for path in ./usr/bin/llorch ./usr/bin/orchestratord ./usr/share/man/man1/llorch.1.gz ./usr/lib/systemd/system/pool-managerd.service ./usr/lib/systemd/system/orchestratord.service \
  ./etc/llorch/config.toml ./usr/share/doc/llorch/copyright; do
  grep -q " $path\$" "$work/contents" || fail "the package lacks $path"
done
if grep -q 'fake-worker\|hub-simulator' "$work/contents"; then fail "a test's program is in the package"; fi
if grep -qv ' root/root ' "$work/contents"; then fail "a file of the package is not root's"; fi
dpkg-deb --ctrl-tarfile "$deb" | tar -tf - > "$work/contents"  # grep -q would leave before tar has said everything
grep -q '^./postinst$' "$work/contents" || fail "the package makes no user"
tar -tzf "$work"/packages/llorch-*.tar.gz > "$work/contents"
grep -q '/bin/llorch$' "$work/contents" || fail "the tarball lacks bin/llorch"
echo "installed, packaged: $(basename "$deb")"
