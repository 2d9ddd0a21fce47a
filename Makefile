# The two commands a newcomer needs are `make run` and `make test`; the rest is for those who live here.
# Each installs what is missing (Debian's packages), configures, builds and runs; a second call is quick.
CTEST_FLAGS ?= --output-on-failure

.PHONY: run demo test storm setup build install package clean asan tsan clang tidy headers cuda portable fuzz format check check-arm64

run: setup
	@scripts/build.sh release
	@scripts/run.sh build/release/bin

# Three hosts, and an answer that outlives its worker; `make demo PICTURE=docs/demo.svg` also draws it.
demo:
	@scripts/setup.sh test
	@scripts/build.sh release
	@scripts/demo.sh build/release/bin $(PICTURE)

test:
	@scripts/setup.sh test
	@scripts/build.sh dev
	@cd build/dev && ctest -j2 $(CTEST_FLAGS)

# 300 random blows against a fleet of three hosts; `make test` has 60. LLORCH_STORM_SEED=N repeats one.
storm:
	@scripts/setup.sh test
	@scripts/build.sh dev
	@python3 -W ignore tests/fleet_hosts/storm_test.py build/dev/bin --operations 300

setup:
	@scripts/setup.sh

# Programs, manual pages, completions, units: `sudo make install`, `make install PREFIX=$HOME/.local`, `make install DESTDIR=/tmp/x PREFIX=/usr`.
PREFIX ?= /usr/local
install:
	@[ -x build/release/bin/llorch ] || { scripts/setup.sh && scripts/build.sh release programs; }
	@scripts/install.sh build/release/bin --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

# Debian packages and a tarball, in build/packages: for this release of Debian or Ubuntu and newer ones.
package: setup
	@scripts/build.sh release programs
	@scripts/package.sh build/release/bin

# Sanitizer builds run the same tests.
asan tsan: setup
	@scripts/setup.sh clang
	@scripts/build.sh $@
	@cd build/$@ && ctest -j2 $(CTEST_FLAGS)

# Static checks: clang's warnings, thread-safety analysis and clang-tidy on every source.
clang: setup
	@scripts/setup.sh clang
	@scripts/build.sh clang
	@scripts/tidy.py --all

# clang-tidy on what is changed and not committed; `make tidy BASE=main`: since that revision.
tidy:
	@scripts/setup.sh clang
	@scripts/tidy.py $(BASE)

# Every public header compiles alone.
headers: setup
	@scripts/build.sh dev all_verify_interface_header_sets

# Compiles the CUDA backend; needs nvcc 13, not a GPU.
cuda: setup
	@scripts/build.sh cuda

# Programs for machines that have nothing of ours, in build/dist: x86-64 and ARM64, as tarballs, Debian packages and an image too.
# `LLORCH_PORTABLE_DIR=$PWD/build/dist make test` then looks at them.
portable:
	@scripts/build_portable.sh

# The kernels' tests for 64-bit ARM, under an emulator.
check-arm64:
	@scripts/check_arm64.sh

# Builds the fuzzers; `scripts/fuzz.sh [SECONDS]` runs them all.
fuzz: setup
	@scripts/setup.sh clang
	@scripts/build.sh fuzz fuzzers

# All of it, before a change is called done. Takes a while; each step alone is quick the second time.
check: test
	@$(MAKE) --no-print-directory headers
	@$(MAKE) --no-print-directory clang
	@$(MAKE) --no-print-directory asan
	@$(MAKE) --no-print-directory tsan
	@$(MAKE) --no-print-directory check-arm64

# `make test` fails when this would change a file.
format:
	@command -v clang-format-14 >/dev/null || scripts/setup.sh test
	@scripts/format.sh

clean:
	rm -rf build
