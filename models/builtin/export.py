#!/usr/bin/env python3
"""Writes the trained model as GGUF: export.py MODEL_DIR OUT.gguf [--type q8_0|f32]

The same file as `llorch-convert MODEL_DIR OUT.gguf --type q8_0` gives, written with the gguf package instead, so
that the model could be checked against a converter that is not ours. Rows of Q and K are reordered from halves to
adjacent pairs, as the architecture "llama" wants them in GGUF.
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def paired(weight, heads):
    """Row i and row i + half of each head become neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def add_metadata(writer, config, vocab, merges):
    writer.add_name("llama-orch stories 14M")
    writer.add_author("llama-orch")
    writer.add_description("A small story teller, trained from scratch on fairy tales, novels and TinyStories.")
    writer.add_license("apache-2.0")
    writer.add_size_label("14M")
    writer.add_languages(["en"])
    writer.add_tags(["text-generation", "stories"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = sorted(vocab, key=vocab.get)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (len(tokens) - 1))
    writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out")
    parser.add_argument("--type", choices=("q8_0", "f32"), default="q8_0")
    args = parser.parse_args()
    config = json.loads((args.model / "config.json").read_text())
    tokenizer = json.loads((args.model / "tokenizer.json").read_text())["model"]
    kind = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "f32": gguf.GGMLQuantizationType.F32}[args.type]

    writer = gguf.GGUFWriter(args.out, "llama")
    add_metadata(writer, config, tokenizer["vocab"], tokenizer["merges"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if args.type == "q8_0" else gguf.LlamaFileType.ALL_F32)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, weight in load_file(args.model / "model.safetensors").items():
        weight = weight.astype(np.float32)
        if "q_proj" in name:
            weight = paired(weight, config["num_attention_heads"])
        if "k_proj" in name:
            weight = paired(weight, config["num_key_value_heads"])
        if weight.ndim == 2 and args.type == "q8_0":
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
