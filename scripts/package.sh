#!/usr/bin/env bash
# Makes packages of what was built:
#   scripts/package.sh BIN [OUT]
#     OUT/llorch_VERSION_ARCH.deb              for Debian and Ubuntu: this machine's release
#     OUT/llorch-worker-cuda_VERSION_ARCH.deb  where BIN has worker-orcd
#     OUT/llorch-VERSION-linux-MACHINE.tar.gz  the same files below bin, share and lib
# OUT is build/packages unless told. Programs are stripped. Needs dpkg-deb and dpkg-shlibdeps (Debian: dpkg-dev).
# BIN of scripts/build_portable.sh (with its manifest.json beside it) makes packages that ask for glibc >= 2.31 and nothing else, also
# for another machine; LLORCH_RUN then says what runs its programs here, as in install.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:?"usage: scripts/package.sh BIN [OUT]"}")
out=$(realpath -m "${2:-build/packages}")
for tool in dpkg-deb dpkg-shlibdeps strip; do
  command -v "$tool" > /dev/null || { echo "package.sh: $tool is not here: apt install dpkg-dev binutils" >&2; exit 1; }
done
version=$(${LLORCH_RUN:-} "$bin/llorch" --version | cut -d' ' -f2)
machine=$(uname -m) architecture=$(dpkg --print-architecture) is_portable=no
if [ -f "$bin/../manifest.json" ]; then
  is_portable=yes
  machine=$(sed -nE 's/.*"machine": "(.*)".*/\1/p' "$bin/../manifest.json")
  case "$machine" in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) echo "package.sh: $bin/../manifest.json is for '$machine', which no package is made for" >&2; exit 1 ;;
  esac
fi
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# Programs are stripped before they are installed: the manual pages come from the same files. Portable ones are stripped already.
mkdir "$work/bin"
for program in "$bin"/*; do
  case "${program##*/}" in
    llorch-fake-worker | llorch-hub-simulator | llorch-cudad) continue ;;  # a test's, and a link
  esac
  [ -f "$program" ] && [ -x "$program" ] || continue
  if [ $is_portable = yes ]; then cp "$program" "$work/bin/"; else strip -o "$work/bin/${program##*/}" "$program"; fi
done
cp "$bin"/libhwy.so.1 "$work/bin/" 2> /dev/null || true
mkdir "$work/lib"
for library in "$bin"/../lib/libllorch_worker.so.*.*; do
  if [ -f "$library" ]; then strip --strip-unneeded -o "$work/lib/${library##*/}" "$library"; fi
done

tree=$work/llorch
scripts/install.sh "$work/bin" --prefix /usr --destdir "$tree"
install -D -m 0644 packaging/config.toml "$tree/etc/llorch/config.toml"
install -D -m 0644 LICENSE "$tree/usr/share/doc/llorch/copyright"
gzip -9n "$tree/usr/share/doc/llorch/CHANGELOG.md"

# The GPU's worker is a package of its own.
if [ -e "$tree/usr/bin/worker-orcd" ]; then
  cuda=$work/llorch-worker-cuda
  mkdir -p "$cuda/usr/bin" "$cuda/usr/share/man/man1" "$cuda/usr/share/doc/llorch-worker-cuda"
  mv "$tree"/usr/bin/{worker-orcd,llorch-cudad} "$cuda/usr/bin/"
  # The library holds the same kernels; without CUDA it stays with the rest.
  if [ -e "$tree/usr/lib/libllorch_worker.so" ]; then
    mkdir -p "$cuda/usr/lib"
    mv "$tree"/usr/lib/libllorch_worker.so* "$cuda/usr/lib/"
    mv "$tree/usr/include" "$cuda/usr/"
  fi
  mv "$tree/usr/share/man/man1/worker-orcd.1.gz" "$cuda/usr/share/man/man1/"
  cp LICENSE "$cuda/usr/share/doc/llorch-worker-cuda/copyright"
elif [ $is_portable = no ]; then
  echo "package.sh: NO llorch-worker-cuda: $bin has no worker-orcd; it is built where nvcc 13 is found (on the PATH or in /usr/local/cuda/bin)" >&2
fi

# The packages of the libraries that the programs in a tree name.
libraries() {
  if [ $is_portable = yes ]; then echo "libc6 (>= 2.31)"; return; fi
  mkdir -p "$work/shlibs/debian"
  printf 'Source: llorch\n\nPackage: llorch\nArchitecture: any\nDescription: none\n' > "$work/shlibs/debian/control"
  # CUDA's own libraries come with its toolkit or the driver, from no package of this machine.
  (cd "$work/shlibs" && dpkg-shlibdeps --ignore-missing-info -O "$@" 2> /dev/null) | sed 's/^shlibs:Depends=//'
}

# name, tree, depends, recommends, short description; the long one on standard input.
build_package() {
  local name=$1 folder=$2 depends=$3 recommends=$4 short=$5
  mkdir -p "$folder/DEBIAN"
  {
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nSection: net\nPriority: optional\n' "$name" "$version" "$architecture"
    printf 'Maintainer: llama-orch <llorch@localhost>\nInstalled-Size: %s\nDepends: %s\n' "$(du -sk "$folder" | cut -f1)" "$depends"
    if [ -n "$recommends" ]; then printf 'Recommends: %s\n' "$recommends"; fi
    printf 'Description: %s\n' "$short"
    sed 's/^/ /'
  } > "$folder/DEBIAN/control"
  (cd "$folder" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) > "$folder/DEBIAN/md5sums"
  dpkg-deb --root-owner-group -Z"${LLORCH_DEB_COMPRESSION:-xz}" --build "$folder" "$out/${name}_${version}_$architecture.deb" > /dev/null
  echo "$out/${name}_${version}_$architecture.deb"
}

mkdir -p "$tree/DEBIAN"
echo /etc/llorch/config.toml > "$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 0755 "packaging/debian/$script" "$tree/DEBIAN/$script"; done
mapfile -t files < <(find "$tree/usr/bin" "$tree/usr/lib" -type f \( -path '*/bin/*' -o -name 'libllorch_worker.so*' \))
build_package llorch "$tree" "$(libraries "${files[@]}"), passwd" "openssh-client, ca-certificates" \
  "run language models on every machine you own, as one" << 'TEXT'
Worker, pool and orchestrator: an OpenAI-compatible address for the models of
all your machines. With systemd units, which are not started by themselves:
systemctl enable --now pool-managerd orchestratord.
TEXT
if [ -d "$work/llorch-worker-cuda" ]; then
  build_package llorch-worker-cuda "$work/llorch-worker-cuda" "llorch (= $version), $(libraries "$work"/llorch-worker-cuda/usr/bin/worker-orcd)" "" \
    "the worker of llorch for NVIDIA's cards" << 'TEXT'
One process, one model, one card. Needs NVIDIA's driver for CUDA 13.
TEXT
fi

# The tarball: unpacked anywhere, bin/llorch runs.
name=llorch-$version-linux-$machine
mkdir "$work/$name"
cp -a "$tree/usr/." "$work/$name/"
if [ -d "$work/llorch-worker-cuda" ]; then cp -a "$work/llorch-worker-cuda/usr/." "$work/$name/"; fi
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip "-${LLORCH_TAR_LEVEL:-9}n" > "$out/$name.tar.gz"
echo "$out/$name.tar.gz"
