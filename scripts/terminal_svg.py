#!/usr/bin/env python3
"""Draws what a terminal showed as an SVG picture. Usage: terminal_svg.py TITLE < text > picture.svg

Understands the colours that our programs use (bold, dim, red, green, yellow); every other escape sequence is dropped."""
import html
import re
import sys

COLUMN, LINE, MARGIN, HEAD = 7.83, 17, 14, 30
STYLES = {"1": "font-weight:bold", "2": "fill:#8b949e", "31": "fill:#ff7b72", "32": "fill:#7ee787", "33": "fill:#e3b341"}
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


def pieces(line):
    """(style, text) of a line."""
    style, at = "", 0
    for match in ESCAPE.finditer(line):
        yield style, line[at:match.start()]
        at = match.end()
        if match.group(2) == "m":
            style = ";".join(STYLES[code] for code in match.group(1).split(";") if code in STYLES)
    yield style, line[at:]


def draw(title, text):
    lines = [line.rstrip("\r") for line in text.rstrip("\n").split("\n")]
    width = max(len(ESCAPE.sub("", line)) for line in lines) * COLUMN + 2 * MARGIN
    height = len(lines) * LINE + HEAD + MARGIN
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
           f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{html.escape(title)}">')
    yield '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
    for i, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        yield f'<circle cx="{MARGIN + 6 + 20 * i}" cy="15" r="6" fill="{color}"/>'
    yield f'<text x="50%" y="19" fill="#8b949e" font-family="sans-serif" font-size="12" text-anchor="middle">{html.escape(title)}</text>'
    yield '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" fill="#e6edf3" xml:space="preserve">'
    for i, line in enumerate(lines):
        spans = "".join(f'<tspan style="{style}">{html.escape(piece)}</tspan>' if style else html.escape(piece)
                        for style, piece in pieces(line) if piece)
        if spans:
            yield f'<text x="{MARGIN}" y="{HEAD + (i + 1) * LINE - 4}">{spans}</text>'
    yield "</g>\n</svg>"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print("\n".join(draw(sys.argv[1], sys.stdin.read())))


if __name__ == "__main__":
    main()
