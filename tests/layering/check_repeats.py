#!/usr/bin/env python3
"""Fails when six lines of code or more stand in two places, letter by letter.

Blank lines, comments, includes, imports, using-declarations, namespaces and lines of punctuation alone do not count, nor does how far a line is
indented, nor what a class must say to be one of its base: declarations that override. What is said twice wants a function, a table, a template or
a header of its own (docs/decisions/0057).
Usage: check_repeats.py ROOT
"""
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import checked

RUN = 6
FOLDERS = ("src", "tests", "bench", "scripts", "cmake", "packaging")
HASH_COMMENTS = {".py", ".sh", ".cmake", ".txt"}
SLASH_COMMENTS = {".h", ".cc", ".cu", ".cuh", ".js", ".mjs", ".ts"}
CONTINUES = re.compile(r"[,(]$")  # the declaration goes on in the next line
NO_CODE = re.compile(r"#\s*include\b|import\b|from \S+ import\b|using\b|namespace\b|extern \"C\"|\W*$")


def lines_of_code(text, comment):
    """The lines that count, each with its number."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = " ".join(line.split())
        if words.startswith(comment) or NO_CODE.match(words):
            continue
        found.append((number, words))
        if words.endswith(" override;"):
            found.pop()
            while found and CONTINUES.search(found[-1][1]):
                found.pop()
    return found


def is_source(path):
    if path.suffix == ".txt":
        return path.name == "CMakeLists.txt"
    return path.suffix in HASH_COMMENTS | SLASH_COMMENTS and "node_modules" not in path.parts


def find_repeats(files):
    """(file, first line, last line, other file, its first, its last) of each run of lines that stood before."""
    seen = {}  # six lines → where they stood first
    repeats = []
    for name, lines in files.items():
        at = 0
        while at + RUN <= len(lines):
            key = tuple(words for _, words in lines[at : at + RUN])
            other, start = seen.setdefault(key, (name, at))
            if (other, start) == (name, at) or (other == name and start + RUN > at):
                at += 1
                continue
            length = RUN
            before = files[other]
            while (at + length < len(lines) and start + length < len(before)
                   and lines[at + length][1] == before[start + length][1] and (other != name or start + length < at)):
                length += 1
            repeats.append((name, lines[at][0], lines[at + length - 1][0], other, before[start][0], before[start + length - 1][0]))
            at += length
    return repeats


def check(root):
    files = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if is_source(path):
                comment = "#" if path.suffix in HASH_COMMENTS else "//"
                files[str(path.relative_to(root))] = lines_of_code(path.read_text(encoding="utf-8"), comment)
    problems = [f"{name}:{first}-{last}: the same lines as {other}:{start}-{end}"
                for name, first, last, other, start, end in find_repeats(files)]
    return problems, len(files)


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    checked.end(*check(pathlib.Path(sys.argv[1])), "source files", f"files have no {RUN} lines of code twice")


if __name__ == "__main__":
    main()
