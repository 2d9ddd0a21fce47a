#!/usr/bin/env python3
"""Makes docs/PERFORMANCE_BENCHMARKS.md and its picture from what bench/peers.py measured.

    bench/peers_page.py speeds.json docs        writes PERFORMANCE_BENCHMARKS.md and performance_benchmarks.svg there,
                                                and keeps the numbers in data/performance_benchmarks.json beside them"""
import json
import os
import statistics
import sys

from peers import ratios

COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#8250df")
LEFT, WIDTH, BAR, GAP = 260, 900, 14, 16


def rows_of(report):
    for result in report["results"]:
        for test, mine, others in ratios(result):
            limit = statistics.median(result["limits"][test])
            yield result, test, mine, others, limit


def programs_of(report):
    """Ours first, whatever order the file has."""
    names = []
    for result in report["results"]:
        names += [name for name in result["speeds"] if name not in names]
    return sorted(names, key=lambda name: name != "llorch")


def page(report):
    peers = [name for name in programs_of(report) if name != "llorch"]
    yield "# Speed beside others"
    yield ""
    depth = f", {report['depth']} tokens in the cache before" if report["depth"] else ""
    yield f"Made by `bench/peers_page.py` from `bench/peers.py`; do not edit. {report['processor']}, {report['threads']} threads{depth}; medians of"
    yield f"{report['rounds']} rounds in which every program runs once on the same file, one after the other. Tokens/s; the limit is what the machine could read or"
    yield "compute at best in the same seconds (`llorch-bench --help`)."
    yield ""
    if report.get("note"):
        yield report["note"]
        yield ""
    yield "![tokens/s of each program, beside the machine's limit](performance_benchmarks.svg)"
    yield ""
    yield "| model | test | llorch | of the limit |" + "".join(f" {name} | ratio |" for name in peers)
    yield "|---|---|---|---|" + "---|---|" * len(peers)
    for result, test, mine, others, limit in rows_of(report):
        cells = "".join(f" {mine / others[name]:.1f} | {others[name]:.2f} |" if name in others else " – | – |" for name in peers)
        yield f"| {result['model']} | {test} | {mine:.1f} | {100 * mine / limit:.0f} % |{cells}"


def picture(report):
    names = programs_of(report)
    y = 40
    bars = []
    for result, test, mine, others, limit in rows_of(report):
        speeds = {"llorch": mine, **{name: mine / ratio for name, ratio in others.items()}}
        scale = (WIDTH - LEFT - 80) / max(limit, *speeds.values())
        bars.append(f'<text x="{LEFT - 8}" y="{y + BAR}" text-anchor="end">{result["model"]} {test}</text>')
        height = BAR * len(speeds)
        bars.append(f'<path d="M{LEFT + limit * scale:.1f} {y - 2}v{height + 4}" stroke="#8c959f" stroke-dasharray="3 3"/>')
        for name, speed in speeds.items():
            bars.append(f'<rect x="{LEFT}" y="{y}" width="{speed * scale:.1f}" height="{BAR - 2}" fill="{COLOURS[names.index(name) % len(COLOURS)]}"/>')
            bars.append(f'<text x="{LEFT + speed * scale + 4:.1f}" y="{y + BAR - 3}" font-size="10">{speed:.0f}</text>')
            y += BAR
        y += GAP
    legend = "".join(f'<rect x="{LEFT + 140 * i}" y="12" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/><text x="{LEFT + 140 * i + 17}" y="22">{name}</text>'
                     for i, name in enumerate(names))
    x = LEFT + 140 * len(names)
    legend += f'<path d="M{x + 6} 11v14" stroke="#8c959f" stroke-dasharray="3 3"/><text x="{x + 17}" y="22">the machine\'s limit</text>'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12" fill="#57606a">\n'
            + legend + "\n" + "\n".join(bars) + "\n</svg>\n")


def main(argv):
    if len(argv) != 2:
        raise SystemExit(__doc__)
    with open(argv[0], encoding="utf-8") as file:
        report = json.load(file)
    with open(os.path.join(argv[1], "PERFORMANCE_BENCHMARKS.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(page(report)) + "\n")
    with open(os.path.join(argv[1], "performance_benchmarks.svg"), "w", encoding="utf-8") as file:
        file.write(picture(report))
    os.makedirs(os.path.join(argv[1], "data"), exist_ok=True)
    with open(os.path.join(argv[1], "data/performance_benchmarks.json"), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
