#!/usr/bin/env python3
"""Makes the GPT-2 reference fixtures with Hugging Face transformers in float32.

Needs torch, transformers and safetensors (any machine; no GPU). Usage: make_gpt2_golden.py OUT
Writes OUT/gpt2_tiny (SafeTensors, PyTorch, sharded both ways) and OUT/gpt2_bf16 (bfloat16 weights), each with
golden.safetensors: every intermediate that the twelve checkpoints compare. The script checks its own reference first:
attention rebuilt from Q, K and V must equal what transformers computed, and every greedy step must be decided by a
clear margin, so that a float32 implementation with another summation order still picks the same ids.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

PROMPT_TOKENS = 12
GREEDY_TOKENS = 20
MARGIN_MIN = 0.05


def seeded_model(config, seed):
    """Random weights large enough that each mistake (eps, mask, head order, GELU) shows far above the tolerances."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT2LMHeadModel(config).float().eval()

    def normal(shape, std):
        return torch.randn(shape, generator=generator) * std

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln_" in name:
                parameter.copy_(normal(parameter.shape, 0.3) + (1.0 if name.endswith("weight") else 0.0))
            elif name.endswith("bias"):
                parameter.copy_(normal(parameter.shape, 0.2))
            elif "wte" in name or "wpe" in name:
                parameter.copy_(normal(parameter.shape, 0.4))
            else:  # Conv1D: (in, out)
                parameter.copy_(normal(parameter.shape, 1.5 / parameter.shape[0] ** 0.5))
    return model


def run(model, ids):
    """One forward pass with every intermediate of block 0 and the cache of all layers."""
    seen = {}

    def keep(name):
        def hook(_module, _inputs, output):
            seen[name] = (output[0] if isinstance(output, tuple) else output).detach()[0]
        return hook

    block = model.transformer.h[0]
    hooks = [module.register_forward_hook(keep(name)) for name, module in {
        "ln_1": block.ln_1, "qkv": block.attn.c_attn, "attn_out": block.attn, "ln_2": block.ln_2,
        "mlp_out": block.mlp, "block_0": block, "ln_f": model.transformer.ln_f}.items()]
    with torch.no_grad():
        out = model(ids[None], use_cache=True, output_attentions=True)
    for hook in hooks:
        hook.remove()

    heads, dim = model.config.n_head, model.config.n_embd
    q, k, v = (part.view(len(ids), heads, dim // heads).transpose(0, 1) for part in seen["qkv"].split(dim, dim=1))
    mask = torch.full((len(ids), len(ids)), float("-inf")).triu(1)
    scores = q @ k.transpose(1, 2) / (dim // heads) ** 0.5 + mask
    probabilities = scores.softmax(-1)
    assert torch.allclose(probabilities, out.attentions[0][0], atol=1e-6), "reference attention disagrees with itself"
    merged = (probabilities @ v).transpose(0, 1).reshape(len(ids), dim)
    with torch.no_grad():
        assert torch.allclose(block.attn.c_proj(merged[None])[0], seen["attn_out"], atol=1e-5)
    seen["scores"] = scores.transpose(0, 1)  # (rows, heads, keys)
    seen["attn_merged"] = merged
    seen["logits"] = out.logits[0]
    seen["softmax_last"] = out.logits[0, -1].double().softmax(-1).float()
    cache = out.past_key_values
    for layer in range(model.config.n_layer):
        entry = cache.layers[layer]
        seen[f"cache_k.{layer}"] = entry.keys[0].transpose(0, 1)  # (tokens, heads, head_dim)
        seen[f"cache_v.{layer}"] = entry.values[0].transpose(0, 1)
    return seen


def greedy(model, ids, count):
    """Greedy continuation without a cache, and the smallest gap between best and second best on the way."""
    ids, margin = list(ids), float("inf")
    for _ in range(count):
        with torch.no_grad():
            top = model(torch.tensor([ids])).logits[0, -1].topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        ids.append(top.indices[0].item())
    return ids, margin


def write_golden(model, folder, seed):
    config = model.config
    generator = torch.Generator().manual_seed(seed + 1000)
    prompt = torch.randint(0, config.vocab_size, (PROMPT_TOKENS,), generator=generator)
    short, margin_a = greedy(model, prompt.tolist(), GREEDY_TOKENS)
    # From one token to the very last slot of the context.
    full, margin_b = greedy(model, prompt[:1].tolist(), config.n_positions - 1)
    margin = min(margin_a, margin_b)
    if margin < MARGIN_MIN:
        return False
    tensors = {name: value.contiguous().float() for name, value in run(model, prompt).items()}
    full_ids = torch.tensor(full)
    with torch.no_grad():
        tensors["full_logits"] = model(full_ids[None]).logits[0]
    save_file({"ids": prompt.to(torch.int32), "greedy_ids": torch.tensor(short, dtype=torch.int32),
               "full_ids": full_ids.to(torch.int32), **tensors}, folder / "golden.safetensors")
    print(f"{folder.name}: seed {seed}, smallest greedy margin {margin:.3f}")
    return True


def first_good_seed(config, folder, prepare):
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(200):
        model = prepare(seeded_model(config, seed))
        if write_golden(model, folder, seed):
            return model
    raise SystemExit(f"{folder}: no seed with a clear greedy margin")


def split_in_shards(names, count):
    size = -(-len(names) // count)
    return [names[i * size:(i + 1) * size] for i in range(count)]


def write_sharded(state, folder, stem, suffix, count, save):
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for index, names in enumerate(split_in_shards(list(state), count)):
        file = f"{stem}-{index + 1:05}-of-{count:05}.{suffix}"
        save({name: state[name] for name in names}, folder / file)
        weight_map |= {name: file for name in names}
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    (folder / f"{stem}.{suffix}.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1) + "\n")


def write_model(model, folder, sharded):
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    # As transformers saves it: the tied lm_head is left out of SafeTensors, and is there, sharing its storage, in .bin.
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    pytorch = folder / "pytorch"
    pytorch.mkdir(exist_ok=True)
    model.config.save_pretrained(pytorch)
    torch.save(model.state_dict(), pytorch / "pytorch_model.bin")
    if not sharded:
        return
    for name in ("sharded_safetensors", "sharded_pytorch"):
        (folder / name).mkdir(exist_ok=True)
        model.config.save_pretrained(folder / name)
    clean = {name: tensor.contiguous() for name, tensor in state.items()}
    write_sharded(clean, folder / "sharded_safetensors", "model", "safetensors", 3,
                  lambda tensors, path: save_file(tensors, path, metadata={"format": "pt"}))
    # torch.save writes whole storages, so each shard gets copies of its own.
    write_sharded(clean, folder / "sharded_pytorch", "pytorch_model", "bin", 2,
                  lambda tensors, path: torch.save({n: t.clone() for n, t in tensors.items()}, path))


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    common = dict(attn_implementation="eager", bos_token_id=0, eos_token_id=0)

    tiny = GPT2Config(vocab_size=211, n_positions=64, n_embd=48, n_layer=3, n_head=4, **common)
    write_model(first_good_seed(tiny, out / "gpt2_tiny", lambda model: model), out / "gpt2_tiny", sharded=True)

    # Weights that are exactly bfloat16, computed in float32: any loader of the BF16 file must land on the same numbers.
    wide = GPT2Config(vocab_size=320, n_positions=40, n_embd=128, n_layer=2, n_head=2, n_inner=384, **common)
    model = first_good_seed(wide, out / "gpt2_bf16", lambda model: model.bfloat16().float())
    write_model(model.bfloat16(), out / "gpt2_bf16", sharded=False)


if __name__ == "__main__":
    main()
