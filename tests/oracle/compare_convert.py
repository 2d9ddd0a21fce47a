#!/usr/bin/env python3
"""Converts Hugging Face models with llorch-convert and asks llama.cpp about the results.

  compare_convert.py --bin build/release/bin --llama 'chroot /opt/sid' FOLDER…

For each folder with weights, config.json and what transformers made of them (golden.json or golden.safetensors):
  * the F32 and F16 GGUF files, run by llama-server, must continue the golden prompt with the golden greedy ids
    (F16 may part from them where two logits are nearly equal: reported, not an error);
  * every quantised file must have the same type for every tensor as llama-quantize gives it, and for the types whose
    rounding is fixed the same bytes. The K types' errors are printed side by side.
A model without a tokenizer gets one made up, so that llama.cpp can load it; only ids are compared.

Opt-in: needs llama.cpp's programs (--llama is what to put in front of them) and numpy with gguf in the Python that
runs this or, with --llama 'chroot DIR', in the one in there.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

TYPES = {"q8_0": "Q8_0", "q4_0": "Q4_0", "q4_1": "Q4_1", "q5_0": "Q5_0", "q5_1": "Q5_1", "q6_k": "Q6_K",
         "q4_k": "Q4_K_S", "q5_k": "Q5_K_S", "q4_k_m": "Q4_K_M", "q5_k_m": "Q5_K_M"}

COMPARE = r"""
import gguf, json, sys
import numpy as np
ours, theirs, exact = [gguf.GGUFReader(f).tensors for f in sys.argv[1:4]]
theirs = {t.name: t for t in theirs}
exact = {t.name: t for t in exact}
other_types, other_bytes, errors = [], [], {}
for t in ours:
    u = theirs[t.name]
    if t.tensor_type != u.tensor_type:
        other_types.append(f"{t.name}: {t.tensor_type.name}, not {u.tensor_type.name}")
        continue
    kind = t.tensor_type.name
    if not kind.endswith("_K"):
        if t.data.tobytes() != u.data.tobytes():
            other_bytes.append(t.name)
        continue
    x = np.array(exact[t.name].data, dtype=np.float64).reshape(-1)
    sums = errors.setdefault(kind, [0.0, 0.0, 0.0])
    for i, q in enumerate((t, u)):
        sums[i] += ((gguf.dequantize(q.data, q.tensor_type).reshape(-1).astype(np.float64) - x) ** 2).sum()
    sums[2] += (x ** 2).sum()
print(json.dumps({"types": other_types, "bytes": other_bytes,
                  "rms": {k: [(v[0] / v[2]) ** 0.5, (v[1] / v[2]) ** 0.5] for k, v in errors.items()}}))
"""


def byte_chars():
    """GPT-2's characters for bytes: printable ones stand for themselves, others for U+0100 and up."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars = {b: chr(b) for b in kept}
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + len(chars) - len(kept))
    return [chars[b] for b in range(256)]


def made_up_tokenizer(size):
    pieces = byte_chars()[:size] + [f"t{i}" for i in range(256, size)]
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)}, "merges": []}}


def read_golden(folder):
    if (folder / "golden.json").exists():
        golden = json.loads((folder / "golden.json").read_text())
        return golden["input_ids"], golden["greedy_ids"]
    data = (folder / "golden.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])

    def ids(name):
        begin, end = header[name]["data_offsets"]
        return list(struct.unpack(f"<{(end - begin) // 4}i", data[8 + size + begin:8 + size + end]))
    return ids("ids"), ids("greedy_ids")


def prepare(folder, work):
    """The folder itself, or a copy with a tokenizer."""
    if (folder / "tokenizer.json").exists():
        return folder
    copy = work / "model"  # llama.cpp expects Phi-3's tokens of a model with that name
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, copy / name)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    (copy / "tokenizer.json").write_text(json.dumps(made_up_tokenizer(size)))
    return copy


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask_server(llama, model, prompt, count):
    port = free_port()
    command = [*llama, "llama-server", "-m", str(model), "--port", str(port), "-t", "2", "-c", "512", "--no-warmup",
               "-ctk", "f32", "-ctv", "f32", "-np", "1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    body = json.dumps({"prompt": prompt, "n_predict": count, "temperature": 0, "return_tokens": True,
                       "ignore_eos": False, "cache_prompt": False, "n_probs": 0}).encode()
    try:
        for _ in range(600):
            if server.poll() is not None:
                return None
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body,
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)["tokens"]
            except (ConnectionError, urllib.error.URLError):
                time.sleep(0.1)
        return None
    finally:
        server.terminate()
        server.wait()


def convert(args, source, out, kind):
    subprocess.run([args.bin / "llorch-convert", source, out, "--type", kind, "--threads", "2", "--json", "--force"],
                   check=True, stdout=subprocess.DEVNULL)


def compare_ids(args, folder, source, work):
    prompt, expected = read_golden(folder)
    expected = expected[len(prompt):]
    config = json.loads((folder / "config.json").read_text())
    window = config.get("sliding_window") or 0
    if window and config["model_type"] in ("mistral", "phi3"):
        # llama.cpp runs these without their window.
        expected = expected[:max(0, window - len(prompt))]
    failures = 0
    for kind in ("f32", "f16"):
        out = work / f"{folder.name}-{kind}.gguf"
        convert(args, source, out, kind)
        found = ask_server(args.llama, out, prompt, len(expected)) if expected else []
        same = 0
        while found and same < min(len(found), len(expected)) and found[same] == expected[same]:
            same += 1
        # llama.cpp ends at its end-of-text token, which transformers was told to run past.
        good = found is not None and same == len(found) and (same > 0 or not expected)
        print(f"  {kind}: {same} of {len(expected)} greedy ids agree"
              + ("" if good else f"; llama.cpp says {found and found[:same + 3]}"))
        failures += not good and kind == "f32"
    return failures


def compare_types(args, folder, work):
    failures = 0
    exact = work / f"{folder.name}-f32.gguf"
    python = [*args.llama, "python3"] if args.llama else [sys.executable]
    for kind, theirs_name in TYPES.items():
        ours, theirs = work / f"ours-{kind}.gguf", work / f"theirs-{kind}.gguf"
        convert(args, exact, ours, kind)
        subprocess.run([*args.llama, "llama-quantize", str(exact), str(theirs), theirs_name, "2"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        result = json.loads(subprocess.run([*python, "-", str(ours), str(theirs), str(exact)], input=COMPARE, text=True,
                                           check=True, capture_output=True).stdout)
        good = not result["types"] and not result["bytes"] and all(a <= b for a, b in result["rms"].values())
        failures += not good
        rms = ", ".join(f"{k} {a:.5f} against {b:.5f}" for k, (a, b) in result["rms"].items())
        print(f"  {kind}: {'same' if good else 'DIFFERS: ' + str(result)[:400]}{'; error ' + rms if rms else ''}")
        ours.unlink()
        theirs.unlink()
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--llama", type=shlex.split, default=[])
    parser.add_argument("--work", type=pathlib.Path, help="a folder that both sides see")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    failures = 0
    for folder in args.folders:
        folder = folder.resolve()
        with tempfile.TemporaryDirectory(dir=args.work) as work:
            work = pathlib.Path(work).resolve()
            os.chmod(work, 0o755)
            print(folder, flush=True)
            failures += compare_ids(args, folder, prepare(folder, work), work)
            failures += compare_types(args, folder, work)
    print("all the same" if failures == 0 else f"{failures} differ")
    return min(failures, 1)


sys.exit(main())
