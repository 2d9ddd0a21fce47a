#!/usr/bin/env python3
"""Makes what the weight types with code books need, from an implementation that is not ours (gguf-py, Debian's python3-gguf):

  src/compute/codebooks.h               the code books themselves, which are part of the formats
  tests/golden/codebook_blocks.json     random blocks of each type and the float32 values they stand for

Run it with gguf-py on PYTHONPATH; the same bytes on every run.
"""
import json
import pathlib
import random
import struct

import numpy as np
from gguf import quants

ROOT = pathlib.Path(__file__).resolve().parents[2]

# function: (class of gguf-py, bits of one level, what the levels are)
BOOKS = {
    "iq2_xxs_code": ("IQ2_XXS", 2), "iq2_xs_code": ("IQ2_XS", 2), "iq2_s_code": ("IQ2_S", 2),
    "iq3_xxs_code": ("IQ3_XXS", 3), "iq3_s_code": ("IQ3_S", 3), "iq1_code": ("IQ1_S", 2),
}

HEADER = """\
// The code books of the IQ types: a part of their formats. Made by
// tests/golden/make_codebook_types.py.
//
// An entry holds the numbers of eight levels with two bits each (IQ1, IQ2) or of four levels with
// three bits each (IQ3), the first value's lowest; codebook_types.h says what the levels are.
#pragma once

#include <cstdint>

#include "compute/cuda/host_device.h"

namespace llorch::compute {

// clang-format off
"""


def entries(cls, bits):
    cls.init_grid()
    levels = {float(level): number for number, level in enumerate(cls.grid_map)}
    for row in cls.grid.reshape(cls.grid_shape):
        yield sum(levels[float(value)] << (bits * i) for i, value in enumerate(row))


def write_books():
    text = HEADER
    for function, (name, bits) in BOOKS.items():
        codes = list(entries(getattr(quants, name), bits))
        text += f"LLORCH_HOST_DEVICE inline std::uint32_t {function}(std::uint32_t index) {{\n"
        text += f"  static constexpr std::uint16_t kCodes[{len(codes)}] = {{\n"
        for i in range(0, len(codes), 32):
            text += "    " + " ".join(f"0x{code:04x}," for code in codes[i:i + 32]) + "\n"
        text += "  };\n  return kCodes[index];\n}\n\n"
    text += "// clang-format on\n\n}  // namespace llorch::compute\n"
    (ROOT / "src/compute/codebooks.h").write_text(text)


# type: (bytes of a block, offset of the half that scales it; none where it is not in one place)
TYPES = {"IQ1_S": (50, 0), "IQ1_M": (56, None), "IQ2_XXS": (66, 0), "IQ2_XS": (74, 0), "IQ2_S": (82, 0),
         "IQ3_XXS": (98, 0), "IQ3_S": (110, 0), "NVFP4": (36, None)}
SCALES = [0x2E66, 0xAB3C, 0x0001, 0x83FF, 0x0000, 0x8000, 0x7BFF, 0x1C01]


def make_block(name, number, rng):
    size, offset = TYPES[name]
    fills = [b"\x00", b"\xff", b"\x80", b"\x7f"]
    block = bytearray(fills[number] * size if number < len(fills) else rng.randbytes(size))
    scale = SCALES[number]
    if name == "IQ1_M":  # four bits of it on top of each of four words
        for word in range(4):
            at = 48 + 2 * word
            block[at + 1] = block[at + 1] & 0x0F | (scale >> (4 * word) & 0xF) << 4
    elif name == "NVFP4":  # a scale's eighth bit is not part of the format
        block[:4] = bytes(rng.choice([0, 1, 7, 8, 56, 100, 126, 127]) for _ in range(4))
    else:
        struct.pack_into("<H", block, offset, scale)
    return bytes(block)


def write_blocks():
    rng = random.Random(20241116)
    lines = []
    for name in TYPES:
        blocks = b"".join(make_block(name, number, rng) for number in range(8))
        with np.errstate(all="ignore"):
            values = quants.dequantize(np.frombuffer(blocks, np.uint8), getattr(quants.GGMLQuantizationType, name))
        lines.append(f'"{name}": {json.dumps({"blocks": blocks.hex(), "f32": values.astype("<f4").tobytes().hex()})}')
    (ROOT / "tests/golden/codebook_blocks.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write_books()
    write_blocks()
