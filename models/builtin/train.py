#!/usr/bin/env python3
"""Trains the built-in story model on one GPU with PyTorch; see README.md for the numbers it reached.

    train.py --data DIR --out DIR [--minutes M] [--teacher teacher.safetensors] [...]

DIR of --data is what prepare.py wrote. The folder of --out gets the model in Hugging Face's Llama layout
(config.json, model.safetensors, tokenizer.json, tokenizer_config.json), loss.csv and samples.txt.

The text is small (26 million ids) and the GPU is not, so the danger is learning it by heart. Against that:
dropout, weight decay, a mixture that gives each source only as many epochs as it bears, a held-out part of
each source, an average of the last weights, and a larger teacher: the student learns from the teacher's
distribution over every next token, which tells more than the one token that the text has.
"""
import argparse
import csv
import json
import math
import pathlib
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

END = "<|endoftext|>"
SOURCES = ("stories", "children", "novels")
# Share of each source in a batch at the start and at the end of training; linear in between from FINISH on.
MIX_START = (0.08, 0.44, 0.48)
MIX_END = (0.45, 0.50, 0.05)
FINISH = 0.75  # of the steps: then the learning rate falls and the mixture moves to MIX_END


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        d, kv = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"]
        self.input_layernorm = nn.RMSNorm(d, eps=c["rms_norm_eps"])
        self.post_attention_layernorm = nn.RMSNorm(d, eps=c["rms_norm_eps"])
        self.q_proj = nn.Linear(d, d, bias=False)
        self.k_proj = nn.Linear(d, kv, bias=False)
        self.v_proj = nn.Linear(d, kv, bias=False)
        self.o_proj = nn.Linear(d, d, bias=False)
        self.gate_proj = nn.Linear(d, c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(d, c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], d, bias=False)

    def forward(self, x, cos, sin, dropout):
        b, t, d = x.shape
        h = self.input_layernorm(x)
        heads = lambda y: y.view(b, t, -1, self.c["head_dim"]).transpose(1, 2)
        q, k, v = heads(self.q_proj(h)), heads(self.k_proj(h)), heads(self.v_proj(h))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.o_proj(y.transpose(1, 2).reshape(b, t, d))
        x = x + F.dropout(y, dropout, self.training)
        h = self.post_attention_layernorm(x)
        y = self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))
        return x + F.dropout(y, dropout, self.training)


def rotate(x, cos, sin):
    """RoPE as in Hugging Face's Llama: dimension i turns with dimension i + head_dim / 2."""
    a, b = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-b, a), dim=-1) * sin).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, config, dropout=0.0):
        super().__init__()
        self.c, self.dropout = config, dropout
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = 0.02
                if "o_proj" in name or "down_proj" in name:
                    scale /= math.sqrt(2 * config["num_hidden_layers"])
                nn.init.normal_(p, std=scale)
        half = config["head_dim"] // 2
        frequencies = config["rope_theta"] ** (-torch.arange(half).float() / half)
        angles = torch.outer(torch.arange(config["max_position_embeddings"]).float(), frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = F.dropout(self.embed_tokens(ids), self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, self.cos[:t], self.sin[:t], self.dropout)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def hf_state(self):
        rename = lambda n: n.replace(".q_", ".self_attn.q_").replace(".k_", ".self_attn.k_").replace(
            ".v_", ".self_attn.v_").replace(".o_", ".self_attn.o_").replace(".gate_", ".mlp.gate_").replace(
            ".up_", ".mlp.up_").replace(".down_", ".mlp.down_")
        return {"model." + rename(n): p.detach().float().contiguous() for n, p in self.named_parameters()}

    def load_hf_state(self, state):
        by_name = self.hf_state()
        for (name, parameter), theirs in zip(self.named_parameters(), by_name):
            parameter.data.copy_(state[theirs])


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised (five Newton-Schulz steps); for the matrices of the layers."""

    def __init__(self, parameters, lr, weight_decay, momentum=0.95):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for shape, parameters in shapes.items():
                grads = [p.grad for p in parameters]
                buffers = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in parameters]
                torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
                updates = torch.stack([g.lerp(b, group["momentum"]) for g, b in zip(grads, buffers)])
                updates = orthogonalise(updates) * max(1.0, shape[0] / shape[1]) ** 0.5
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(parameters, list(updates.to(parameters[0].dtype).unbind()), alpha=-group["lr"])


def orthogonalise(g):
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Corpus:
    """Random windows of each source. Half of them begin where a document does, as prompts will."""

    def __init__(self, path, device, context):
        arrays = np.load(path)
        self.context, self.device = context, device
        self.ids = {k: torch.from_numpy(arrays[k].astype(np.int16)).to(device) for k in arrays.files}
        self.starts = {k: torch.nonzero(v[:-context - 1] == 0).flatten() for k, v in self.ids.items()}
        self.sizes = {k: v.numel() for k, v in self.ids.items()}

    def batch(self, rows, mix):
        counts = np.floor(np.array(mix) * rows).astype(int)
        counts[int(np.argmax(mix))] += rows - counts.sum()
        offsets = torch.arange(self.context + 1, device=self.device)
        parts = []
        for source, n in zip(SOURCES, counts):
            ids, starts = self.ids[source + "_train"], self.starts[source + "_train"]
            anywhere = torch.randint(ids.numel() - self.context - 1, (n - n // 2,), device=self.device)
            at_start = starts[torch.randint(starts.numel(), (n // 2,), device=self.device)]
            parts.append(ids[torch.cat((anywhere, at_start))[:, None] + offsets])
        x = torch.cat(parts).long()
        return x[:, :-1], x[:, 1:]

    @torch.no_grad()
    def valid_loss(self, model, source, part="valid", rows=32):
        """Nats per id over the held-out part, in windows of the whole context that do not overlap."""
        ids = self.ids[f"{source}_{part}"]
        n = min((ids.numel() - 1) // self.context, 96)
        x = ids[:n * self.context].view(n, self.context).long()
        y = ids[1:n * self.context + 1].view(n, self.context).long()
        total = 0.0
        for i in range(0, n, rows):
            with torch.autocast(self.device, torch.bfloat16):
                logits = model(x[i:i + rows])
            total += F.cross_entropy(logits.float().flatten(0, 1), y[i:i + rows].flatten(), reduction="sum").item()
        return total / (n * self.context)


@torch.no_grad()
def sample(model, tokenizer, prompt, n, temperature, top_p, seed):
    generator = torch.Generator(device=model.cos.device).manual_seed(seed)
    ids = torch.tensor([[0] + tokenizer.encode(prompt).ids], device=model.cos.device)
    for _ in range(n):
        with torch.autocast(ids.device.type, torch.bfloat16):
            logits = model(ids[:, -model.c["max_position_embeddings"]:])[0, -1].float()
        if temperature == 0:
            token = logits.argmax()[None]
        else:
            p, order = torch.softmax(logits / temperature, -1).sort(descending=True)
            p[p.cumsum(0) - p > top_p] = 0
            token = order[torch.multinomial(p, 1, generator=generator)]
        if token.item() == 0:
            break
        ids = torch.cat((ids, token[None]), dim=1)
    return tokenizer.decode(ids[0, 1:].tolist())


def make_config(args, vocab_size):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab_size,
        "hidden_size": args.dim, "intermediate_size": args.ffn, "num_hidden_layers": args.layers,
        "num_attention_heads": args.dim // args.head_dim, "num_key_value_heads": args.kv_heads,
        "head_dim": args.head_dim, "max_position_embeddings": args.context, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
        "mlp_bias": False, "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "float32",
    }


def schedule(done, args):
    """Learning-rate factor and mixture at a share `done` of the training."""
    mix = MIX_START
    factor = min(1.0, done / 0.02)
    if done > args.finish:
        late = (done - args.finish) / (1 - args.finish)
        factor = max(0.02, 1 - late)
        mix = tuple(a + (b - a) * min(1.0, 2 * late) for a, b in zip(MIX_START, MIX_END))
    return factor, mix


def train_step(model, teacher, batch, args):
    """Gradient of one batch; the loss is the text's and, with a teacher, the distance to its distribution."""
    x, y = batch
    with torch.autocast(args.device, torch.bfloat16):
        logits = model(x)
        text_loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss = text_loss
        if teacher is not None:
            with torch.no_grad():
                target = F.softmax(teacher(x).float(), -1)
            soft = -(target * F.log_softmax(logits.float(), -1)).sum(-1).mean()
            loss = args.distill * soft + (1 - args.distill) * text_loss
    loss.backward()
    return text_loss.detach()


def train(args, config, corpus, teacher, report):
    torch.manual_seed(args.seed)
    model = Llama(config, args.dropout).to(args.device)
    average = Llama(config).to(args.device).eval()
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
    others = [p for n, p in model.named_parameters() if not (p.dim() == 2 and "layers" in n)]
    adam = torch.optim.AdamW(others, lr=args.adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=args.device == "cuda")
    muon = Muon(matrices, lr=args.muon_lr, weight_decay=args.weight_decay)
    optimizers = [(adam, args.adam_lr), (muon, args.muon_lr)]
    wrap = (lambda m: torch.compile(m)) if args.device == "cuda" else (lambda m: m)
    compiled, compiled_teacher = wrap(model), wrap(teacher) if teacher is not None else None
    step_of = lambda batch: train_step(compiled, compiled_teacher, batch, args)
    print(f"parameters: {sum(p.numel() for p in model.parameters())}", flush=True)

    started, rate_from = time.time(), None
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.copy_(p)
    for step in range(args.steps + 1):
        done = step / args.steps
        if args.minutes:
            done = max(done, (time.time() - started) / 60 / args.minutes)
        factor, mix = schedule(min(done, 1.0), args)
        if step % args.eval_every == 0 or done >= 1:
            row = {"step": step, "seconds": round(time.time() - started, 1), "lr": round(factor, 4)}
            for source in SOURCES:
                row[source] = round(corpus.valid_loss(average, source), 4)
            row["stories_train"] = round(corpus.valid_loss(average, "stories", "train"), 4)
            row["children_train"] = round(corpus.valid_loss(average, "children", "train"), 4)
            report(row)
        if done >= 1:
            break
        if step == 20:
            torch.cuda.synchronize() if args.device == "cuda" else None
            rate_from = time.time()
        for optimizer, lr in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * factor
        step_of(corpus.batch(args.rows, mix))
        nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            # Averages over about args.average steps; younger runs over all their steps.
            weight = max(1.0 / args.average, 1.0 / (step + 1))
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), weight)
        if step == 0:  # what compiles has compiled
            started = time.time()
    if rate_from and step > 20:
        torch.cuda.synchronize() if args.device == "cuda" else None
        rate = (step - 20) * args.rows * args.context / (time.time() - rate_from)
        print(f"{step} steps, {rate / 1e6:.2f} million ids a second", flush=True)
    return average


def save(model, config, args, samples):
    from safetensors.torch import save_file
    out = args.out
    dtype = torch.bfloat16 if args.half else torch.float32  # a teacher is kept small
    save_file({k: v.to(dtype).cpu() for k, v in model.hf_state().items()}, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shutil.copyfile(args.data / "tokenizer.json", out / "tokenizer.json")
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END, "add_bos_token": True,
        "model_max_length": config["max_position_embeddings"]}, indent=2) + "\n")
    (out / "samples.txt").write_text(samples)


PROMPTS = ("Once upon a time", "Once upon a time, there was a", "One day, a little dog named", "There was once a king who",
           '"Where are you going?" asked the fox', "Lily and Tom")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, type=pathlib.Path)
    p.add_argument("--out", required=True, type=pathlib.Path)
    p.add_argument("--dim", type=int, default=384)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--ffn", type=int, default=1024)
    p.add_argument("--head-dim", type=int, default=64)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--rows", type=int, default=64, help="windows of a batch")
    p.add_argument("--steps", type=int, default=5000)
    p.add_argument("--minutes", type=float, default=0, help="end by then, with the whole schedule; compilation not counted")
    p.add_argument("--finish", type=float, default=FINISH)
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--adam-lr", type=float, default=0.004)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--average", type=int, default=100)
    p.add_argument("--teacher", type=pathlib.Path, help="folder of a trained larger model")
    p.add_argument("--distill", type=float, default=0.8, help="weight of the teacher's distribution")
    p.add_argument("--half", action="store_true", help="save as bfloat16")
    p.add_argument("--eval-every", type=int, default=250)
    p.add_argument("--sample-tokens", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")

    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(args.data / "tokenizer.json"))
    corpus = Corpus(args.data / "tokens.npz", args.device, args.context)
    config = make_config(args, tokenizer.get_vocab_size())
    teacher = None
    if args.teacher:
        from safetensors.torch import load_file
        teacher = Llama(json.loads((args.teacher / "config.json").read_text())).to(args.device).eval()
        teacher.load_hf_state(load_file(args.teacher / "model.safetensors"))
        print("teacher:", {s: round(corpus.valid_loss(teacher, s), 4) for s in SOURCES}, flush=True)

    with open(args.out / "loss.csv", "w", newline="") as file:
        writer = None

        def report(row):
            nonlocal writer
            if writer is None:
                writer = csv.DictWriter(file, row.keys())
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)

        model = train(args, config, corpus, teacher, report)

    samples = []
    for temperature in (0.0, 0.5, 0.8, 1.0):
        for seed, prompt in enumerate(PROMPTS if temperature == 0.8 else PROMPTS[:3]):
            text = sample(model, tokenizer, prompt, args.sample_tokens, temperature, 0.95, seed)
            samples.append(f"=== temperature {temperature}, top-p 0.95, seed {seed}\n{text}\n")
    print("\n".join(samples[:6]))
    save(model, config, args, "\n".join(samples))


if __name__ == "__main__":
    main()
