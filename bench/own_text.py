#!/usr/bin/env python3
"""A text of a chat model's own kind: its answers to questions, one after the other, in its chat markers.

    bench/own_text.py --worker build/release/bin/llorch-cpud --model minimind2-small/hf -o own.txt
    llorch-perplexity --model minimind2-small-Q8_0.gguf --text own.txt --special --input int8

What a rounding costs is measured on text that the model was made for (docs/kernels.md), and what the unrounded model
says is such text. Every answer has its seed and temperature 1, so the same model gives the same text. The markers are
ChatML's (minimind2, Qwen); a model with others names them by --turn."""
import argparse
import concurrent.futures
import json
import subprocess
import sys
import threading
import urllib.request

SUBJECTS = ("the sun", "a river", "bread", "the moon", "a cat", "music", "friendship", "a computer", "winter", "the sea",
            "太阳", "茶", "春天", "中国历史", "数学", "健康", "机器学习", "读书", "朋友", "城市")
QUESTIONS = ("What is {}?", "Tell me a short story about {}.", "Why is {} important to people?", "请介绍一下{}。", "写一首关于{}的短诗。",
             "关于{}，你有什么建议？", "Name three facts about {}.", "怎样向孩子解释{}？")
SYSTEM = "You are a helpful assistant"
TURN = "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
LIMIT_S = 600
STREAMS = 16  # an answer has the same tokens among others as alone


def start(options):
    """The worker and its address: the log tells the port, and when the model is there."""
    worker = subprocess.Popen([options.worker, "--worker-id", "own-text", "--model", options.model, "--port", "0", "--log-format", "json",
                               "--threads", str(options.threads)], stderr=subprocess.PIPE, text=True)
    port = None
    for line in worker.stderr:
        said = json.loads(line)
        port = said.get("port", port)
        if said["message"] == "ready":
            threading.Thread(target=worker.stderr.read, daemon=True).start()  # a full pipe would stop it
            return worker, f"http://127.0.0.1:{port}"
    raise SystemExit(f"own_text: {options.worker} ended with {worker.wait()} before it listened")


def ask(address, question, seed, tokens):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    body = {"messages": messages, "max_tokens": tokens, "temperature": 1, "seed": seed}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        said = json.load(answer)
    return said["choices"][0]["message"]["content"] or "", said["usage"]["completion_tokens"]


def answered(address, seed, tokens):
    question = QUESTIONS[seed % len(QUESTIONS)].format(SUBJECTS[seed // len(QUESTIONS) % len(SUBJECTS)])
    return question, ask(address, question, seed, tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--answers", type=int, default=150, help="150 of minimind2's have some 25,000 tokens")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first: others than those of an earlier text")
    parser.add_argument("--threads", type=int, default=0, help="of the worker; on a busy machine one is as fast as two")
    parser.add_argument("--answer", type=int, default=256, help="tokens of an answer, at most")
    parser.add_argument("--turn", default=TURN, help="how a question and its answer are written")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    worker, address = start(options)
    try:
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as streams:
            told, turns = 0, []
            for question, (answer, tokens) in streams.map(lambda seed: answered(address, seed, options.answer),
                                                               range(options.first, options.first + options.answers)):
                told += tokens
                turns.append(options.turn.format(system=SYSTEM, question=question, answer=answer))
    finally:
        worker.terminate()
        worker.wait()
    with open(options.output, "w", encoding="utf-8") as file:
        file.write("".join(turns))
    print(f"{len(turns)} answers, {told} tokens: {options.output}")


if __name__ == "__main__":
    sys.exit(main())
