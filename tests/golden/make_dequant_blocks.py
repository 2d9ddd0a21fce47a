#!/usr/bin/env python3
"""Makes dequant_blocks.json: blocks of every weight type and the float32 values they stand for.

An implementation of the formats of its own, in another language and another style than src/compute/dequantize.cc:
the two agree only where both are right. Standard library only; the same bytes on every run.

  make_dequant_blocks.py                    writes dequant_blocks.json beside this script
  make_dequant_blocks.py --check FILE       compares this script with vectors made elsewhere
                                            ({"Q4_0": {"raw_b64": …, "f32": […]}, …})
"""
import base64
import json
import math
import pathlib
import random
import struct
import sys


def f32(x):
    """Rounds to the nearest float32. One sum or product of two float32 is exact enough in a double for this
    to be the correctly rounded result."""
    if math.isfinite(x):
        try:
            return struct.unpack("<f", struct.pack("<f", x))[0]
        except OverflowError:
            return math.copysign(math.inf, x)
    return x


def mul(a, b):
    return f32(float(a) * float(b))


def add(a, b):
    return f32(float(a) + float(b))


def half(raw):
    return struct.unpack("<e", raw)[0]


def nibbles(raw):
    """All low nibbles, then all high ones."""
    return [b & 15 for b in raw] + [b >> 4 for b in raw]


def crumbs(raw):
    """Two-bit values: for each 32 bytes all lowest pairs, then the next …"""
    return [b >> shift & 3 for start in range(0, len(raw), 32) for shift in (0, 2, 4, 6) for b in raw[start:start + 32]]


def bits(raw):
    """All lowest bits, then the next …"""
    return [b >> shift & 1 for shift in range(8) for b in raw]


def q4_0(b):
    return [mul(q - 8, half(b[:2])) for q in nibbles(b[2:])]


def q4_1(b):
    return [add(mul(q, half(b[:2])), half(b[2:4])) for q in nibbles(b[4:])]


def fifth_bits(raw):
    word = int.from_bytes(raw, "little")
    return [word >> i & 1 for i in range(32)]


def q5_0(b):
    return [mul(q + 16 * h - 16, half(b[:2])) for q, h in zip(nibbles(b[6:]), fifth_bits(b[2:6]))]


def q5_1(b):
    return [add(mul(q + 16 * h, half(b[:2])), half(b[2:4])) for q, h in zip(nibbles(b[8:]), fifth_bits(b[4:8]))]


def q8_0(b):
    return [mul(q, half(b[:2])) for q in struct.unpack("<32b", b[2:])]


def q2_k(b):
    scales, quants, d, dmin = b[:16], crumbs(b[16:80]), half(b[80:82]), half(b[82:84])
    return [add(mul(mul(d, scales[i // 16] & 15), q), -mul(dmin, scales[i // 16] >> 4)) for i, q in enumerate(quants)]


def q3_k(b):
    third, quants, packed, d = bits(b[:32]), crumbs(b[32:96]), b[96:108], half(b[108:])
    low = nibbles(packed[:8])
    high = [packed[8 + i] >> shift & 3 for shift in (0, 2, 4, 6) for i in range(4)]
    scales = [lo + 16 * hi - 32 for lo, hi in zip(low, high)]
    return [mul(mul(d, scales[i // 16]), q + 4 * third[i] - 4) for i, q in enumerate(quants)]


def k_scales(packed):
    """Eight scales and eight mins of six bits: four plain bytes each, then four nibbles with the spare top bits."""
    first, second, third = packed[:4], packed[4:8], packed[8:12]
    scales = [x % 64 for x in first] + [t % 16 + (x // 64) * 16 for t, x in zip(third, first)]
    mins = [x % 64 for x in second] + [t // 16 + (x // 64) * 16 for t, x in zip(third, second)]
    return scales, mins


def pairs_of_nibbles(raw):
    """Nibbles per 32 bytes: low ones, high ones, next 32 bytes."""
    return [q for start in range(0, len(raw), 32) for q in nibbles(raw[start:start + 32])]


def k_values(b, quants):
    d, dmin = half(b[:2]), half(b[2:4])
    scales, mins = k_scales(b[4:16])
    return [add(mul(mul(d, scales[i // 32]), q), -mul(dmin, mins[i // 32])) for i, q in enumerate(quants)]


def q4_k(b):
    return k_values(b, pairs_of_nibbles(b[16:]))


def q5_k(b):
    return k_values(b, [q + 16 * h for q, h in zip(pairs_of_nibbles(b[48:]), bits(b[16:48]))])


def q6_k(b):
    scales, d = struct.unpack("<16b", b[192:208]), half(b[208:])
    low = nibbles(b[:64]) + nibbles(b[64:128])
    return [mul(mul(d, scales[i // 16]), q + 16 * h - 32) for i, (q, h) in enumerate(zip(low, crumbs(b[128:192])))]


IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def iq4_nl(b):
    return [mul(half(b[:2]), IQ4[q]) for q in nibbles(b[2:])]


def iq4_xs(b):
    d, high = half(b[:2]), int.from_bytes(b[2:4], "little")
    low = [q for byte in b[4:8] for q in (byte & 15, byte >> 4)]
    values = []
    for group in range(8):
        step = mul(d, low[group] + 16 * (high >> 2 * group & 3) - 32)
        values += [mul(step, IQ4[q]) for q in nibbles(b[8 + 16 * group:24 + 16 * group])]
    return values


def tq1_0(b):
    d, values = half(b[52:]), []
    for run, digits in ((b[:32], 5), (b[32:48], 5), (b[48:52], 4)):
        for digit in range(digits):
            values += [mul((q * 3 ** digit % 256) * 3 // 256 - 1, d) for q in run]
    return values


def tq2_0(b):
    return [mul(q - 1, half(b[64:])) for q in crumbs(b[:64])]


def mxfp4(b):
    levels = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = []
    for q in nibbles(b[1:]):
        # Zero is positive whatever the sign bit says; the format's reference has no negative zero.
        value = levels[q & 7] * 2.0 ** (b[0] - 127)
        values.append(f32(-value if q >= 8 and value else value))
    return values


def f8_e4m3(b):
    exponent, mantissa = b[0] >> 3 & 15, b[0] & 7
    value = mantissa / 8 * 2.0 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return [-value if b[0] >= 128 else value]


# name: (bytes of a block, decoder, offsets of the halfs that scale it)
BLOCKS = {
    "Q4_0": (18, q4_0, [0]), "Q4_1": (20, q4_1, [0, 2]), "Q5_0": (22, q5_0, [0]), "Q5_1": (24, q5_1, [0, 2]),
    "Q8_0": (34, q8_0, [0]), "Q2_K": (84, q2_k, [80, 82]), "Q3_K": (110, q3_k, [108]), "Q4_K": (144, q4_k, [0, 2]),
    "Q5_K": (176, q5_k, [0, 2]), "Q6_K": (210, q6_k, [208]), "IQ4_NL": (18, iq4_nl, [0]),
    "IQ4_XS": (136, iq4_xs, [0]), "TQ1_0": (54, tq1_0, [52]), "TQ2_0": (66, tq2_0, [64]), "MXFP4": (17, mxfp4, []),
}


def number(code):
    return lambda b: [f32(struct.unpack("<" + code, b)[0])]


PLAIN = {
    "F64": (8, number("d")), "F32": (4, number("f")), "F16": (2, number("e")),
    "BF16": (2, lambda b: [struct.unpack("<f", b"\0\0" + b)[0]]),
    "F8_E4M3": (1, f8_e4m3), "F8_E5M2": (1, lambda b: [half(b"\0" + b)]),
    "I8": (1, number("b")), "I16": (2, number("h")), "I32": (4, number("i")), "I64": (8, number("q")),
    "U8": (1, number("B")), "U16": (2, number("H")), "U32": (4, number("I")), "U64": (8, number("Q")),
    "BOOL": (1, lambda b: [1.0 if b[0] else 0.0]),
}

# Scales worth a block of their own: ordinary, negative, subnormal halfs, zero of either sign, the largest.
SCALES = [0x2E66, 0xAB3C, 0x0001, 0x83FF, 0x0000, 0x8000, 0x7BFF, 0x1C01]


def make_blocks(name, rng):
    size, _, scales = BLOCKS[name]
    blocks = []
    fills = [b"\x00", b"\xff", b"\x80", b"\x7f"]
    for i in range(8):
        block = bytearray(fills[i] * size if i < len(fills) else rng.randbytes(size))
        for n, offset in enumerate(scales):
            struct.pack_into("<H", block, offset, SCALES[(i + 3 * n) % len(SCALES)])
        if name == "MXFP4":
            block[0] = [0, 1, 2, 254, 255, 127, 120, 131][i]
            block[1:] = rng.randbytes(16)
        blocks.append(bytes(block))
    return blocks


def make_numbers(name, rng):
    size, _ = PLAIN[name]
    if size == 1:
        values = [bytes([i]) for i in range(256)]
    else:
        values = [rng.randbytes(size) for _ in range(32)] + [b"\0" * size, b"\xff" * (size - 1) + b"\x7f",
                                                             b"\0" * (size - 1) + b"\x80", b"\x01" + b"\0" * (size - 1)]
    # NaN bits are not the formats' business; an E4M3 of all ones is NaN too.
    if name == "F8_E4M3":
        values = [v for v in values if v[0] & 127 != 127]
    if name.startswith(("F", "BF")):
        values = [v for v in values if not math.isnan(PLAIN[name][1](v)[0])]
    return values


def make():
    rng = random.Random(20240607)
    result = {}
    for name in list(PLAIN) + list(BLOCKS):
        blocks = make_numbers(name, rng) if name in PLAIN else make_blocks(name, rng)
        decode = PLAIN[name][1] if name in PLAIN else BLOCKS[name][1]
        values = [v for block in blocks for v in decode(block)]
        result[name] = {"blocks": b"".join(blocks).hex(), "f32": struct.pack(f"<{len(values)}f", *values).hex()}
    return result


def check(path):
    failed = 0
    for name, vector in sorted(json.loads(pathlib.Path(path).read_text()).items()):
        if name not in BLOCKS and name not in PLAIN:
            print(f"{name}: not made here")
            continue
        size, decode = (BLOCKS.get(name) or PLAIN[name])[:2]
        raw = base64.b64decode(vector["raw_b64"])
        values = [v for i in range(0, len(raw), size) for v in decode(raw[i:i + size])]
        same = struct.pack(f"<{len(values)}f", *values) == struct.pack(f"<{len(vector['f32'])}f", *vector["f32"])
        print(f"{name}: {'equal' if same else 'DIFFERENT'}, {len(values)} values")
        failed += not same
    return failed


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        sys.exit(1 if check(sys.argv[2]) else 0)
    lines = [f'"{name}": {json.dumps(vector)}' for name, vector in make().items()]
    pathlib.Path(__file__).with_name("dequant_blocks.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
