#!/usr/bin/env python3
"""Makes quant_blocks.json: float32 values and the blocks that other implementations store them as.

  plain   F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 by gguf-py: our blocks must be the same bytes
  search  Q4_K, Q5_K, Q6_K by ggml's own code without an importance matrix (called through ctypes): the formats do not
          fix these bytes, but our squared error must not be larger

Needs numpy, gguf (gguf-py) and the shared library libggml-base. The same bytes on every run.
"""
import ctypes
import json
import pathlib

import gguf
import numpy as np

PLAIN = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
SEARCH = ["Q4_K", "Q5_K", "Q6_K"]


def plain_values():
    rng = np.random.default_rng(11)
    rows = [rng.normal(0, 0.02, 32) for _ in range(8)]
    rows += [rng.uniform(-3, 5, 32) for _ in range(4)]
    rows.append(np.zeros(32))
    rows.append(np.full(32, 0.7))
    rows.append(np.full(32, -0.7))
    rows.append(np.arange(-16, 16) / 8)  # ties
    rows.append((np.arange(32) - 15.5) * 0.5)
    rows.append(np.concatenate([rng.normal(0, 0.02, 31), [4000.0]]))  # one huge value
    rows.append(np.concatenate([[-4000.0], rng.normal(0, 0.02, 31)]))
    rows.append(rng.normal(0, 1e-7, 32))  # steps that are subnormal halves
    rows.append(rng.normal(0, 1e-36, 32))  # steps that are zero as halves
    rows.append(np.tile([0.25, -0.25], 16))  # the first of two extremes decides the sign
    rows.append(np.tile([-0.25, 0.25], 16))
    return np.array(rows, dtype=np.float32)


def search_values():
    rng = np.random.default_rng(12)
    rows = [rng.normal(0, 0.02, 256) for _ in range(4)]
    rows.append(rng.laplace(0, 0.02, 256))
    rows.append(rng.uniform(-1, 1, 256))
    rows.append(rng.normal(0.5, 0.02, 256))
    rows.append(rng.normal(0, 1, 256) * np.repeat(np.exp(rng.normal(0, 1, 8)), 32) * 0.01)
    return np.array(rows, dtype=np.float32)


def ggml_quantize(library, type_name, values):
    kind = gguf.GGMLQuantizationType[type_name]
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((values.shape[0], values.shape[1] // elems * size), dtype=np.uint8)
    function = library.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    written = function(int(kind), values.ctypes.data, out.ctypes.data, 0, values.shape[0], values.shape[1], None)
    assert written == out.size, (type_name, written)
    return out


def main():
    library = ctypes.CDLL("libggml-base.so.0")
    plain, search = plain_values(), search_values()
    golden = {"plain": {"f32": plain.tobytes().hex()}, "search": {"f32": search.tobytes().hex()}}
    for name in PLAIN:
        kind = gguf.GGMLQuantizationType[name]
        blocks = np.ascontiguousarray(gguf.quantize(plain, kind)).view(np.uint8)
        if name not in ("F16", "BF16"):
            ours = ggml_quantize(library, name, plain)
            assert np.array_equal(ours, blocks), f"gguf-py and ggml differ on {name}"
        golden["plain"][name] = blocks.tobytes().hex()
    for name in SEARCH:
        golden["search"][name] = ggml_quantize(library, name, search).tobytes().hex()
    path = pathlib.Path(__file__).parent / "quant_blocks.json"
    path.write_text(json.dumps(golden, indent=0) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


main()
