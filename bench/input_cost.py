#!/usr/bin/env python3
"""What a form of the products' input, or of their weights, costs in perplexity, with its statistical error.

    bench/input_cost.py --perplexity build/release/bin/llorch-perplexity --text own.txt --split '<|im_start|>system' -m a.gguf -m b.gguf

The text is cut into parts where --split begins (else at empty lines), each is scored with float input and with --form, and the
parts' differences say how far their mean may be off: what a rounding does varies far less from text to text than perplexity
itself. A text of a chat model's own kind is bench/own_text.py's. `--form half` is the one form of weights: it and exact weights are
computed by the reference, which is slow."""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile


def parts_of(text, mark, count):
    pieces = [mark + piece for piece in text.split(mark)[1:]]
    bounds = [number * len(pieces) // count for number in range(count + 1)]
    return ["".join(pieces[begin:end]) for begin, end in zip(bounds, bounds[1:])]


def words_of(form):
    """(what is compared with, the form) as options of llorch-perplexity."""
    if form == "half":
        return ["--backend", "reference", "--weights", "exact"], ["--backend", "reference", "--weights", form]
    return ["--input", "f32"], ["--input", form]


def score(options, model, text, words):
    """Tokens scored, and the mean of their negative log-probabilities."""
    command = [options.perplexity, "--model", model, "--text", text, "--ctx", str(options.ctx), *words, "--special", "--json",
               "--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"input_cost: {done.stderr.strip() or done.returncode}")
    found = json.loads(done.stdout)["models"][0]
    return found["tokens"], math.log(found["perplexity"])


def compare(scores):
    """(tokens, perplexity with float, change, its standard error) of [(tokens, loss, loss of the form), …]."""
    tokens = sum(count for count, _, _ in scores)
    loss = sum(count * plain for count, plain, _ in scores) / tokens
    change = sum(count * (formed - plain) for count, plain, formed in scores) / tokens
    spread = sum(count * (formed - plain - change) ** 2 for count, plain, formed in scores) / tokens
    return tokens, math.exp(loss), math.expm1(change), math.sqrt(spread / (len(scores) - 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--perplexity", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--split", default="\n\n")
    parser.add_argument("--parts", type=int, default=12)
    parser.add_argument("--ctx", type=int, default=256)
    parser.add_argument("--threads", type=int, default=0, help="0: one for each core; on a busy machine one is as fast as two")
    parser.add_argument("--form", default="int8", help="f16, bf16 or int8 of the input; half of the weights")
    parser.add_argument("-m", "--model", action="append", required=True)
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        parts = parts_of(file.read(), options.split, options.parts)
    exact, formed = words_of(options.form)
    print(f"{'model':<24} {'tokens':>7} {exact[-1]:>10} {options.form:>10} {'error':>8}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "part.txt")
        for model in options.model:
            scores = []
            for part in parts:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(part)
                count, plain = score(options, model, path, exact)
                scores.append((count, plain, score(options, model, path, formed)[1]))
            tokens, perplexity, change, error = compare(scores)
            print(f"{os.path.basename(model):<24} {tokens:>7} {perplexity:>10.3f} {change:>+10.3%} {error:>8.3%}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
