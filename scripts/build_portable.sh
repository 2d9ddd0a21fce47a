#!/usr/bin/env bash
# Builds programs that need nothing of a machine but Linux and glibc >= 2.31, and checks that it is so:
#   scripts/build_portable.sh [x86-64|arm64|all] [--out DIR] [--update]
#     DIR/<architecture>/bin/…           every program, stripped (build/dist unless told)
#     DIR/<architecture>/manifest.json   machine, version, and the SHA-256 and bytes of each program
#     DIR/<architecture>/PACKAGES        the libraries inside of them, with their versions; LICENSES: under which terms
#     DIR/packages/…                     a tarball and a Debian package of each (scripts/package.sh), one image of all (scripts/oci_image.py)
#   --update  from the distribution's newest libraries
# The first time it fetches packages and builds libraries (scripts/portable_sysroot.sh); afterwards it needs no network.
set -euo pipefail
start=$PWD
cd "$(dirname "$0")/.."
usage() { echo "usage: scripts/build_portable.sh [x86-64|arm64|all] [--out DIR] [--update]" >&2; exit 2; }

architectures=(x86-64 arm64)
out=build/dist
update=()
while [ $# -gt 0 ]; do
  case "$1" in
    x86-64 | arm64) architectures=("$1") ;;
    all) ;;
    --out) [ $# -ge 2 ] || usage; out=$(cd "$start" && realpath -m "$2"); shift ;;
    --update) update=(--update) ;;
    *) usage ;;
  esac
  shift
done
# What a user's environment adds for builds against this machine's own libraries would end up in programs for others.
unset CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH PKG_CONFIG_PATH

# The lines that name a version are those of remote/install_plan.cc: sorted by name, "SHA-256 name".
write_manifest() {
  local folder=$1 machine=$2 lines name comma=""
  lines=$(cd "$folder/bin" && for name in $(find . -type f -printf '%f\n' | LC_ALL=C sort); do
    echo "$(sha256sum "$name" | cut -d' ' -f1) $name"
  done)
  {
    printf '{\n  "machine": "%s",\n  "glibc_min": "2.31",\n' "$machine"
    printf '  "version": "%s",\n  "files": [' "$(echo "$lines" | sha256sum | cut -c1-16)"
    while read -r hash name; do
      printf '%s\n    {"name": "%s", "sha256": "%s", "bytes": %d}' "$comma" "$name" "$hash" "$(stat -c %s "$folder/bin/$name")"
      comma=,
    done <<<"$lines"
    printf '\n  ]\n}\n'
  } >"$folder/manifest.json"
}

images=()
for architecture in "${architectures[@]}"; do
  scripts/setup.sh "portable-$architecture"
  LLORCH_SYSROOT=$(scripts/portable_sysroot.sh "$architecture" ${update[@]+"${update[@]}"})
  export LLORCH_SYSROOT
  case "$architecture" in
    x86-64) preset=portable machine=x86_64 ;;
    arm64) preset=portable-arm64 machine=aarch64 ;;
  esac
  # A folder that was configured for another sysroot starts anew: what CMake found there would stay.
  grep -qsF "LLORCH_SYSROOT:PATH=$LLORCH_SYSROOT" "build/$preset/CMakeCache.txt" || rm -rf "build/$preset"
  cmake --preset "$preset" >/dev/null
  cmake --build "build/$preset" --target programs ${LLORCH_JOBS:+-j "$LLORCH_JOBS"}
  folder=$out/$architecture
  rm -rf "$folder"
  cmake --install "build/$preset" --prefix "$folder" --component programs --strip >/dev/null
  cp "$LLORCH_SYSROOT/PACKAGES" "$folder/"
  (cd "$LLORCH_SYSROOT/usr/share/doc" && for terms in */copyright; do printf '\n==== %s\n\n' "${terms%/*}" && cat "$terms"; done) >"$folder/LICENSES"
  write_manifest "$folder" "$machine"
  tests/packaging/check_portable.sh "$folder"
  if [ "$machine" = "$(uname -m)" ]; then LLORCH_RUN=""; else LLORCH_RUN="qemu-$machine-static -L $LLORCH_SYSROOT"; fi
  LLORCH_RUN=$LLORCH_RUN scripts/package.sh "$folder/bin" "$out/packages"
  images+=("$folder:$LLORCH_SYSROOT")
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)} scripts/oci_image.py "$out/packages/llorch-oci.tar" "${images[@]}"
