#!/usr/bin/env bash
# Installs the Debian / Ubuntu packages that the build needs and that are not there yet.
#   scripts/setup.sh          compilers, libraries, test tools
#   scripts/setup.sh clang    also clang, clang-tidy and libFuzzer
#   scripts/setup.sh test     also clang-format 14, node and the npm packages that are clients in tests, sshd, shells that
#                             logins may have, and a browser that looks at pages
#   scripts/setup.sh portable-x86-64, portable-arm64   only what builds portable programs for that architecture
#   scripts/setup.sh check-arm64   that, and what runs tests for 64-bit ARM here
# Quick and offline when nothing is missing.
set -euo pipefail

packages=(g++ cmake ninja-build ccache pkg-config python3 git
          libfmt-dev libspdlog-dev libcli11-dev libhwy-dev libssl-dev
          libpcre2-dev libutf8proc-dev libcurl4-openssl-dev libarchive-dev libseccomp-dev libtomlplusplus-dev libedit-dev libsqlite3-dev
          libgtest-dev libgmock-dev libbenchmark-dev)
need_boost=yes
case "${1:-}" in
  clang) packages+=(clang clang-tidy clang-format) ;;
  portable-* | check-arm64)  # the libraries are in a folder of their own
    packages=(g++ cmake ninja-build ccache pkg-config python3 git dpkg-dev)
    need_boost=no
    [ "$1" != check-arm64 ] || { packages+=(libgtest-dev qemu-user); set -- portable-arm64; }
    if [ "$1" != "portable-$(uname -m | sed 's/x86_64/x86-64/; s/aarch64/arm64/')" ]; then
      packages+=("g++-$(sed 's/portable-//; s/x86-64/x86-64-linux-gnu/; s/arm64/aarch64-linux-gnu/' <<<"$1")" qemu-user-static)
    fi
    ;;
esac

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this machine has no dpkg; install by hand: ${packages[*]} and Boost >= 1.81" >&2
  exit 1
fi

# Whether this release has it, as far as its lists are here. `apt-cache show` also knows packages that others only speak of.
release_has() { [ -n "$(apt-cache madison "$1")" ]; }
formatter=clang-format-14  # as scripts/format.sh wants it; Debian 13 has none
browser=chromium  # Ubuntu has no package of that name
lacks() { release_has g++ && ! release_has "$1"; }

missing=()
if [ "${1:-}" = test ]; then
  # Node may come from elsewhere, with npm in it: what counts is that both are there.
  command -v node >/dev/null || missing+=(nodejs)
  command -v npm >/dev/null || missing+=(npm)
  for program in "$formatter" "$browser"; do command -v "$program" >/dev/null || lacks "$program" || missing+=("$program"); done
  packages+=(openssh-client openssh-server iproute2 fish tcsh zsh)
fi
for package in "${packages[@]}"; do is_installed "$package" || missing+=("$package"); done

# Boost's package name carries its version: 1.81 on Debian 12, 1.83 on Ubuntu 24.04.
boost_versions=(1.81 1.83 1.88)
boost=""
for version in "${boost_versions[@]}"; do
  if is_installed "libboost${version}-dev"; then boost="libboost${version}-dev"; fi
done
if [ -z "$boost" ] && [ $need_boost = yes ]; then missing+=(boost); fi

# The SDKs that tests use as clients, exactly as the lock file has them. Without them those tests are skipped, loudly.
install_test_clients() {
  local folder
  folder=$(cd "$(dirname "$0")/.." && pwd)/tests/openai_sdk
  cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed-lock.json" && return
  echo "setup: installing the npm packages of tests/openai_sdk"
  if (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error); then
    cp "$folder/package-lock.json" "$folder/node_modules/.installed-lock.json"
  else
    echo "setup: 'npm ci' failed in tests/openai_sdk; the tests with that client will be skipped" >&2
  fi
}

if [ ${#missing[@]} -eq 0 ]; then
  if [ "${1:-}" = test ]; then install_test_clients; fi
  exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: packages are missing (${missing[*]}); run as root or install sudo" >&2; exit 1; }
  sudo=(sudo)
fi
echo "setup: installing ${missing[*]}"
log=$(mktemp)
run_apt() {
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >"$log" 2>&1 ||
    { cat "$log" >&2; echo "setup: 'apt-get $*' failed; see above, then run this again" >&2; exit 1; }
}
run_apt update
to_install=()
for package in "${missing[@]}"; do
  if [ "$package" = boost ]; then
    for version in "${boost_versions[@]}"; do
      if release_has "libboost${version}-dev"; then package="libboost${version}-dev"; break; fi
    done
  fi
  if [ "$package" = "$formatter" ] && lacks "$formatter"; then
    echo "setup: this release has no $formatter; sources are neither formatted nor checked for it" >&2
    continue
  fi
  if [ "$package" = "$browser" ] && lacks "$browser"; then
    echo "setup: this release has no $browser; the test that looks at the matrix' page will be skipped" >&2
    continue
  fi
  to_install+=("$package")
done
run_apt install -y --no-install-recommends "${to_install[@]}"
rm -f "$log"
if [ "${1:-}" = test ]; then install_test_clients; fi
