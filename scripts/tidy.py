#!/usr/bin/env python3
"""clang-tidy with the checks of .clang-tidy; any finding is a failure.

  scripts/tidy.py            the sources that are changed and not committed
  scripts/tidy.py BASE       all that changed since BASE, a revision
  scripts/tidy.py --all      every source, tests included
  scripts/tidy.py FILE ...   these; a folder stands for all sources below it

A changed header stands for the sources beside it. With --all and folders several sources of a folder go through it together, as
one that includes them: most of the time goes into the headers that they share, so this takes a sixth of it. Those
that do not compile together (two of them have a helper of the same name) are split until they do. What is only looked
for in a main file (unused using-declarations) is found one by one: when the file changes.

Exit 77: clang-tidy 14 is not installed (scripts/setup.sh clang).
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "clang"
TOGETHER = 12
FINDING = re.compile(r"^(/[^:]+:\d+:\d+): (warning|error): (.*)$")
# A source that others include is ours, not theirs.
NOT_TOGETHER = "-bugprone-suspicious-include"


def find_tidy():
    for name in ("clang-tidy-14", "clang-tidy"):
        path = shutil.which(name)
        if path and "version 14." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def configure():
    done = subprocess.run(["cmake", "--preset", "clang"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tidy: the clang preset cannot be configured:\n{done.stderr}")
    entries = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        entries.setdefault(entry["file"], entry)
    return entries


def git_lines(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"tidy: SKIPPED: git does not say what is changed: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(77)
    return done.stdout.splitlines()


def changed_since(base):
    names = git_lines("diff", "--name-only", "--diff-filter=d", base or "HEAD")
    names += git_lines("ls-files", "--others", "--exclude-standard")
    return [ROOT / name for name in names if name.endswith((".cc", ".h"))]


def sources_of(paths, entries):
    wanted = set()
    for path in paths:
        if str(path) in entries:
            wanted.add(str(path))
        elif path.suffix == ".h":
            wanted |= {file for file in entries if file in (str(path.with_suffix(".cc")), f"{path.with_suffix('')}_test.cc")}
    return sorted(wanted)


def flags_of(entry):
    return re.sub(r" -o \S+ -c \S+$", "", entry["command"])


def batches(files, entries, together):
    groups = {}
    for file in files:
        key = (os.path.dirname(file), file.endswith("_test.cc"), flags_of(entries[file]))
        groups.setdefault(key, []).append(file)
    for group in groups.values():
        for at in range(0, len(group), together):
            yield group[at : at + together]


def run_tidy(tidy, batch, entries):
    """The findings in these sources, each once."""
    with tempfile.TemporaryDirectory() as folder:
        source = batch[0]
        checks = []
        if len(batch) > 1:
            source = os.path.join(folder, "together.cc")
            Path(source).write_text("".join(f'#include "{file}"\n' for file in batch))
            checks = [f"--checks={NOT_TOGETHER}"]
        entry = entries[batch[0]]
        command = f"{flags_of(entry)} -o together.o -c {source}"
        database = [{"directory": entry["directory"], "command": command, "file": source}]
        Path(folder, "compile_commands.json").write_text(json.dumps(database))
        done = subprocess.run(
            [tidy, "-p", folder, f"--config-file={ROOT / '.clang-tidy'}", "--quiet", *checks, source],
            capture_output=True, text=True, cwd=ROOT)
    found = [match.groups() for match in map(FINDING.match, done.stdout.splitlines()) if match]
    if len(batch) > 1 and any("clang-diagnostic-error" in text for _, _, text in found):
        culprits = {place.rsplit(":", 2)[0] for place, _, text in found if "clang-diagnostic-error" in text}
        apart = [file for file in batch if file in culprits]
        rest = [file for file in batch if file not in culprits]
        if not apart or not rest:
            rest, apart = batch[: len(batch) // 2], batch[len(batch) // 2 :]
        return run_tidy(tidy, rest, entries) | run_tidy(tidy, apart, entries)
    if done.returncode != 0 and not found:
        return {f"{os.path.relpath(batch[0], ROOT)}: clang-tidy failed: {done.stderr.strip()[-500:]}"}
    return {f"{os.path.relpath(place, ROOT)}: {text}" for place, _, text in found}


def main(words):
    tidy = find_tidy()
    if tidy is None:
        print("tidy: SKIPPED: clang-tidy 14 is not installed; scripts/setup.sh clang installs it", file=sys.stderr)
        return 77
    is_change = not words or (words != ["--all"] and not os.path.exists(words[0]))
    changed = changed_since(words[0] if words else None) if is_change else []
    if is_change and not changed:
        print("tidy: nothing is changed")
        return 0
    entries = configure()
    together = 1
    if words == ["--all"]:
        files, together = sorted(entries), TOGETHER
    elif is_change:
        files = sources_of(changed, entries)
    else:
        paths = [Path(word).resolve() for word in words]
        if all(path.is_dir() for path in paths):
            together = TOGETHER
        files = [str(path) for path in paths if not path.is_dir()]
        files += sorted(file for file in entries if any(path.is_dir() and Path(file).is_relative_to(path) for path in paths))
        unknown = [file for file in files if file not in entries]
        if unknown:
            sys.exit(f"tidy: not a source of the build: {unknown[0]}")
    findings = set()
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for found in pool.map(lambda batch: run_tidy(tidy, batch, entries), batches(files, entries, together)):
            for finding in sorted(found - findings):
                print(finding, flush=True)
            findings |= found
    print(f"tidy: {len(files)} sources, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
