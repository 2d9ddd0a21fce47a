#!/usr/bin/env python3
"""Holds the measured numbers of the documents to the files that programs wrote (docs/data, decision 44).

On every page of pages.txt every block of text (up to an empty line) that has a number with a unit has one of these marks in front of it:

    <!-- from: relay.txt, fleet.json -->   every figure of the block stands in one of these files of docs/data
    <!-- a limit -->                       it was not measured: our code or a format says so
    <!-- not from a file: WHY -->          it does not, for this reason: an aim, a size of something, another's measurement
    <!-- page not from a file: WHY -->     the same for all blocks of the page that have no mark of their own

Pages that a program makes whole have none (check_numbers.py).

A figure is a number with a unit of measurement, and in a marked table every number behind the first column. What follows ≤ or ≥ is an aim, and
code is no text. A figure is in a file where a value there, rounded to the digits that are shown, is the same, and the units agree: those of a text are
behind its numbers, those of JSON at the end of the key (`first_token_ms`, `peak_bytes`, `tokens_per_s`). A value without a unit fits any.

Usage: check_figures.py ROOT
"""
import json
import pathlib
import re
import sys

from check_commands import pages

DATA = "docs/data"
MADE_WHOLE = {"docs/MODEL_SUPPORT.md", "docs/PERFORMANCE_BENCHMARKS.md"}
MARK = re.compile(r"<!-- (?:(from|not from a file): (.+?)|(a limit)) -->")
PAGE_MARK = re.compile(r"^<!-- page not from a file: .+ -->$", re.M)
# Dimension and size of a unit, as texts write it and, in lower case, as keys end.
UNITS = {
    "ns": ("time", 1e-9), "µs": ("time", 1e-6), "us": ("time", 1e-6), "ms": ("time", 1e-3), "s": ("time", 1), "seconds": ("time", 1), "min": ("time", 60),
    "bytes": ("bytes", 1), "KB": ("bytes", 1e3), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9),
    "KiB": ("bytes", 2**10), "MiB": ("bytes", 2**20), "GiB": ("bytes", 2**30),
    "bytes/s": ("bytes/s", 1), "MB/s": ("bytes/s", 1e6), "GB/s": ("bytes/s", 1e9), "TB/s": ("bytes/s", 1e12),
    "Gop/s": ("ops/s", 1e9), "GFLOP/s": ("ops/s", 1e9), "TFLOP/s": ("ops/s", 1e12), "ops/s": ("ops/s", 1),
    "tokens/s": ("rate", 1), "/s": ("rate", 1),
    "%": ("share", 0.01), "percent": ("share", 0.01), "share": ("share", 1), "×": ("ratio", 1), "ratio": ("ratio", 1),
}
NUMBER = r"(?<![\w.^#-])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
WORD = "|".join(sorted((re.escape(unit) for unit in UNITS), key=len, reverse=True))
CHAIN = re.compile(rf"({NUMBER}(?:(?: ?[–/→] ?| to | and )[-+−]?[\d,]*\d(?:\.\d+)?)*)[ \u00a0]?({WORD})(?!\w|/| \d)")
BARE = re.compile(NUMBER + r"(?![\w]|[.,]\d)")
AIM = re.compile(rf"[≤≥] ?{NUMBER}(?: ?/ ?{NUMBER})*(?: ?(?:{WORD})(?!\w))?")


class Figure:
    """A number as a page shows it: its sign and digits, its unit or None."""

    def __init__(self, text, unit):
        self.text, self.unit = text, unit
        digits = text.replace(",", "").replace("−", "-")
        self.value, self.is_signed = float(digits), digits[0] in "+-"
        decimals = len(digits.partition(".")[2])
        whole = digits.lstrip("+-")
        # 130,900 stands for what rounds to it; three digits always count.
        zeros = 0 if decimals else min(len(whole) - len(whole.rstrip("0")), max(len(whole) - 3, 0))
        self.half_step = 0.5 * 10.0 ** (zeros - decimals) * 1.0001

    def __str__(self):
        return f"{self.text} {self.unit}" if self.unit else self.text

    def fits(self, value, unit):
        if unit and self.unit:
            (kind, size), (wanted_kind, wanted_size) = UNITS[unit], UNITS[self.unit]
            if kind != wanted_kind:
                return False
            value *= size / wanted_size
        if not self.is_signed:
            value = abs(value)
        return abs(value - self.value) <= self.half_step


def chains_of(text):
    """Every number with a unit, and the text without them: `0.14 / 2.3 ms` has two."""
    found = []
    for match in CHAIN.finditer(text):
        found += [Figure(number, match.group(2)) for number in re.findall(r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", match.group(1))]
    return found, CHAIN.sub(" ", text)


def figures_of(lines):
    """The figures of one block."""
    found = []
    for number, line in enumerate(lines):
        text = AIM.sub(" ", re.sub(r"<!--.*?-->|`[^`]*`", " ", line))
        is_row = line.startswith("|")
        if is_row:
            text = " | ".join(text.strip().strip("|").split("|")[1:])
        with_unit, rest = chains_of(text)
        found += with_unit
        if is_row and number >= 2:  # below the heading and its rule
            found += [Figure(match.group(0), None) for match in BARE.finditer(rest)]
    return found


def blocks_of(page):
    """(line, lines, mark) of every block of text; code is left out."""
    lines, at, mark = page.splitlines(), 0, None
    while at < len(lines):
        line = lines[at]
        found = MARK.fullmatch(line.strip())
        if found:
            mark, at = (found.group(1) or found.group(3), found.group(2)), at + 1
        elif line.startswith("```"):
            at += 1
            while at < len(lines) and not lines[at].startswith("```"):
                at += 1
            at += 1
        elif not line.strip() or line.startswith(("    ", "#", "<!--")):
            at += 1
        else:
            first = at
            while at < len(lines) and lines[at].strip() and not lines[at].startswith("```"):
                at += 1
            yield first + 1, lines[first:at], mark
            mark = None


def unit_of_key(key):
    words = re.sub(r"_per_s(?:econd)?$", "/s", key).lower()
    known = {unit.lower(): unit for unit in UNITS}
    for size in range(len(words), 0, -1):
        end = words[-size:]
        if end in known and (size == len(words) or words[-size - 1] == "_" or end == "/s"):
            return known[end]
    return None


def values_of(node, unit=None):
    """(value, unit) of every number below a node of JSON."""
    if isinstance(node, dict):
        for key, below in node.items():
            yield from values_of(below, unit_of_key(key))
    elif isinstance(node, list):
        for below in node:
            yield from values_of(below, unit)
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        yield float(node), unit


def read_values(path):
    text = path.read_text()
    if path.suffix == ".json":
        return list(values_of(json.loads(text)))
    found, rest = chains_of(text)
    found += [Figure(match.group(0), None) for match in BARE.finditer(rest)]
    return [(figure.value, figure.unit) for figure in found]


def check_page(text, read):
    """What is wrong on a page; `read` gives the values of a file of docs/data, or None where there is none."""
    is_excused = PAGE_MARK.search(text) is not None
    for line, lines, mark in blocks_of(text):
        found = figures_of(lines)
        measured = [figure for figure in found if figure.unit]
        if measured and mark is None and not is_excused:
            yield f"{line}: {measured[0]} says not where it comes from: <!-- from: FILE -->, <!-- a limit --> or <!-- not from a file: WHY -->"
        if mark is None or mark[0] != "from":
            continue
        if not found:
            yield f"{line}: nothing here comes from {mark[1]}"
        values = []
        for name in mark[1].split(", "):
            part = read(name)
            if part is None:
                yield f"{line}: there is no {DATA}/{name}"
            values += part or []
        for figure in found:
            if not any(figure.fits(*value) for value in values):
                yield f"{line}: {figure} is not in {mark[1]}"


def files_of(text):
    return {name for kind, names, _ in MARK.findall(text) if kind == "from" for name in names.split(", ")}


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    root = pathlib.Path(sys.argv[1])
    read = lambda name: read_values(root / DATA / name) if (root / DATA / name).is_file() else None
    wanted = [page for page in pages(root) if str(page.relative_to(root)) not in MADE_WHOLE]
    problems = [f"{page.relative_to(root)}:{problem}" for page in wanted for problem in check_page(page.read_text(), read)]
    # What check_numbers.py makes whole pages of needs no mark.
    used = {"model_support.json", "performance_benchmarks.json"}.union(*(files_of(page.read_text()) for page in wanted))
    problems += [f"{DATA}/{path.name}: no page has a number of it" for path in sorted((root / DATA).glob("*.*")) if path.name not in used]
    print("\n".join(problems) if problems else "every figure is in its file")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
