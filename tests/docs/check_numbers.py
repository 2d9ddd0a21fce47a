#!/usr/bin/env python3
"""That the generated pages are what their programs make of the files beside them, so that no number in them was typed:
docs/MODEL_SUPPORT.md of docs/data/model_support.json (`llorch matrix --show`), docs/PERFORMANCE_BENCHMARKS.md and its picture
of docs/data/performance_benchmarks.json (bench/peers_page.py), docs/fleet_cost.svg of docs/data/fleet_cost.json (bench/plot_fleet.py).

Usage: check_numbers.py ROOT LLORCH
"""
import difflib
import os
import pathlib
import subprocess
import sys
import tempfile


def differs(found, wanted, name, mend):
    if found == wanted:
        return False
    sys.stdout.writelines(list(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), name, "from its data"))[:60])
    print(f"{name} is not what its data says: {mend}")
    return True


def check_models(root, llorch, folder):
    source, made = root / "docs/data/model_support.json", folder / "page.md"
    ran = subprocess.run([llorch, "matrix", "--show", source, "--markdown", made], env={**os.environ, "LLORCH_HOME": str(folder)},
                         capture_output=True, text=True, check=False)
    if not made.exists():
        raise SystemExit(f"llorch matrix --show {source} made no page: {ran.stderr}")
    return differs((root / "docs/MODEL_SUPPORT.md").read_text(), made.read_text(), "docs/MODEL_SUPPORT.md",
                   "llorch matrix --show docs/data/model_support.json --markdown docs/MODEL_SUPPORT.md")


def check_speeds(root, folder):
    source = root / "docs/data/performance_benchmarks.json"
    if not source.exists():
        print("docs/PERFORMANCE_BENCHMARKS.md: made before its numbers were kept; not checked")
        return False
    subprocess.run([sys.executable, root / "bench/peers_page.py", source, folder], check=True)
    bad = False
    for name in ("PERFORMANCE_BENCHMARKS.md", "performance_benchmarks.svg"):
        bad |= differs((root / "docs" / name).read_text(), (folder / name).read_text(), f"docs/{name}", f"bench/peers_page.py {source} docs")
    return bad


def check_fleet(root):
    source = root / "docs/data/fleet_cost.json"
    drawn = subprocess.run([sys.executable, root / "bench/plot_fleet.py", source], capture_output=True, text=True, check=True)
    return differs((root / "docs/fleet_cost.svg").read_text(), drawn.stdout, "docs/fleet_cost.svg", "bench/plot_fleet.py docs/data/fleet_cost.json > docs/fleet_cost.svg")


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    root, llorch = pathlib.Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        bad = [check_models(root, llorch, pathlib.Path(folder)), check_speeds(root, pathlib.Path(folder)), check_fleet(root)]
    raise SystemExit(1 if any(bad) else 0)


if __name__ == "__main__":
    main()
