#!/usr/bin/env python3
"""Makes quantised/NAME.gguf and NAME.golden.safetensors: every family in K types, and transformers' logits for it.

Needs torch, transformers 5, safetensors and gguf-py (no GPU). Usage: make_quantised_golden.py OUT
Rows are 256 wide, so that no type falls back to a smaller block, and each kind of matrix has another type: Q2_K to Q6_K and
IQ4_XS all take part in each family (GPT-2 has no matrix left for Q5_K). Blocks are random bytes whose scales are set so that the weights have the usual size;
gguf-py decodes them, and transformers computes in float32 with what it decoded. Whatever we compute differently is then the
decoding, or what a family does with a decoded matrix, and not the rounding of a quantiser.
"""
import pathlib
import sys

import gguf
import numpy
import torch
import transformers
from gguf import GGMLQuantizationType as T
from safetensors.torch import save_file

WIDTH, INNER, HEADS, KV_HEADS, VOCAB, CONTEXT = 256, 256, 4, 1, 64, 64
PROMPT, GREEDY = 12, 16
MARGIN_MIN = 0.01

COMMON = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=INNER, num_attention_heads=HEADS,
              num_key_value_heads=KV_HEADS, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0,
              pad_token_id=None, rms_norm_eps=1e-5)
# name: (configuration class, model class, general.architecture, layers, settings, GGUF keys)
FAMILIES = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", "gpt2", 1,
             dict(vocab_size=VOCAB, n_embd=WIDTH, n_inner=INNER, n_head=HEADS, n_positions=CONTEXT), {}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", "llama", 1, {}, {}),
    "mistral": ("MistralConfig", "MistralForCausalLM", "llama", 2, dict(sliding_window=5),
                {"attention.sliding_window": 5}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", "qwen2", 1, {}, {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", "qwen3", 1, dict(head_dim=64), {}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", "phi3", 1, dict(sliding_window=7), {"attention.sliding_window": 7}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", "gemma2", 2,
               dict(sliding_window=5, query_pre_attn_scalar=64, head_dim=64, attn_logit_softcapping=5.0,
                    final_logit_softcapping=20.0),
               {"attention.sliding_window": 5, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 20.0}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", "gemma3", 2,
               dict(sliding_window=5, query_pre_attn_scalar=64, head_dim=64,
                    layer_types=["sliding_attention", "full_attention"],
                    rope_parameters={"full_attention": dict(rope_type="default", rope_theta=1e5),
                                     "sliding_attention": dict(rope_type="default", rope_theta=1e3)}),
               {"attention.sliding_window": 5, "attention.sliding_window_pattern": 2, "rope.freq_base": 1e5,
                "rope.freq_base_swa": 1e3}),
}

# A part of the GGUF name: the type of such matrices.
TYPES = {"attn_output": T.Q3_K, "token_embd": T.Q6_K, "output.weight": T.Q5_K, "attn_q.": T.Q4_K, "attn_k.": T.Q5_K,
         "attn_v.": T.Q6_K, "ffn_gate": T.Q2_K, "ffn_up": T.IQ4_XS, "ffn_down": T.Q4_K}
# Families with fewer, larger matrices.
FUSED_TYPES = TYPES | {"attn_qkv": T.Q4_K, "ffn_up": T.Q2_K, "ffn_down": T.IQ4_XS}
# Where a block has its float16 scales: bytes from its beginning.
SCALES = {T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,), T.IQ4_XS: (0,)}


def names(family, layers):
    """GGUF name: Hugging Face name."""
    if family == "gpt2":
        pairs = {"token_embd.weight": "transformer.wte.weight", "position_embd.weight": "transformer.wpe.weight",
                 "output_norm.weight": "transformer.ln_f.weight", "output_norm.bias": "transformer.ln_f.bias"}
        layer = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
                 "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
        return pairs | {f"blk.{i}.{ours}.{kind}": f"transformer.h.{i}.{theirs}.{kind}" for i in range(layers)
                        for ours, theirs in layer.items() for kind in ("weight", "bias")}
    pairs = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    layer = {"attn_norm": "input_layernorm", "attn_output": "self_attn.o_proj", "ffn_down": "mlp.down_proj"}
    if family.startswith("gemma"):
        layer |= {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
                  "post_ffw_norm": "post_feedforward_layernorm"}
    else:
        layer |= {"ffn_norm": "post_attention_layernorm"}
    if family == "phi3":
        layer |= {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
    else:
        layer |= {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"}
        layer |= {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj"}
    if family in ("qwen3", "gemma3"):
        layer |= {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    pairs |= {f"blk.{i}.{ours}.weight": f"model.layers.{i}.{theirs}.weight" for i in range(layers)
              for ours, theirs in layer.items()}
    if family == "qwen2":
        pairs |= {f"blk.{i}.attn_{part}.bias": f"model.layers.{i}.self_attn.{part}_proj.bias" for i in range(layers)
                  for part in "qkv"}
    return pairs


def random_blocks(random, kind, shape, deviation):
    """Blocks of any content whose values have about this standard deviation."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    assert shape[1] % elements == 0
    blocks = random.integers(0, 256, (shape[0] * shape[1] // elements, size), dtype=numpy.uint8)

    def set_scales(value):
        for place, offset in enumerate(SCALES[kind]):
            # The second scale takes the minimum away: about the middle of the first's range.
            scale = numpy.float16(value * (1.0 if place == 0 else {T.Q2_K: 1.5, T.Q4_K: 7.5, T.Q5_K: 15.5}[kind]))
            blocks[:, offset:offset + 2] = numpy.frombuffer(scale.tobytes(), dtype=numpy.uint8)

    set_scales(1e-3)
    set_scales(1e-3 * deviation / float(gguf.dequantize(blocks, kind).std()))
    return blocks.reshape(shape[0], -1)


def unpair(values, heads):
    """llama.cpp's files of Llama have the two halves of each head interleaved: back to Hugging Face's order."""
    return values.reshape(heads, values.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)


def make_tensors(family, model, layers, random):
    """GGUF tensors as (name, data, type), and the state that transformers gets."""
    state = model.state_dict()
    tied = model.config.tie_word_embeddings
    tensors, decoded = [], {}
    for ours, theirs in names(family, layers).items():
        if ours == "output.weight" and tied:
            continue
        shape = tuple(state[theirs].shape)
        transposed = family == "gpt2" and len(shape) == 2 and ".h." in theirs
        if transposed:
            shape = shape[::-1]
        types = FUSED_TYPES if family in ("gpt2", "phi3") else TYPES
        kind = next((kind for part, kind in types.items() if part in ours), None) if ours.endswith("weight") else None
        if len(shape) == 2 and kind is not None:
            loud = 4.0 if tied and ("attn_output" in ours or "ffn_down" in ours) else 1.0
            deviation = 0.2 if ours in ("token_embd.weight", "output.weight") else loud * 1.3 / shape[1] ** 0.5
            data = random_blocks(random, kind, shape, deviation)
            values = gguf.dequantize(data, kind).astype(numpy.float32)
        else:
            kind = T.F32
            centre = 1.0 if ours.endswith("norm.weight") else 0.0
            values = data = (random.standard_normal(shape) * 0.3 + centre).astype(numpy.float32)
        tensors.append((ours, data, kind))
        if FAMILIES[family][2] == "llama" and ("attn_q." in ours or "attn_k." in ours):
            values = unpair(values, HEADS if "attn_q." in ours else KV_HEADS)
        if family.startswith("gemma") and ours.endswith("norm.weight"):
            values = values - 1
        decoded[theirs] = torch.from_numpy(numpy.ascontiguousarray(values.T if transposed else values))
    return tensors, decoded


def write_gguf(path, family, layers, tensors):
    architecture, keys = FAMILIES[family][2], FAMILIES[family][5]
    writer = gguf.GGUFWriter(path, architecture)
    head_dim = WIDTH // HEADS
    numbers = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": layers, "feed_forward_length": INNER,
               "attention.head_count": HEADS}
    if family == "gpt2":
        writer.add_float32("gpt2.attention.layer_norm_epsilon", 1e-5)
    else:
        writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
        numbers |= {"attention.head_count_kv": KV_HEADS, "attention.key_length": head_dim,
                    "attention.value_length": head_dim, "rope.dimension_count": head_dim}
    for key, value in (numbers | keys).items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{key}", value)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def greedy(model, ids):
    ids = list(ids)
    for _ in range(GREEDY):
        top = model(torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        if top.values[0] - top.values[1] < MARGIN_MIN:
            return None
        ids.append(top.indices[0].item())
    return ids


def write_family(family, out):
    config_class, model_class, _, layers, settings, _ = FAMILIES[family]
    settings = {**({} if family == "gpt2" else COMMON), **settings}
    settings["n_layer" if family == "gpt2" else "num_hidden_layers"] = layers
    config = getattr(transformers, config_class)(attn_implementation="eager", **settings)
    model = getattr(transformers, model_class)(config).float().eval()
    for seed in range(200):
        random = numpy.random.default_rng(seed)
        tensors, decoded = make_tensors(family, model, layers, random)
        missing, unexpected = model.load_state_dict(decoded, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
        model.tie_weights()
        prompt = random.integers(0, VOCAB, PROMPT).tolist()
        with torch.no_grad():
            ids = greedy(model, prompt)
            if ids is None or len(set(ids)) < 8:
                continue
            logits = model(torch.tensor([prompt]), use_cache=False).logits[0].contiguous()
        write_gguf(out / f"{family}.gguf", family, layers, tensors)
        save_file({"ids": torch.tensor(prompt, dtype=torch.int32), "greedy_ids": torch.tensor(ids, dtype=torch.int32),
                   "logits": logits}, out / f"{family}.golden.safetensors")
        print(f"{family}: seed {seed}, logits {logits.std():.2f} wide, {sorted({kind.name for _, _, kind in tensors})}")
        return
    raise SystemExit(f"{family}: no seed with a clear greedy margin")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    transformers.logging.set_verbosity_error()
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        write_family(family, out)


if __name__ == "__main__":
    main()
