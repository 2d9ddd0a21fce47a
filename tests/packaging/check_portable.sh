#!/usr/bin/env bash
# Whether programs made by scripts/build_portable.sh need nothing but Linux and glibc >= 2.31:
#   check_portable.sh DIR/<architecture> …
# What they name is read from the files; they are run where this machine can: for x86-64 with its own glibc and, where
# LLORCH_SYSROOT names one (else the newest of the cache), with glibc 2.31; for ARM64 by qemu-aarch64-static, likewise.
# Without a folder those of $LLORCH_PORTABLE_DIR are checked. Exit code 77: there is none.
set -euo pipefail
folders=("$@")
if [ ${#folders[@]} -eq 0 ]; then
  if [ -z "${LLORCH_PORTABLE_DIR:-}" ]; then
    echo "SKIPPED: LLORCH_PORTABLE_DIR names no folder that scripts/build_portable.sh made" >&2
    exit 77
  fi
  folders=("$LLORCH_PORTABLE_DIR"/*/manifest.json)
  folders=("${folders[@]%/manifest.json}")
fi
wrong=0
complain() { echo "check_portable: $*" >&2; wrong=1; }

# One file: what it is for, what it wants of a machine.
check_file() {
  local file=$1 machine=$2 interpreter=$3 header dynamic needed version
  header=$(readelf -hlW "$file")
  grep -q "Machine: .*$machine" <<<"$header" || complain "$file is not for $machine"
  grep -qF "Requesting program interpreter: $interpreter]" <<<"$header" || complain "$file is not started by $interpreter"
  dynamic=$(readelf -dW "$file")
  if grep -qE '\((RPATH|RUNPATH)\)' <<<"$dynamic"; then complain "$file looks for libraries in a folder of its own"; fi
  for needed in $(sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' <<<"$dynamic"); do
    case "$needed" in
      libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | libresolv.so.2 | "${interpreter##*/}") ;;
      *) complain "$file needs $needed, which is not glibc's" ;;
    esac
  done
  for version in $(readelf -VW "$file" | sed -nE 's/.*Name: ([A-Z]+_[0-9.]+) .*/\1/p' | sort -u); do
    [ "$(printf '%s\n' GLIBC_2.31 "$version" | sort -V | tail -1)" = GLIBC_2.31 ] || complain "$file needs $version"
  done
}

cache=${LLORCH_PORTABLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llorch-portable}
for folder in "${folders[@]}"; do
  sysroot=${LLORCH_SYSROOT:-$(find "$cache" -maxdepth 1 -name "${folder##*/}-*" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -1 | cut -d' ' -f2-)}
  machine=$(sed -nE 's/.*"machine": "(.*)".*/\1/p' "$folder/manifest.json")
  runs=()
  case "$machine" in
    x86_64)
      elf_machine=X86-64 interpreter=/lib64/ld-linux-x86-64.so.2
      if [ "$(uname -m)" = x86_64 ]; then runs+=("env"); fi
      old=$sysroot/lib/x86_64-linux-gnu
      if [ -x "$old/ld-2.31.so" ]; then runs+=("$old/ld-2.31.so --library-path $old"); fi
      ;;
    aarch64)
      elf_machine=AArch64 interpreter=/lib/ld-linux-aarch64.so.1
      if command -v qemu-aarch64-static >/dev/null && [ -e "$sysroot$interpreter" ]; then
        runs+=("qemu-aarch64-static -L $sysroot")
      elif [ "$(uname -m)" = aarch64 ]; then runs+=("env"); fi
      ;;
    *) complain "$folder/manifest.json names no machine that is known here"; continue ;;
  esac
  count=0
  while read -r name hash bytes; do
    file=$folder/bin/$name
    [ "$(sha256sum <"$file" | cut -d' ' -f1) $(stat -c %s "$file")" = "$hash $bytes" ] || complain "$file is not what the manifest says"
    check_file "$file" "$elf_machine" "$interpreter"
    for run in ${runs[@]+"${runs[@]}"}; do
      # shellcheck disable=SC2086  # a command and its options
      said=$($run "$file" --version 2>&1) || complain "$run $file --version: ${said%%$'\n'*}"
    done
    printf '%10d  %s\n' "$bytes" "$file"
    count=$((count + 1))
  done < <(sed -nE 's/.*"name": "([^"]*)", "sha256": "([0-9a-f]{64})", "bytes": ([0-9]+).*/\1 \2 \3/p' "$folder/manifest.json")
  [ "$count" -gt 0 ] && [ "$count" -eq "$(find "$folder/bin" -type f | wc -l)" ] ||
    complain "$folder has other programs than its manifest"
  [ "$wrong" -ne 0 ] || echo "$folder: $count programs for $machine need nothing but glibc >= 2.31; each ran in ${#runs[@]} way(s) here"
done
exit $wrong
