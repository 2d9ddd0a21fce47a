#!/usr/bin/env python3
"""Draws what a terminal showed as an SVG picture. Usage: terminal_svg.py TITLE < text > picture.svg

Light or dark, as the reader's system is. Lines that begin with "$ " are commands, those in round brackets are remarks; of
escape sequences it understands the colours that our programs use (bold, dim, red, green, yellow) and drops the rest."""
import html
import re
import sys

COLUMN, LINE, MARGIN, HEAD = 7.83, 17, 14, 30
CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y"}
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
STYLE = """
text{white-space:pre} .w{fill:#ffffff;stroke:#d0d7de} text{fill:#1f2328} .b{font-weight:bold} .d{fill:#656d76} .r{fill:#cf222e} .g{fill:#1a7f37} .y{fill:#9a6700}
@media (prefers-color-scheme:dark){.w{fill:#0d1117;stroke:#30363d} text{fill:#e6edf3} .d{fill:#8b949e} .r{fill:#ff7b72} .g{fill:#7ee787} .y{fill:#e3b341}}
""".strip()


def pieces(line):
    """(classes, text) of a line."""
    if line.startswith("$ "):
        line = "\x1b[32m$\x1b[0m \x1b[1m" + line[2:]
    elif line.startswith("(") and line.endswith(")"):
        line = "\x1b[33m" + line
    elif line.startswith("ok  "):
        line = "\x1b[32mok\x1b[0m" + line[2:]
    classes, at = "", 0
    for match in ESCAPE.finditer(line):
        yield classes, line[at:match.start()]
        at = match.end()
        if match.group(2) == "m":
            classes = " ".join(CLASSES[code] for code in match.group(1).split(";") if code in CLASSES)
    yield classes, line[at:]


def draw(title, text):
    lines = [line.rstrip() for line in text.strip("\n").split("\n")]
    width = max(len(ESCAPE.sub("", line)) for line in lines) * COLUMN + 2 * MARGIN
    height = len(lines) * LINE + HEAD + MARGIN
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
           f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{html.escape(title)}">')
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="w" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>'
    for i, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        yield f'<circle cx="{MARGIN + 6 + 20 * i}" cy="15" r="6" fill="{color}"/>'
    yield f'<text class="d" x="50%" y="19" font-family="sans-serif" font-size="12" text-anchor="middle">{html.escape(title)}</text>'
    yield '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="13" xml:space="preserve">'
    for i, line in enumerate(lines):
        spans = "".join(f'<tspan class="{classes}">{html.escape(piece)}</tspan>' if classes else html.escape(piece)
                        for classes, piece in pieces(line) if piece)
        if spans:
            yield f'<text x="{MARGIN}" y="{HEAD + (i + 1) * LINE - 4}">{spans}</text>'
    yield "</g>\n</svg>"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print("\n".join(draw(sys.argv[1], sys.stdin.read())))


if __name__ == "__main__":
    main()
