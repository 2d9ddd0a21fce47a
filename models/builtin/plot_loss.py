#!/usr/bin/env python3
"""Draws the loss curves that train.py wrote: plot_loss.py loss.csv loss.svg (standard library only)."""
import csv
import sys

COLOURS = {"stories": "#c0392b", "children": "#2471a3", "novels": "#7d6608",
           "stories_train": "#e6b0aa", "children_train": "#aed6f1"}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, LOW, HIGH = 720, 380, 50, 40, 20, 0.5, 4.5


def main():
    source, target = sys.argv[1:]
    with open(source, newline="") as file:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    last = rows[-1]["step"]
    x = lambda step: LEFT + (WIDTH - LEFT - 165) * step / last
    y = lambda loss: TOP + (HEIGHT - TOP - BOTTOM) * (HIGH - min(loss, HIGH)) / (HIGH - LOW)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in (1, 2, 3, 4):
        out.append(f'<line x1="{LEFT}" x2="{x(last):.0f}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 20}" y="{y(tick) + 4:.1f}">{tick}</text>')
    for step in range(0, int(last) + 1, 1000):
        out.append(f'<text x="{x(step):.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    out.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">step of 65,536 tokens; loss in nats per token</text>')
    for place, (name, colour) in enumerate(COLOURS.items()):
        points = " ".join(f"{x(r['step']):.1f},{y(r[name]):.1f}" for r in rows if r[name] <= HIGH)
        dash = ' stroke-dasharray="4 3"' if name.endswith("_train") else ""
        label = name.removesuffix("_train") + (" (seen)" if name.endswith("_train") else " (held out)")
        level = TOP + 20 + 18 * place
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<text x="{WIDTH - 155}" y="{level}" fill="{colour}">{label} {rows[-1][name]:.2f}</text>')
    out.append("</svg>")
    with open(target, "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
