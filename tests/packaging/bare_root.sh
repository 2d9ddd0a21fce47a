# A bare Debian in a folder, for tests of packages; read by them with `.`, not run. As root, with apt's mirror of this machine.
#   make_bare_root FOLDER SUITE [PACKAGE,…]   by debootstrap where it is not there yet
#   inside FOLDER COMMAND…                    in it, with nothing of this machine's environment
#   inside_alone FOLDER COMMAND…              the same with a loopback of its own, so that ports of this machine do not matter
#   release_bare_root FOLDER                  unmounts what make_bare_root mounted
#   package_to_try [FILE]                     the package to be tried: this one, or that of $LLORCH_TEST_PACKAGES; else the test is skipped
# skip_unless_root says why a test cannot run here and ends it with 77, which CTest shows as skipped.

skip_unless_root() {
  if [ "$(id -u)" -ne 0 ]; then echo "SKIPPED: only root can make a bare Debian and install in it" >&2; exit 77; fi
  command -v debootstrap > /dev/null || { echo "SKIPPED: debootstrap is not here: apt install debootstrap" >&2; exit 77; }
}

package_to_try() {
  if [ -n "${1:-}" ]; then realpath "$1"; return; fi
  [ -n "${LLORCH_TEST_PACKAGES:-}" ] || { echo "SKIPPED: LLORCH_TEST_PACKAGES names no folder that make package made" >&2; exit 77; }
  local found
  found=$(find "$LLORCH_TEST_PACKAGES" -name "llorch_*_$(dpkg --print-architecture).deb" | head -1)
  [ -n "$found" ] || { echo "no llorch_*.deb in $LLORCH_TEST_PACKAGES" >&2; exit 1; }
  realpath "$found"
}

# Where this machine's own packages come from.
mirror_of_apt() {
  apt-get indextargets --format '$(SITE)' "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" 'Created-By: Packages' | head -1
}

inside() {
  local root=$1
  shift
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

inside_alone() {
  local root=$1
  shift
  unshare --net sh -ec 'ip link set lo up && exec "$@"' sh \
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"
}

make_bare_root() {
  local root=$1 suite=$2 more=${3:-} mirror log
  mirror=$(mirror_of_apt)
  log=$root.log
  if [ ! -x "$root/usr/bin/apt-get" ]; then
    debootstrap --variant=minbase ${more:+--include="$more"} "$suite" "$root" "$mirror" > "$log" 2>&1 ||
      { tail -5 "$log" >&2; echo "bare_root: $suite cannot be had from $mirror" >&2; return 1; }
    rm -f "$log"
    cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
    cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2> /dev/null || true
  fi
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
  mountpoint -q "$root/dev" || mount --bind /dev "$root/dev"
}

release_bare_root() {
  local place
  for place in proc dev; do umount "$1/$place" 2> /dev/null || true; done
}
