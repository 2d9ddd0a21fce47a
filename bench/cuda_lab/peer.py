# What PyTorch makes of the same shapes on the same card: products, and a decode step as a graph.
import torch
import torch.nn.functional as F

MODELS = [("Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151936),
          ("TinyLlama", 22, 2048, 32, 4, 64, 5632, 32000),
          ("Mistral-7B", 32, 4096, 32, 8, 128, 14336, 32000)]
CONTEXT = 192


def median_seconds(run, repeats=15):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run()
        times = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[len(times) // 2]


def products():
    for name, layers, hidden, heads, kv, d, ffn, vocab in MODELS:
        step = {}
        for what, n, k, times in [("qkv", (heads + 2 * kv) * d, hidden, layers), ("out", hidden, heads * d, layers),
                                  ("gate+up", 2 * ffn, hidden, layers), ("down", hidden, ffn, layers),
                                  ("head", vocab, hidden, 1)]:
            copies = max(3, 400_000_000 // (2 * n * k) + 1)
            weights = [torch.randn(n, k, device="cuda", dtype=torch.float16) * 0.02 for _ in range(copies)]
            for rows in (1, 8, 16, 64, 512):
                x = torch.randn(rows, k, device="cuda", dtype=torch.float16)
                used = weights if rows <= 64 else weights[:8]
                micros = median_seconds(lambda: [F.linear(x, w) for w in used]) / len(used) * 1e6
                step[rows] = step.get(rows, 0) + micros * times
                print(f"torch F16 {name:12} {what:8} {n:6} x {k:5} rows {rows:3}: {micros:8.2f} us "
                      f"{2 * n * k / micros * 1e-3:6.0f} GB/s {2 * rows * n * k / micros * 1e-6:6.1f} TFLOP/s")
            del weights
        for rows, micros in step.items():
            print(f"SUM torch F16 {name:12} rows {rows:3}: products of a step {micros * 1e-3:.3f} ms, "
                  f"{rows / micros * 1e6:.0f} rows/s")


def decode_step():
    for name, layers, hidden, heads, kv, d, ffn, vocab in MODELS:
        def weight(n, k):
            return torch.randn(n, k, device="cuda", dtype=torch.float16) * 0.02
        stack = [dict(qkv=weight((heads + 2 * kv) * d, hidden), out=weight(hidden, heads * d),
                      gu=weight(2 * ffn, hidden), down=weight(hidden, ffn),
                      g1=torch.ones(hidden, device="cuda", dtype=torch.float16),
                      g2=torch.ones(hidden, device="cuda", dtype=torch.float16),
                      k=torch.randn(1, kv, CONTEXT, d, device="cuda", dtype=torch.float16),
                      v=torch.randn(1, kv, CONTEXT, d, device="cuda", dtype=torch.float16)) for _ in range(layers)]
        head = weight(vocab, hidden)
        cos = torch.randn(1, 1, 1, d // 2, device="cuda", dtype=torch.float16)
        sin = torch.randn(1, 1, 1, d // 2, device="cuda", dtype=torch.float16)
        x0 = torch.randn(1, hidden, device="cuda", dtype=torch.float16)

        def rotate(q):
            a, b = q.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

        def step():
            x = x0
            for w in stack:
                y = F.linear(F.rms_norm(x, (hidden,), w["g1"]), w["qkv"])
                q, k, v = y.split((heads * d, kv * d, kv * d), dim=-1)
                q = rotate(q.view(1, heads, 1, d))
                w["k"][:, :, -1:] = rotate(k.view(1, kv, 1, d))
                w["v"][:, :, -1:] = v.view(1, kv, 1, d)
                o = F.scaled_dot_product_attention(q, w["k"], w["v"], enable_gqa=True)
                x = x + F.linear(o.reshape(1, heads * d), w["out"])
                gate, up = F.linear(F.rms_norm(x, (hidden,), w["g2"]), w["gu"]).chunk(2, dim=-1)
                x = x + F.linear(F.silu(gate) * up, w["down"])
            return F.linear(x, head).argmax()

        with torch.no_grad():
            plain = median_seconds(step)
            print(f"torch {name}: decode step as a graph {plain * 1e3:.3f} ms, {1 / plain:.0f} tokens/s")
        del stack, head
        torch.cuda.empty_cache()


products()
decode_step()
