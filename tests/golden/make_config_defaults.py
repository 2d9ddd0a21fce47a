#!/usr/bin/env python3
"""Makes config_defaults.json: what transformers takes for each key that a config.json leaves out or sets to null.

Needs torch and transformers 5.12 (no GPU, no weights: models are built on torch's meta device). Usage:
make_config_defaults.py OUT.json
Each family has one or more complete configurations, in the new spelling (rope_parameters) and the old one (rope_theta,
rope_scaling), whose values all differ from the defaults. Each key is dropped in turn, and set to null in turn. What is
written is read off the built model where it shows there (widths, biases, norms, activations), else off the configuration:
the numbers of the complete one, and for each case those that changed, or "error" where transformers refuses: when it reads the
file, builds the model or asks it for its first logits.
"""
import copy
import importlib
import inspect
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SIZES = dict(vocab_size=96, hidden_size=1024, intermediate_size=160, num_hidden_layers=3, num_attention_heads=64,
             num_key_value_heads=16, max_position_embeddings=192, hidden_act="relu", rms_norm_eps=3e-4,
             tie_word_embeddings=True, head_dim=32)
LAYERS = ["full_attention", "sliding_attention", "full_attention"]
FACTORS = dict(short_factor=[1 + i / 10 for i in range(8)], long_factor=[1.0 + i for i in range(8)])
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.5, high_freq_factor=3.0,
              original_max_position_embeddings=64)
YARN = dict(factor=4.0, original_max_position_embeddings=48, beta_fast=8.0, beta_slow=0.5)


def without(settings, *keys):
    return {key: value for key, value in settings.items() if key not in keys}


def gemma(settings, **own):
    return {**without(settings, "hidden_act", "tie_word_embeddings"), "hidden_activation": "relu",
            "tie_word_embeddings": False, "query_pre_attn_scalar": 24, "sliding_window": 11, **own}


PHI3 = {**without(SIZES, "head_dim"), "sliding_window": 19, "original_max_position_embeddings": 64}

# (family, spelling, config.json)
BASES = [
    ("gpt2", "its own", dict(model_type="gpt2", vocab_size=96, n_positions=192, n_embd=64, n_layer=3, n_head=4, n_inner=160,
                             activation_function="relu", layer_norm_epsilon=3e-4, tie_word_embeddings=False)),
    ("llama", "new", dict(model_type="llama", **SIZES, attention_bias=True, mlp_bias=True,
                          rope_parameters=dict(rope_theta=5e5, **LLAMA3))),
    ("llama", "old", dict(model_type="llama", **SIZES, attention_bias=True, mlp_bias=True, rope_theta=5e5,
                          rope_scaling=dict(type="linear", factor=2.5))),
    ("llama", "old, yarn", dict(model_type="llama", **SIZES, rope_theta=5e5,
                                rope_scaling=dict(rope_type="yarn", truncate=False, attention_factor=1.25, **YARN))),
    ("mistral", "new", dict(model_type="mistral", **SIZES, sliding_window=11,
                            rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    ("mistral", "layers", dict(model_type="mistral", **SIZES, sliding_window=11, layer_types=LAYERS, rope_theta=5e5)),
    ("mistral", "old", dict(model_type="mistral", **SIZES, sliding_window=11, rope_theta=5e5)),
    ("qwen2", "new", dict(model_type="qwen2", **SIZES, use_sliding_window=True, sliding_window=9, max_window_layers=2,
                          layer_types=LAYERS, rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    ("qwen2", "old, yarn", dict(model_type="qwen2", **SIZES, use_sliding_window=True, sliding_window=9,
                                max_window_layers=1, rope_theta=5e5,
                                rope_scaling=dict(type="yarn", mscale=0.7, mscale_all_dim=1.5, **YARN))),
    ("qwen3", "new", dict(model_type="qwen3", **SIZES, use_sliding_window=True, sliding_window=9, max_window_layers=2,
                          layer_types=LAYERS, attention_bias=True,
                          rope_parameters=dict(rope_type="yarn", rope_theta=5e5, **YARN))),
    ("qwen3", "old", dict(model_type="qwen3", **SIZES, use_sliding_window=True, sliding_window=9, max_window_layers=1,
                          attention_bias=True, rope_theta=5e5)),
    ("phi3", "new", dict(model_type="phi3", **PHI3, rope_parameters=dict(
        rope_type="longrope", rope_theta=5e5, attention_factor=1.25, factor=5.0, **FACTORS))),
    ("phi3", "new, part of the head", dict(model_type="phi3", **PHI3, rope_parameters=dict(
        rope_type="default", rope_theta=5e5, partial_rotary_factor=0.5))),
    ("phi3", "old", dict(model_type="phi3", **PHI3, rope_theta=5e5,
                         rope_scaling=dict(type="su", original_max_position_embeddings=64, **FACTORS))),
    ("phi3", "old, context inside", dict(model_type="phi3", **without(PHI3, "original_max_position_embeddings"),
                                         rope_theta=5e5, partial_rotary_factor=1.0,
                                         rope_scaling=dict(type="longrope", original_max_position_embeddings=96,
                                                           **FACTORS))),
    ("gemma2", "new", dict(model_type="gemma2", **gemma(SIZES), attn_logit_softcapping=5.0, final_logit_softcapping=20.0,
                           layer_types=LAYERS, attention_bias=False,
                           rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    ("gemma2", "old", dict(model_type="gemma2", **gemma(SIZES), attn_logit_softcapping=5.0, final_logit_softcapping=20.0,
                           rope_theta=5e5)),
    ("gemma3", "new", dict(model_type="gemma3_text", **gemma(SIZES, num_hidden_layers=3), attn_logit_softcapping=5.0,
                           final_logit_softcapping=20.0, layer_types=LAYERS, rope_parameters={
                               "full_attention": dict(rope_type="linear", factor=4.0, rope_theta=5e5),
                               "sliding_attention": dict(rope_type="default", rope_theta=3e3)})),
    ("gemma3", "old", dict(model_type="gemma3_text", **gemma(SIZES, num_hidden_layers=8), sliding_window_pattern=3,
                           rope_theta=5e5, rope_local_base_freq=3e3, rope_scaling=dict(rope_type="linear", factor=4.0))),
]

ACTIVATIONS = {"GELUTanh": "gelu_tanh", "NewGELUActivation": "gelu_tanh", "GELUActivation": "gelu", "ReLU": "relu",
               "SiLUActivation": "silu", "SiLU": "silu"}


def rotation(config, layer_type):
    """Frequencies and attention factor of the layers of one type (None: all alike), for a sequence that fills the context."""
    parameters = config.rope_parameters[layer_type] if layer_type else config.rope_parameters
    kind = parameters["rope_type"]
    if kind == "default":
        family = config.model_type.removesuffix("_text")
        module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        rotary = next(getattr(module, name) for name in dir(module) if name.endswith("RotaryEmbedding"))
        more = {"layer_type": layer_type} if layer_type else {}
        frequencies, magnitude = rotary.compute_default_rope_parameters(config, "cpu", **more)
    else:
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=config.max_position_embeddings,
                                                           layer_type=layer_type)
    return dict(frequencies=[float(f"{value:.8g}") for value in frequencies.tolist()], magnitude=float(magnitude))


def effective_gpt2(config, model):
    block = model.transformer.h[0]
    return dict(vocab_size=model.transformer.wte.weight.shape[0], context_length=model.transformer.wpe.weight.shape[0],
                hidden_dim=model.transformer.wte.weight.shape[1], num_layers=len(model.transformer.h),
                num_heads=block.attn.num_heads, num_kv_heads=block.attn.num_heads, head_dim=block.attn.head_dim,
                ffn_dim=block.mlp.c_fc.nf, norm_epsilon=block.ln_1.eps, activation=ACTIVATIONS[type(block.mlp.act).__name__],
                tied_output=config.tie_word_embeddings)


def effective(settings):
    with tempfile.TemporaryDirectory() as folder:  # as a file: only so a Mistral with layer_types is a Ministral
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(settings), encoding="utf-8")
        config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    config.pad_token_id = None  # Phi-3's default lies outside these small vocabularies, and nothing here reads it
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # weights of chance: does it run at all?
        model.to_empty(device="cpu")(input_ids=torch.ones(1, 2, dtype=torch.int64), use_cache=False)
    if config.model_type == "gpt2":
        return effective_gpt2(config, model)
    layers = model.model.layers
    attention, mlp = layers[0].self_attn, layers[0].mlp
    fused = hasattr(attention, "qkv_proj")
    norm = layers[0].input_layernorm
    head_dim = attention.head_dim
    if fused:
        kv_heads = (attention.qkv_proj.weight.shape[0] // head_dim - config.num_attention_heads) // 2
    else:
        kv_heads = attention.k_proj.weight.shape[0] // head_dim
    result = dict(
        vocab_size=model.model.embed_tokens.weight.shape[0], context_length=config.max_position_embeddings,
        hidden_dim=model.model.embed_tokens.weight.shape[1], num_layers=len(layers),
        num_heads=attention.o_proj.weight.shape[1] // head_dim, num_kv_heads=kv_heads, head_dim=head_dim,
        ffn_dim=mlp.down_proj.weight.shape[1], norm_epsilon=getattr(norm, "variance_epsilon", None) or norm.eps,
        activation=ACTIVATIONS[type(mlp.activation_fn if fused else mlp.act_fn).__name__],
        tied_output=config.tie_word_embeddings,
        qkv_bias=(attention.qkv_proj if fused else attention.q_proj).bias is not None,
        attn_out_bias=attention.o_proj.bias is not None, mlp_bias=mlp.down_proj.bias is not None,
        attention_scale=attention.scaling,
        # Gemma 3's attention has the number and does nothing with it.
        attention_softcap=("softcap=" in inspect.getsource(type(attention).forward) and
                           getattr(attention, "attn_logit_softcapping", None) or 0.0),
        logit_softcap=getattr(config, "final_logit_softcapping", None) or 0.0)
    kinds = getattr(config, "layer_types", None) or []
    if kinds:
        result["windows"] = [config.sliding_window or 0 if kind == "sliding_attention" else 0 for kind in kinds]
        if len(kinds) != len(layers):
            raise ValueError("layer_types has another length than the model")
    else:
        result["windows"] = [getattr(config, "sliding_window", None) or 0] * len(layers)
    if settings["model_type"] == "gemma3_text":
        result["ropes"] = [rotation(config, kind) for kind in kinds]
    else:
        result["ropes"] = [rotation(config, None)] * len(layers)
    if all(rope == result["ropes"][0] for rope in result["ropes"]):
        result["ropes"] = result["ropes"][:1]  # all layers alike
    if len(set(result["windows"])) == 1:
        result["windows"] = result["windows"][:1]
    return result


def paths(settings, prefix=()):
    for key, value in settings.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, key))


def changed(settings, path, null):
    settings = copy.deepcopy(settings)
    inner = settings
    for key in path[:-1]:
        inner = inner[key]
    if null:
        inner[path[-1]] = None
    else:
        del inner[path[-1]]
    return settings


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    result = []
    for family, spelling, settings in BASES:
        base = effective(settings)
        cases = []
        for path in paths(settings):
            if path == ("model_type",):
                continue
            for null in (False, True):
                case = dict(key=".".join(path), null=null)
                try:
                    found = effective(changed(settings, path, null))
                    case["changes"] = {key: value for key, value in found.items() if value != base[key]}
                except Exception as error:  # whatever transformers raises is its refusal
                    case["error"] = type(error).__name__
                cases.append(case)
        result.append(dict(family=family, spelling=spelling, config=settings, effective=base, cases=cases))
        print(f"{family}, {spelling}: {len(cases)} cases, {sum('error' in case for case in cases)} refused")
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(dump(entry) for entry in result) + "\n]\n")


def dump(entry):
    """One line for each case: small, and a difference of two versions can be read."""
    head = {key: entry[key] for key in ("family", "spelling", "config", "effective")}
    return (json.dumps(head)[:-1] + ',\n "cases": [\n' +
            ",\n".join("  " + json.dumps(case) for case in entry["cases"]) + "\n ]}")


if __name__ == "__main__":
    main()
