#!/usr/bin/env python3
"""Asks the real TinyLlama, in IQ2_XXS, for the capital of France: worker, chat template, greedy ids and stream, as a user has them.

Usage: ask_tinyllama.py LLORCH
$LLORCH_TEST_TINYLLAMA names the file (docs/models/llama.md says where it comes from); exit code 77 without.
"""
import os
import subprocess
import sys
import tempfile

PATIENCE_S = 200  # two seconds on two idle cores
EXPECTED = "The capital of France is Paris"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    model = os.environ.get("LLORCH_TEST_TINYLLAMA")
    if not model:
        print("SKIPPED: LLORCH_TEST_TINYLLAMA names no file", file=sys.stderr)
        raise SystemExit(77)
    with tempfile.TemporaryDirectory() as home:
        ran = subprocess.run([sys.argv[1], "run", "-m", model, "--temp", "0", "-n", "8", "What is the capital of France?"],
                             env={**os.environ, "LLORCH_HOME": home}, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    print(ran.stdout, ran.stderr)
    if ran.returncode != 0 or not ran.stdout.strip().startswith(EXPECTED):
        raise SystemExit(f"expected {EXPECTED!r}, found {ran.stdout.strip()!r} and exit code {ran.returncode}")


if __name__ == "__main__":
    main()
