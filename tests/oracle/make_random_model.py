#!/usr/bin/env python3
"""Writes a folder in Hugging Face layout with the shape of a real model, random F16 weights and a real tokenizer.

For measuring memory and speed where the real weights are not at hand: what comes out of it is noise.

    make_random_model.py SHAPE TOKENIZER_FOLDER OUT_FOLDER
"""
import json
import pathlib
import random
import shutil
import struct
import sys

SHAPES = {
    "tinyllama-1.1b": dict(model_type="llama", hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                           num_attention_heads=32, num_key_value_heads=4, vocab_size=32000,
                           max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0,
                           tie_word_embeddings=False),
    "qwen2.5-0.5b": dict(model_type="qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                         num_attention_heads=14, num_key_value_heads=2, vocab_size=151936,
                         max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1000000.0,
                         tie_word_embeddings=True),
    "smollm2-135m": dict(model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, vocab_size=49152,
                         max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000.0,
                         tie_word_embeddings=True),
}


def tensors(shape):
    """(name, dimensions) of every tensor."""
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    head = hidden // shape["num_attention_heads"]
    keys = head * shape["num_key_value_heads"]
    yield "model.embed_tokens.weight", [shape["vocab_size"], hidden]
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows in (("q", hidden), ("k", keys), ("v", keys)):
            yield f"{at}self_attn.{name}_proj.weight", [rows, hidden]
            if shape["model_type"] == "qwen2":
                yield f"{at}self_attn.{name}_proj.bias", [rows]
        yield f"{at}self_attn.o_proj.weight", [hidden, hidden]
        yield f"{at}mlp.gate_proj.weight", [inner, hidden]
        yield f"{at}mlp.up_proj.weight", [inner, hidden]
        yield f"{at}mlp.down_proj.weight", [hidden, inner]
        yield f"{at}input_layernorm.weight", [hidden]
        yield f"{at}post_attention_layernorm.weight", [hidden]
    yield "model.norm.weight", [hidden]
    if not shape["tie_word_embeddings"]:
        yield "lm_head.weight", [shape["vocab_size"], hidden]


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES:
        sys.exit(f"{__doc__}\nshapes: {', '.join(SHAPES)}")
    shape, out = SHAPES[sys.argv[1]], pathlib.Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    for file in pathlib.Path(sys.argv[2]).iterdir():
        if file.name.startswith("tokenizer") or file.name == "special_tokens_map.json":
            shutil.copy(file, out / file.name)
    config = dict(shape, architectures=[shape["model_type"].capitalize() + "ForCausalLM"], hidden_act="silu",
                  bos_token_id=1, eos_token_id=2, torch_dtype="float16")
    (out / "config.json").write_text(json.dumps(config, indent=1))
    header, offset = {}, 0
    for name, dims in tensors(shape):
        size = 2
        for dim in dims:
            size *= dim
        header[name] = {"dtype": "F16", "shape": dims, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = random.Random(7)
    block = struct.pack("<524287e", *(draw.gauss(0, 0.02) for _ in range(524287)))
    with open(out / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        while offset > 0:
            file.write(block[:offset])
            offset -= min(offset, len(block))


if __name__ == "__main__":
    main()
