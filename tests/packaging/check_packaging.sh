#!/usr/bin/env bash
# The units as systemd itself reads them, and the example configuration as the programs do.
# Usage: check_packaging.sh SOURCE_DIR BIN_DIR. Exit code 77: systemd-analyze is not here.
set -euo pipefail
source_dir=$1
bin=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Every setting of the example, uncommented, must be known to its program.
sed -E 's/^# ([a-z-]+ = )/\1/' "$source_dir/packaging/config.toml" > "$work/config.toml"
[ "$(grep -cE '^[a-z-]+ = ' "$work/config.toml")" -ge 28 ]
LLORCH_CONFIG="$work/config.toml" "$bin/pool-managerd" --version > /dev/null
LLORCH_CONFIG="$work/config.toml" "$bin/orchestratord" --version > /dev/null
LLORCH_CONFIG="$work/config.toml" "$bin/llorch-cpud" --version > /dev/null
# And the check must be able to fail.
echo 'surprise = 1' >> "$work/config.toml"
if LLORCH_CONFIG="$work/config.toml" "$bin/llorch-cpud" --version > /dev/null 2>&1; then
  echo "an unknown key went through" >&2
  exit 1
fi

if ! command -v systemd-analyze > /dev/null; then
  echo "SKIPPED: systemd-analyze is not installed; the units were not checked" >&2
  exit 77
fi
export XDG_RUNTIME_DIR=$work  # --user wants one
for kind in system user; do
  for program in pool-managerd orchestratord; do
    # The programs need not be installed for the check: the unit names one that is here.
    sed -E "s#^ExecStart=.*/$program#ExecStart=$bin/$program#" \
      "$source_dir/packaging/systemd/$kind/$program.service" > "$work/$program.service"
    command=$(sed -nE 's/^ExecStart=//p' "$work/$program.service")
    $command --version > /dev/null  # its flags are known
  done
  for program in pool-managerd orchestratord; do
    said=$(SYSTEMD_LOG_LEVEL=warning systemd-analyze "--$kind" --man=no verify "$work/$program.service" 2>&1 |
      grep -F "$work/" || true)
    if [ -n "$said" ]; then
      echo "$kind: $said" >&2
      exit 1
    fi
  done
  # Both have one home, or the one would not find the other; and the pool is there first.
  homes=$({ grep -hE '^(User|Environment=LLORCH)' "$work"/*.service || true; } | sort | uniq -c | awk '$1 != 2')
  [ -z "$homes" ] || { echo "$kind: not in both units: $homes" >&2; exit 1; }
  for key in After Wants; do
    grep -qE "^$key=.*pool-managerd.service" "$work/orchestratord.service" || { echo "$kind: the orchestrator has no $key=" >&2; exit 1; }
  done
done
# A unit with a mistake is noticed.
sed -i 's/^KillMode=.*/KillMode=surprise/' "$work/pool-managerd.service"
if ! systemd-analyze --user --man=no verify "$work/pool-managerd.service" 2>&1 | grep -q surprise; then
  echo "systemd-analyze did not notice a mistake" >&2
  exit 1
fi
echo "units and configuration are good"
