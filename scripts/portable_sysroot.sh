#!/usr/bin/env bash
# Makes the folder against which portable programs are built, and prints its path:
#   scripts/portable_sysroot.sh x86-64|arm64 [--update]
# It holds the headers and link libraries of glibc 2.31 and of Linux, and our other libraries as static ones only. All of it
# comes from the distribution that this machine itself installs from: packages, unpacked without being installed, and the
# sources of those that it has no fit static library of. The machine's own packages and architectures stay as they are.
# It is made once and kept in a cache; --update makes it anew from the newest packages.
#   LLORCH_PORTABLE_CACHE    the cache (~/.cache/llorch-portable)
#   LLORCH_PORTABLE_SOURCES  an apt sources file (deb822) in place of this machine's, for a mirror without Debian 11
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "portable_sysroot: $*" >&2; exit 1; }

arch=${1:-}
case "$arch" in
  x86-64) debian_arch=amd64 triple=x86_64-linux-gnu ;;
  arm64) debian_arch=arm64 triple=aarch64-linux-gnu ;;
  *) fail "usage: scripts/portable_sysroot.sh x86-64|arm64 [--update]" ;;
esac

. /etc/os-release
case "${ID:-}" in
  debian) old_release=bullseye ;;
  ubuntu) old_release=focal ;;
  *) fail "needs Debian or Ubuntu, found '${ID:-unknown}'" ;;
esac
release=${VERSION_CODENAME:?}

# From the release with glibc 2.31, from this release, and from this release's sources.
old_packages=(libc6 libc6-dev)
packages=(linux-libc-dev libssl-dev libpcre2-dev libutf8proc-dev libsqlite3-dev libseccomp-dev zlib1g-dev
          libedit-dev libncurses-dev libbsd-dev libmd-dev libhwy-dev libcli11-dev libtomlplusplus-dev)
sources=(fmtlib spdlog highway curl libarchive)
boost_versions=(1.81 1.83 1.88)  # as in setup.sh; headers only

cache=${LLORCH_PORTABLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llorch-portable}
key=$({ cat "$0" "$root/cmake/portable_toolchain.cmake" "$root/cmake/portable_glibc.c" ${LLORCH_PORTABLE_SOURCES:+"$LLORCH_PORTABLE_SOURCES"}
        echo "$release"; "$triple-g++" --version; } | sha256sum | cut -c1-12)
sysroot=$cache/$arch-$key
if [ -d "$sysroot" ] && [ "${2:-}" != --update ]; then echo "$sysroot"; exit 0; fi

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ -d "$sysroot" ] && [ "${2:-}" != --update ]; then echo "$sysroot"; exit 0; fi
work=$cache/making  # one name, so that ccache knows the same source again
trap 'rm -rf "$work"' EXIT
rm -rf "$work"
new=$work/sysroot
mkdir -p "$new" "$work"/apt/{lists/partial,archives/partial} "$work"/{debs,src}
touch "$work/apt/status"
log=$work/log
step() { echo "portable_sysroot: $1" >&2; shift; "$@" >"$log" 2>&1 || { tail -40 "$log" >&2; fail "'$*' failed; see above"; }; }

# This machine's sources of its release, once as they are with sources, once for the release with glibc 2.31. Third parties'
# sources name other suites and are left out.
write_sources() {
  if [ -n "${LLORCH_PORTABLE_SOURCES:-}" ]; then cp "$LLORCH_PORTABLE_SOURCES" "$1"; return; fi
  python3 - "$release" "$old_release" >"$1" <<'PYTHON'
import glob, re, sys
release, old = sys.argv[1:]
found = []
for name in glob.glob('/etc/apt/sources.list.d/*.sources'):
    for stanza in re.split(r'\n\s*\n', open(name).read()):
        fields = dict(re.findall(r'^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t]+.*)*)', stanza, re.M))
        fields = {k.lower(): v for k, v in fields.items()}
        if 'deb' in fields.get('types', '').split() and fields.get('enabled', 'yes') != 'no':
            found.append((fields['uris'], fields['suites'].split(), fields.get('components', ''), fields.get('signed-by', '')))
for name in ['/etc/apt/sources.list'] + glob.glob('/etc/apt/sources.list.d/*.list'):
    try: lines = open(name).read().splitlines()
    except FileNotFoundError: continue
    for line in lines:
        match = re.match(r'deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+(.*?)\s*(?:#.*)?$', line)
        if match:
            options = dict(o.split('=', 1) for o in (match[1] or '').split() if '=' in o)
            found.append((match[2], [match[3]], match[4], options.get('signed-by', '')))
for uris, suites, components, signed_by in found:
    for types, wanted in (('deb deb-src', [s for s in suites if s in (release, release + '-updates', release + '-security')]),
                          ('deb', [old] if release in suites else [])):
        if wanted:
            print(f'Types: {types}\nURIs: {uris}\nSuites: {" ".join(wanted)}\nComponents: {components}')
            print(f'Signed-By: {signed_by}\n' if signed_by else '')
PYTHON
}
write_sources "$work/apt/llorch.sources"
grep -q . "$work/apt/llorch.sources" || fail "no apt source of $release found; name a file with LLORCH_PORTABLE_SOURCES"

apt_options=(-qq -o "Dir::State=$work/apt" -o "Dir::State::lists=$work/apt/lists" -o "Dir::State::status=$work/apt/status"
             -o "Dir::Cache=$work/apt" -o "Dir::Etc::sourcelist=$work/apt/llorch.sources" -o Dir::Etc::sourceparts=-
             -o Dir::Etc::preferences=- -o Dir::Etc::preferencesparts=- -o APT::Sandbox::User=root
             -o "APT::Architecture=$debian_arch" -o "APT::Architectures=$debian_arch" -o Acquire::Languages=none)
step "reading the package lists of $release and $old_release for $debian_arch" apt-get "${apt_options[@]}" update
[[ $(apt-cache "${apt_options[@]}" madison libc6) == *" 2.31-"* ]] ||
  fail "the mirror has no libc6 2.31 of $old_release; name a mirror that has with LLORCH_PORTABLE_SOURCES"
for version in "${boost_versions[@]}"; do
  # `apt-cache show` also knows packages that others only speak of.
  if [ -n "$(apt-cache "${apt_options[@]}" madison "libboost$version-dev")" ]; then packages+=("libboost$version-dev"); break; fi
done

cd "$work/debs"
step "fetching ${#packages[@]} packages of $release and glibc of $old_release" \
  apt-get "${apt_options[@]}" download "${packages[@]}" "${old_packages[@]/%//$old_release}"
unpack() {
  dpkg-deb --show --showformat='${Package} ${Version}\n' "$1" >>"$new/PACKAGES"
  dpkg-deb --extract "$1" "$new"
}
mkdir libc
mv libc6*.deb libc/
for deb in *.deb; do unpack "$deb"; done
find "$new/usr/lib" -name '*.so' -delete  # what is here beside glibc is static
for deb in libc/*.deb; do unpack "$deb"; done
# Links that were meant for a whole system lead into the folder.
while IFS= read -r link; do ln -sfn --relative "$new$(readlink "$link")" "$link"; done < <(find "$new" -type l -lname '/*')
find "$new/usr/share/doc" ! -type d ! -name copyright -delete  # whose work it is stays beside it
rm -rf "$new"/usr/share/man "$new/usr/lib/$triple/cmake"/{boost*,Boost*}

# What newer compilers' own libraries expect of the C library joins the part of it that is always linked statically.
step "adding what gcc's libraries want of a newer glibc" "$triple-gcc" -nostdinc -isystem "$("$triple-gcc" -print-file-name=include)" \
  -isystem "$new/usr/include/$triple" -isystem "$new/usr/include" -O2 -fPIC -Wall -Wextra -Werror \
  -c "$root/cmake/portable_glibc.c" -o "$work/portable_glibc.o"
ar r "$new/usr/lib/$triple/libc_nonshared.a" "$work/portable_glibc.o" 2>/dev/null

options_of() {
  case "$1" in
    fmtlib) echo -DFMT_TEST=OFF -DFMT_DOC=OFF ;;
    spdlog) echo -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF -DSPDLOG_BUILD_TESTS=OFF ;;
    highway) echo -DBUILD_TESTING=OFF -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF ;;
    curl) echo -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON -DCURL_USE_LIBSSH2=OFF \
      -DCURL_USE_LIBPSL=OFF -DCURL_USE_GSSAPI=OFF -DUSE_LIBIDN2=OFF -DUSE_NGHTTP2=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF \
      -DCURL_ZLIB=OFF -DENABLE_MANUAL=OFF -DENABLE_THREADED_RESOLVER=ON \
      -DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt -DCURL_CA_PATH=/etc/ssl/certs ;;
    libarchive) echo -DENABLE_TEST=OFF -DENABLE_{TAR,CPIO,CAT,OPENSSL,NETTLE,MBEDTLS,LIBB2,LZMA,ZSTD,BZip2,LZ4,LZO}=OFF \
      -DENABLE_{LIBXML2,EXPAT,PCREPOSIX,LibGCC,ACL,XATTR,WERROR}=OFF ;;
  esac
}
# libarchive makes its shared library too unless one names the other, and then installs by hand.
build_and_install() {
  local build=("$1/llorch_build" ${LLORCH_JOBS:+-j "$LLORCH_JOBS"})
  if [ "$1" = libarchive ]; then
    cmake --build "${build[@]}" --target archive_static &&
      install -m 0644 -t "$new/usr/lib/$triple" "$1/llorch_build/libarchive/libarchive.a" &&
      install -m 0644 -t "$new/usr/include" "$1"/libarchive/archive{,_entry}.h
  else
    cmake --build "${build[@]}" && DESTDIR=$new cmake --install "$1/llorch_build"
  fi
}
launcher=(-DCMAKE_C_COMPILER_LAUNCHER="$(command -v ccache)" -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache)")
build_source() {
  # shellcheck disable=SC2046  # the options are words without spaces
  cd "$work/src" &&
    apt-get "${apt_options[@]}" source --download-only "$1" &&
    dpkg-source --no-check --extract "$1"_*.dsc "$1" &&
    cmake -G Ninja -S "$1" -B "$1/llorch_build" "${launcher[@]}" --toolchain "$root/cmake/portable_toolchain.cmake" \
      -DCMAKE_BUILD_TYPE=Release -DLLORCH_SYSROOT="$new" -DLLORCH_TRIPLE="$triple" -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
      -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="lib/$triple" $(options_of "$1") &&
    build_and_install "$1" &&
    install -D -m 0644 "$1/debian/copyright" "$new/usr/share/doc/$1/copyright" &&
    dpkg-parsechangelog -l "$1/debian/changelog" -S Version | sed "s/^/$1 /" >>"$new/PACKAGES"
}
for source in "${sources[@]}"; do step "building $source from its source" build_source "$source"; done

rm -rf "$sysroot"
mv "$new" "$sysroot"
echo "$sysroot"
