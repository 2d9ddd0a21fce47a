#!/usr/bin/env python3
"""The page of `llorch matrix --html` as a real browser draws it, light and dark, and in a window as narrow as a telephone.

The result is written here, so that nothing runs: the program only draws it. Pictures stay in FOLDER where one is named.
Usage: look_at_page.py LLORCH [FOLDER]. Exit code 77: there is no browser (Debian: chromium).
"""
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

GROUND = {"light": (0xFB, 0xFA, 0xF8), "dark": (0x14, 0x17, 0x1A)}
BAR = {"light": (0x2F, 0x6F, 0xB0), "dark": (0x6C, 0xB2, 0xF0)}


def cell(model, state, speed):
    figures = [{"name": name, "unit": unit, "samples": [speed * part, speed, speed]}
               for name, unit, part in (("first_token_ms", "ms", 0.9), ("prefill_tps", "tokens/s", 0.95), ("decode_tps_1", "tokens/s", 0.97),
                                        ("decode_tps_4", "tokens/s", 0.97), ("decode_tps_16", "tokens/s", 0.97))]
    return {"model": model, "backend": "cpu", "host": "local", "quant": "Q8_0", "checks": [
        {"name": "load", "state": state, "detail": "a <b>detail</b>"}, {"name": "chat", "state": "skipped", "detail": "no template"},
        {"name": "bad path", "state": "passed", "detail": "a_word_that_is_longer_than_the_window_is_wide" * 4}], "figures": figures}


def pixels(file):
    """Rows of (r, g, b) of a PNG with 8 bits a channel, not interlaced."""
    data = file.read_bytes()
    at, width, height, channels, packed = 8, 0, 0, 0, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and color in (2, 6), (depth, color)
            channels = 3 if color == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    raw, stride, above = zlib.decompress(packed), width * channels, bytes(width * channels)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            left = line[x - channels] if x >= channels else 0
            corner = above[x - channels] if x >= channels else 0
            if kind == 1:
                add = left
            elif kind == 2:
                add = above[x]
            elif kind == 3:
                add = (left + above[x]) // 2
            elif kind == 4:
                guess = left + above[x] - corner
                add = min((left, above[x], corner), key=lambda value: abs(guess - value))
            else:
                add = 0
            line[x] = (line[x] + add) & 255
        above = bytes(line)
        yield [tuple(above[x:x + 3]) for x in range(0, stride, channels)]


# Written into a copy of the page, whose own has no script: what sticks out of the window, but for what scrolls by itself.
MEASURE = """<script>
const root = document.documentElement, scrolls = node => node.closest('.wide, .chart');
const out = [...document.querySelectorAll('body *')].filter(node => !scrolls(node) && node.getBoundingClientRect().right > innerWidth + 0.5);
root.dataset.measured = `${innerWidth} ${root.scrollWidth} ${out.map(node => node.tagName + '.' + node.className).join(',')}`;
</script></body>"""


def measure(browser, work, page, width):
    """The window's width, that of what is in it, and the names of what sticks out; in a frame, as windows have a least width."""
    (work / "narrow.html").write_text(page.replace("</body>", MEASURE))
    (work / "frame.html").write_text(
        f"""<body><iframe id="f" src="narrow.html" width="{width}" height="800" style="border:0"></iframe><script>
onload = () => {{ document.body.dataset.measured = document.getElementById('f').contentDocument.documentElement.dataset.measured; }};</script></body>""")
    seen = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files", "--window-size=1100,900",
                           f"--user-data-dir={work / 'profile'}", "--dump-dom", f"file://{work / 'frame.html'}"],
                          check=True, capture_output=True, text=True, timeout=120).stdout
    found = re.search(r'data-measured="(\d+) (\d+) ([^"]*)"', seen)
    assert found, f"nothing was measured: {seen[-500:]}"
    return int(found[1]), int(found[2]), found[3]


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    browser = shutil.which("chromium")
    if browser is None:
        print("SKIPPED: no chromium here; the page was not looked at", file=sys.stderr)
        raise SystemExit(77)
    llorch = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        version = subprocess.run([llorch, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        (work / "m.json").write_text(json.dumps({"kind": "llorch matrix", "version": version, "made_at": "2026-01-02T03:04:05.678Z",
                                                 "quick": False, "cells": [cell("one", "passed", 120.0), cell("two", "failed", 60.0)]}))
        drawn = subprocess.run([llorch, "matrix", "--models", "one=/none,two=/none", "--backends", "cpu", "--json", work / "m.json", "--html",
                                work / "m.html"], env={"LLORCH_HOME": folder, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert drawn.returncode == 1, drawn  # one cell failed
        page = (work / "m.html").read_text()
        window, content, outside = measure(browser, work, page, 400)
        assert (window, content, outside) == (400, 400, ""), f"{content} pixels in a window of {window}: {outside} stick out"
        # And it must be able to fail.
        assert measure(browser, work, page.replace("<h1>", "<h1 style='width:500px'>", 1), 400)[1:] != (400, ""), "too wide, and not seen"
        for outside in ("http:", "https:", "src=", "url(", "@import", "<script"):
            assert outside not in page, outside
        for scheme, ground in GROUND.items():
            picture = work / f"{scheme}.png"
            dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else ["--blink-settings=preferredColorScheme=1"]
            subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,900",
                            f"--user-data-dir={work / 'profile'}", f"--screenshot={picture}", *dark, f"file://{work / 'm.html'}"],
                           check=True, capture_output=True, timeout=120)
            rows = list(pixels(picture))
            assert rows[0][0] == ground, f"{scheme}: the ground is {rows[0][0]}, expected {ground}"
            bars = sum(row.count(BAR[scheme]) for row in rows)
            assert bars > 2000, f"{scheme}: {bars} pixels of bars"
            if len(sys.argv) > 2:
                shutil.copy(picture, sys.argv[2])
    print("drawn light and dark, with charts and nothing from outside; nothing sticks out of a window of 400 pixels")


if __name__ == "__main__":
    main()
