#!/usr/bin/env python3
"""Writes the seed files in gguf/ beside this script: small images that reach every branch of the reader."""
import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "gguf"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 30: (1, 2), 39: (32, 17)}


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(key, kind, value):
    body = text(value) if kind == 8 else struct.pack("<" + SCALARS[kind], value)
    return text(key) + struct.pack("<I", kind) + body


def array(key, kind, values):
    body = b"".join(text(v) if kind == 8 else struct.pack("<" + SCALARS[kind], v) for v in values)
    return text(key) + struct.pack("<IIQ", 9, kind, len(values)) + body


def image(keys, tensors, alignment=32, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, dims, kind in tensors:
        elements = 1
        for dim in dims:
            elements *= dim
        block, block_bytes = BLOCKS[kind]
        data += bytes(-len(data) % alignment)
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += bytes(elements // block * block_bytes)
    return head + bytes(-len(head) % alignment) + data if tensors else head


def main():
    FOLDER.mkdir(exist_ok=True)
    every_scalar = [scalar(f"k{kind}", kind, 1) for kind in SCALARS] + [scalar("text", 8, "llama")]
    every_array = [array(f"a{kind}", kind, [0, 1]) for kind in SCALARS] + [array("tokens", 8, ["a", "", b"\xff"])]
    split = [scalar("split.no", 2, 0), scalar("split.count", 2, 2), scalar("split.tensors.count", 5, 2)]
    files = {
        "empty": image([], []),
        "version_2": image([scalar("k", 4, 7)], [("t", [4], 0)], version=2),
        "scalars": image(every_scalar, []),
        "arrays": image(every_array, []),
        "tensors": image([], [(f"t{kind}", [BLOCKS[kind][0]], kind) for kind in BLOCKS]),
        "ranks": image([], [("r" * 64, [2, 1, 1, 1], 1), ("three", [2, 3, 2], 1), ("none", [0, 4], 0)]),
        "alignment_8": image([scalar("general.alignment", 4, 8)], [("a", [1], 0), ("b", [1], 0)], alignment=8),
        "split": image(split, [("t", [4], 0)]),
        "nested": image([text("k") + struct.pack("<IIQIQ", 9, 9, 1, 4, 0)], []),
        "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    }
    for name, data in files.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
