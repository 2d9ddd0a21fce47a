#!/usr/bin/env python3
"""Draws what `fleet_bench --json FILE` measured. Usage: plot_fleet.py FILE > docs/fleet_cost.svg

Two pictures side by side, both axes logarithmic: cost against the jobs that wait, and against the hosts. Also says on stderr
how steep each line is at its end: 0 does not grow, 1 grows as n, 1.1 about as n log n; steeper is an error."""
import json
import math
import sys

WIDTH, HEIGHT, PANEL, LEFT, TOP, BOTTOM = 940, 430, 360, 70, 56, 62
COLOURS = ("c1", "c2", "c3", "c4")
STEEPEST = 1.2
STYLE = """
text{font-family:sans-serif;font-size:12px;fill:#1f2328} .t{font-size:14px;font-weight:bold} .g{stroke:#d0d7de} .p{fill:#ffffff;stroke:#d0d7de}
.n{stroke:#8c959f;stroke-dasharray:4 4;fill:none} .s{fill:#656d76} path{fill:none;stroke-width:2}
.c1{stroke:#0969da;color:#0969da} .c2{stroke:#cf222e;color:#cf222e} .c3{stroke:#1a7f37;color:#1a7f37} .c4{stroke:#8250df;color:#8250df} circle{fill:currentColor;stroke:none}
@media (prefers-color-scheme:dark){text{fill:#e6edf3} .g{stroke:#30363d} .p{fill:#0d1117;stroke:#30363d} .s{fill:#8b949e}
.c1{stroke:#58a6ff;color:#58a6ff} .c2{stroke:#ff7b72;color:#ff7b72} .c3{stroke:#7ee787;color:#7ee787} .c4{stroke:#d2a8ff;color:#d2a8ff}}
""".strip()


def steepness(points):
    """Over the last factor of ten."""
    last = points[-1]
    first = next(point for point in reversed(points[:-1]) if point[0] <= last[0] / 10)
    return math.log(last[1] / first[1]) / math.log(last[0] / first[0])


def panel(x0, title, axis, series):
    sizes = [size for _, points in series for size, _ in points]
    costs = [cost for _, points in series for _, cost in points]
    x_max = math.ceil(math.log10(max(sizes)))
    y_min, y_max = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    x = lambda size: x0 + math.log10(size) / x_max * PANEL
    y = lambda cost: TOP + (y_max - math.log10(cost)) / (y_max - y_min) * (HEIGHT - TOP - BOTTOM)
    yield f'<text class="t" x="{x0}" y="{TOP - 30}">{title}</text>'
    for power in range(x_max + 1):
        yield f'<path class="g" style="stroke-width:1" d="M{x(10**power):.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x(10**power):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10**power:,}</text>'
    for power in range(y_min, y_max + 1):
        yield f'<path class="g" style="stroke-width:1" d="M{x0} {y(10.0**power):.1f}h{PANEL}"/>'
        yield f'<text x="{x0 - 8}" y="{y(10.0**power) + 4:.1f}" text-anchor="end">{10.0**power:g} µs</text>'
    yield f'<text class="s" x="{x0 + PANEL / 2}" y="{HEIGHT - BOTTOM + 38}" text-anchor="middle">{axis}</text>'
    # What would grow as n, through the lowest point at the left.
    low, high = 10.0**y_min, 10.0**y_max
    reach = min(10**x_max, high / low)
    yield f'<path class="n" style="stroke-width:1" d="M{x(1):.1f} {y(low):.1f}L{x(reach):.1f} {y(low * reach):.1f}"/>'
    yield f'<text class="s" x="{x(reach) - 6:.1f}" y="{y(low * reach) + 14:.1f}" text-anchor="end">as n</text>'
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number]
        line = "L".join(f"{x(size):.1f} {y(cost):.1f}" for size, cost in points)
        yield f'<path class="{colour}" d="M{line}"/>'
        yield "".join(f'<circle class="{colour}" cx="{x(size):.1f}" cy="{y(cost):.1f}" r="3"/>' for size, cost in points)
        yield f'<path class="{colour}" d="M{x0 + number * 125} {TOP - 13}h18"/>'
        yield f'<text x="{x0 + number * 125 + 23}" y="{TOP - 9}">{name}</text>'


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1]) as file:
        told = json.load(file)
    lines = (("submit", "submit_us"), ("serve one", "serve_us"), ("queue pass", "pass_us"))
    by_jobs = [(name, [(row["jobs"], row[field]) for row in told["queued"]]) for name, field in lines]
    by_hosts = [(name, [(row["hosts"], row[field]) for row in told["hosts"]]) for name, field in lines[1:]]
    by_hosts.insert(0, ("placement", [(row["workers"], row["us"]) for row in told["placement"]]))
    too_steep = False
    for what, series in (("jobs", by_jobs), ("hosts", by_hosts)):
        for name, points in series:
            steep = steepness(points)
            too_steep |= steep > STEEPEST
            print(f"{name} against {what}: n^{steep:.2f} at the end, {points[-1][1]:.1f} us at {points[-1][0]:,}", file=sys.stderr)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
          f'aria-label="Cost of decisions against queued jobs and hosts">\n<style>{STYLE}</style>')
    print(f'<rect class="p" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>')
    print("\n".join(panel(LEFT, "against the jobs that wait, 1,000 hosts", "jobs in the queue", by_jobs)))
    print("\n".join(panel(LEFT + PANEL + 115, "against the hosts, 100,000 jobs wait", "hosts (workers of the model)", by_hosts)))
    print("</svg>")
    if too_steep:
        sys.exit("a cost grows faster than n log n")


if __name__ == "__main__":
    main()
