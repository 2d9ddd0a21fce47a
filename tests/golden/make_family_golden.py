#!/usr/bin/env python3
"""Makes the reference fixtures of the model families with Hugging Face transformers in float32.

Needs torch, transformers 5 and safetensors (any machine; no GPU). Usage: make_family_golden.py OUT [NAME...]
Writes OUT/families/NAME (SafeTensors, for some also PyTorch, config.json) with golden.safetensors: every intermediate
that the twelve checkpoints compare, a greedy continuation of 64 tokens, one that fills the context, and its logits.
Writes OUT/rope_frequencies.json: rotary frequencies for every kind of scaling, in the old and the new spelling.
The script checks its own reference first: attention rebuilt from rotated Q, K and V must equal what transformers computed,
and every greedy step must be decided by a clear margin, so that a float32 implementation with another summation order
still picks the same ids.
"""
import importlib
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

PROMPT_TOKENS = 12
GREEDY_TOKENS = 64
CONTEXT = 80
MARGIN_MIN = 0.01
DISTINCT_MIN = 24  # a continuation that only repeats itself proves little

COMMON = dict(vocab_size=192, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=16, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0,
              pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
LONG_ORIGINAL, LONG_PROMPT, LONG_CONTEXT = 32, 36, 100
LONG = dict(rope_type="longrope", rope_theta=10000.0,
            short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5], long_factor=[1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 14.0, 20.0])
GEMMA3_ROPE = {"full_attention": dict(rope_type="linear", factor=4.0, rope_theta=100000.0),
               "sliding_attention": dict(rope_type="default", rope_theta=1000.0)}

# name: (configuration class, its module, model class, settings)
FAMILIES = {
    "llama": ("LlamaConfig", "llama", "LlamaForCausalLM", dict(rope_parameters=LLAMA3)),
    "mistral": ("MistralConfig", "mistral", "MistralForCausalLM", dict(sliding_window=11)),
    "qwen2": ("Qwen2Config", "qwen2", "Qwen2ForCausalLM",
              dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen3": ("Qwen3Config", "qwen3", "Qwen3ForCausalLM",
              dict(head_dim=32, rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=True)),
    "phi3": ("Phi3Config", "phi3", "Phi3ForCausalLM",
             dict(sliding_window=19, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                                          partial_rotary_factor=0.75))),
    "phi3_long": ("Phi3Config", "phi3", "Phi3ForCausalLM",
                  dict(max_position_embeddings=LONG_CONTEXT, original_max_position_embeddings=LONG_ORIGINAL,
                       rope_parameters=LONG)),
    "gemma2": ("Gemma2Config", "gemma2", "Gemma2ForCausalLM",
               dict(sliding_window=11, query_pre_attn_scalar=24, attn_logit_softcapping=5.0, num_hidden_layers=3,
                    final_logit_softcapping=20.0)),
    "gemma3": ("Gemma3TextConfig", "gemma3", "Gemma3ForCausalLM",
               dict(sliding_window=11, query_pre_attn_scalar=24, num_hidden_layers=3, rope_parameters=GEMMA3_ROPE,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
}
ALSO_PYTORCH = ("llama", "qwen2")


def make_config(name):
    config_class, _, _, settings = FAMILIES[name]
    settings = {**COMMON, **settings}
    if name.startswith("phi3"):
        del settings["head_dim"]  # Phi-3 has none: hidden_size / num_attention_heads
    return getattr(transformers, config_class)(attn_implementation="eager", **settings)


def seeded_model(name, config, seed):
    """Random weights large enough that each mistake (window, pairs of RoPE, QK norm, caps) shows far above tolerances."""
    generator = torch.Generator().manual_seed(seed)
    model = getattr(transformers, FAMILIES[name][2])(config).float().eval()
    gemma = name.startswith("gemma")
    # With a tied output each token predicts itself unless the layers add more to the stream than the embedding did.
    louder = 4.0 if config.tie_word_embeddings else 1.0
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if gemma and "post_" in parameter_name:
                parameter.copy_(values * 2 + 8)
            elif "norm" in parameter_name:
                parameter.copy_(values * 0.3 + (0.0 if gemma else 1.0))  # Gemma keeps weight - 1
            elif parameter_name.endswith("bias"):
                parameter.copy_(values * 0.3)
            elif "embed_tokens" in parameter_name or "lm_head" in parameter_name:
                parameter.copy_(values * 0.2)
            else:
                loud = louder if "o_proj" in parameter_name or "down_proj" in parameter_name else 1.0
                parameter.copy_(values * loud * 1.3 / parameter.shape[1] ** 0.5)
    return model


class AttentionRecorder:
    """Sees what attention is given in every layer, and checks the scores it rebuilds against the probabilities used."""

    def __init__(self, family):
        self.module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        self.original = self.module.eager_attention_forward
        self.layers = {}

    def __enter__(self):
        self.module.eager_attention_forward = self.record
        return self

    def __exit__(self, *_):
        self.module.eager_attention_forward = self.original

    def record(self, module, query, key, value, attention_mask, **kwargs):
        output, probabilities = self.original(module, query, key, value, attention_mask, **kwargs)
        scaling = kwargs.get("scaling") or module.head_dim ** -0.5
        groups = query.shape[1] // key.shape[1]
        scores = query @ key.repeat_interleave(groups, dim=1).transpose(2, 3) * scaling
        if kwargs.get("softcap"):
            scores = torch.tanh(scores / kwargs["softcap"]) * kwargs["softcap"]
        scores = scores.masked_fill(attention_mask < -1e30, float("-inf"))
        assert torch.allclose(scores.softmax(-1), probabilities, atol=1e-6), "reference attention disagrees with itself"
        # Each as (tokens, heads, ...).
        self.layers[module.layer_idx] = tuple(t[0].transpose(0, 1) for t in (scores, key, value))
        return output, probabilities


def run(name, model, ids):
    """One forward pass with every intermediate of block 0, and the keys and values of all layers."""
    seen = {}

    def keep(key):
        def hook(_module, _inputs, output):
            seen[key] = (output[0] if isinstance(output, tuple) else output).detach()[0]
        return hook

    def keep_input(key):
        def hook(_module, inputs):
            seen[key] = inputs[0].detach()[0]
        return hook

    block = model.model.layers[0]
    post_norms = hasattr(block, "pre_feedforward_layernorm")
    modules = {"ln_1": block.input_layernorm, "block_0": block, "ln_f": model.model.norm,
               "attn_out": block.post_attention_layernorm if post_norms else block.self_attn.o_proj,
               "ln_2": block.pre_feedforward_layernorm if post_norms else block.post_attention_layernorm,
               "mlp_out": block.post_feedforward_layernorm if post_norms else block.mlp}
    if hasattr(block.self_attn, "qkv_proj"):
        modules["qkv"] = block.self_attn.qkv_proj
    else:
        modules |= {part: getattr(block.self_attn, part) for part in ("q_proj", "k_proj", "v_proj")}
    hooks = [module.register_forward_hook(keep(key)) for key, module in modules.items()]
    hooks.append(block.self_attn.o_proj.register_forward_pre_hook(keep_input("attn_merged")))
    with torch.no_grad(), AttentionRecorder(FAMILIES[name][1]) as recorder:
        out = model(ids[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    if "qkv" not in seen:
        seen["qkv"] = torch.cat([seen.pop(part) for part in ("q_proj", "k_proj", "v_proj")], dim=1)
    seen["scores"] = recorder.layers[0][0]
    for layer, (_, keys, values) in recorder.layers.items():
        seen[f"cache_k.{layer}"] = keys
        seen[f"cache_v.{layer}"] = values
    seen["logits"] = out.logits[0]
    seen["softmax_last"] = out.logits[0, -1].double().softmax(-1).float()
    return seen


def greedy(model, ids, count):
    """Greedy continuation without a cache; None as soon as the best is not clearly better than the second."""
    ids = list(ids)
    for _ in range(count):
        with torch.no_grad():
            top = model(torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        if top.values[0] - top.values[1] < MARGIN_MIN:
            return None
        ids.append(top.indices[0].item())
    return ids


def write_golden(name, model, path, prompt, greedy_tokens, full_prompt):
    """full_prompt: tokens of the prompt from which the context (or all that greedy_tokens allows) is filled."""
    context = model.config.max_position_embeddings
    short = greedy(model, prompt.tolist(), greedy_tokens)
    full = short and greedy(model, prompt[:full_prompt].tolist(), context - full_prompt)
    if not full or len(set(short)) < DISTINCT_MIN or len(set(full)) < DISTINCT_MIN:
        return False
    tensors = {key: value.contiguous().float() for key, value in run(name, model, prompt).items()}
    full_ids = torch.tensor(full)
    with torch.no_grad():
        tensors["full_logits"] = model(full_ids[None], use_cache=False).logits[0].contiguous()
    save_file({"ids": prompt.to(torch.int32), "greedy_ids": torch.tensor(short, dtype=torch.int32),
               "full_ids": full_ids.to(torch.int32), **tensors}, path)
    return True


def write_short_golden(name, model, path, prompt):
    """A sequence that stays within LongRoPE's original context, which transformers rotates by the short factors."""
    ids = greedy(model, prompt[:4].tolist(), LONG_ORIGINAL - 4)
    if not ids:
        return False
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].contiguous()
    save_file({"ids": torch.tensor(ids, dtype=torch.int32), "logits": logits}, path)
    return True


def write_family(name, out):
    folder = out / "families" / name
    folder.mkdir(parents=True, exist_ok=True)
    long = name == "phi3_long"
    for seed in range(500):
        model = seeded_model(name, make_config(name), seed)
        generator = torch.Generator().manual_seed(seed + 1000)
        prompt = torch.randint(0, model.config.vocab_size, (LONG_PROMPT if long else PROMPT_TOKENS,),
                               generator=generator)
        # transformers uses the long factors once a sequence is longer than the original context: start beyond it.
        if long and not write_short_golden(name, model, folder / "golden_short.safetensors", prompt):
            continue
        if write_golden(name, model, folder / "golden.safetensors", prompt, GREEDY_TOKENS,
                        full_prompt=LONG_PROMPT if long else 1):
            break
    else:
        raise SystemExit(f"{name}: no seed with a clear greedy margin")
    model.config.save_pretrained(folder)
    tied = model.config.tie_word_embeddings
    state = {key: value.contiguous() for key, value in model.state_dict().items()
             if not (tied and key == "lm_head.weight")}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    if name in ALSO_PYTORCH:
        (folder / "pytorch").mkdir(exist_ok=True)
        model.config.save_pretrained(folder / "pytorch")
        torch.save(model.state_dict(), folder / "pytorch" / "pytorch_model.bin")
    print(f"{name}: seed {seed}")


def rope_cases():
    """(what config.json says, the sequence length for which transformers is asked)"""
    base = dict(model_type="llama", hidden_size=256, num_attention_heads=4, num_hidden_layers=2, intermediate_size=64,
                vocab_size=32, max_position_embeddings=8192)
    llama3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=2048)
    yarn = dict(factor=4.0, original_max_position_embeddings=2048)
    factors = dict(short_factor=[1 + i / 40 for i in range(32)], long_factor=[1 + i * i / 20 for i in range(32)])
    phi3 = {**base, "model_type": "phi3", "original_max_position_embeddings": 4096}
    return {
        "default": (base, 0),
        "theta, old spelling": ({**base, "rope_theta": 500000.0}, 0),
        "theta, new spelling": ({**base, "rope_parameters": dict(rope_type="default", rope_theta=1e6)}, 0),
        "scaling null": ({**base, "rope_scaling": None, "rope_theta": 1e6}, 0),
        "head_dim of its own": ({**base, "head_dim": 80}, 0),
        "linear, old spelling": ({**base, "rope_scaling": dict(type="linear", factor=2.5)}, 0),
        "linear, new spelling": ({**base, "rope_parameters": dict(rope_type="linear", factor=2.5,
                                                                  rope_theta=2e4)}, 0),
        "llama3, old spelling": ({**base, "rope_theta": 500000.0,
                                  "rope_scaling": dict(rope_type="llama3", **llama3)}, 0),
        "llama3, new spelling": ({**base, "rope_parameters": dict(rope_type="llama3", rope_theta=500000.0,
                                                                  **llama3)}, 0),
        "yarn, old spelling": ({**base, "rope_scaling": dict(type="yarn", **yarn)}, 0),
        "yarn, new spelling": ({**base, "rope_parameters": dict(rope_type="yarn", rope_theta=1e6, **yarn)}, 0),
        "yarn with betas": ({**base, "rope_scaling": dict(rope_type="yarn", beta_fast=16, beta_slow=2, **yarn)}, 0),
        "yarn with attention factor": ({**base, "rope_scaling": dict(rope_type="yarn", attention_factor=1.3,
                                                                     **yarn)}, 0),
        "yarn with mscale": ({**base, "rope_scaling": dict(rope_type="yarn", mscale=0.7, mscale_all_dim=1.5,
                                                           **yarn)}, 0),
        "yarn, not truncated": ({**base, "rope_scaling": dict(rope_type="yarn", truncate=False, **yarn)}, 0),
        "longrope, long": ({**phi3, "rope_scaling": dict(type="longrope", **factors)}, 8192),
        "longrope, short": ({**phi3, "rope_scaling": dict(type="longrope", **factors)}, 4096),
        "longrope, called su": ({**phi3, "rope_scaling": dict(type="su", original_max_position_embeddings=4096,
                                                           **factors)}, 8192),
        "longrope with attention factor": ({**phi3, "rope_scaling": dict(type="longrope", attention_factor=1.19,
                                                                         **factors)}, 8192),
        "longrope, a part of the head": ({**phi3, "partial_rotary_factor": 0.5, "rope_scaling":
                                          dict(type="longrope", **{k: v[:16] for k, v in factors.items()})}, 8192),
    }


def write_rope_frequencies(path):
    cases = []
    for name, (settings, length) in rope_cases().items():
        config = transformers.AutoConfig.for_model(**json.loads(json.dumps(settings)))
        kind = config.rope_parameters["rope_type"]
        if kind == "default":
            family = importlib.import_module(f"transformers.models.{config.model_type}.modeling_{config.model_type}")
            rotary = next(getattr(family, n) for n in dir(family) if n.endswith("RotaryEmbedding"))
            frequencies, magnitude = rotary.compute_default_rope_parameters(config)
        else:
            frequencies, magnitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length or None)
        cases.append(dict(name=name, config=settings, context=length, magnitude=magnitude,
                          frequencies=[float(value) for value in frequencies]))
    path.write_text(json.dumps(cases, indent=1) + "\n")


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in sys.argv[2:] or [*FAMILIES]:
        write_family(name, out)
    write_rope_frequencies(out / "rope_frequencies.json")


if __name__ == "__main__":
    main()
