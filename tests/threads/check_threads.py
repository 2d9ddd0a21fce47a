#!/usr/bin/env python3
"""Checks that locks and threads go through base/ and that docs/threads_and_locks.md knows every file that has one.

Fails where a file other than base/mutex.h names the standard library's mutexes, locks or condition variables, where
product code makes a thread without base::start_thread (which gives it a name and a top frame), where a source that has
a mutex or starts a thread is not in the document, and where the document names a source that is not there.
Usage: check_threads.py ROOT
"""
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import checked

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
HOME = {"src/base/mutex.h", "src/base/thread.h"}
LOCK = re.compile(r"std::(?:\w*mutex|condition_variable\w*|lock_guard|scoped_lock|unique_lock|shared_lock|once_flag)\b"
                  r"|#\s*include\s*<(?:mutex|shared_mutex|condition_variable)>")
THREAD = re.compile(r"std::thread\b(?!::)|std::jthread\s*(?:\w+\s*)?[({]|std::async\b")
NAMED_SOURCE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)`")
HAS_LOCK_OR_THREAD = re.compile(r"\b(?:base::)?(?:Mutex|OwnerLoop|Channel<[^;{}\n]+>)\s+\w+|start_thread\(")


def is_test(path):
    return path.parts[0] == "tests" or path.stem.endswith(("_test", "_fixture")) or path.stem.startswith(("fake_", "test_"))


def check_file(relative, text, document):
    if str(relative) in HOME:
        return
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0]
        if LOCK.search(code):
            yield f"{relative}:{number}: '{LOCK.search(code).group()}' belongs in base/mutex.h: use base::Mutex"
        if not is_test(relative) and THREAD.search(code):
            yield f"{relative}:{number}: a thread is made by base::start_thread, which gives it a top frame"
    stem = str(relative.with_suffix(""))
    if relative.parts[0] == "src" and not is_test(relative) and HAS_LOCK_OR_THREAD.search(text):
        if f"`{stem.removeprefix('src/')}`" not in document:
            yield f"{relative}: has a lock or a thread and no line in docs/threads_and_locks.md"


def check(root):
    document = (root / "docs/threads_and_locks.md").read_text()
    problems, files = [], 0
    for stem in sorted(set(NAMED_SOURCE.findall(document))):
        if not list((root / "src").glob(stem + ".*")):
            problems.append(f"docs/threads_and_locks.md: there is no src/{stem}.h or .cc")
    for folder in ("src", "tests", "bench"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                files += 1
                problems += check_file(path.relative_to(root), path.read_text(), document)
    return problems, files


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    checked.end(*check(pathlib.Path(sys.argv[1])), "source files", "files take their locks and threads from base/")


if __name__ == "__main__":
    main()
