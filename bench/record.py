#!/usr/bin/env python3
"""Runs a benchmark and keeps what it printed, for the figures of the documents (docs/decisions/0044-figures-have-files.md):

    bench/record.py docs/data/relay.txt build/release/bench/relay_bench /tmp/store

The file begins with the day, the machine, how busy it was, the commit and the command. It is written when the command ended well; its standard
error is only shown. What programs write as JSON needs no such file.
"""
import datetime
import os
import pathlib
import re
import shlex
import subprocess
import sys


def processor():
    name = re.search(r"^model name\s*: (.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return name.group(1) if name else os.uname().machine


def commit():
    ran = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "no commit"


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    path, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    before = os.getloadavg()[0]
    printed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            printed.append(line)
    if child.returncode != 0:
        raise SystemExit(f"record.py: {command[0]} ended with {child.returncode}; {path} is as it was")
    head = f"# {datetime.date.today()}, {processor()}, cores: {os.cpu_count()}, load: {before:.1f}, then {os.getloadavg()[0]:.1f}, commit: {commit()}\n"
    path.write_text(f"{head}$ {shlex.join(command)}\n{''.join(printed)}")


if __name__ == "__main__":
    main()
