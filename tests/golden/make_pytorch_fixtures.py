#!/usr/bin/env python3
"""Makes small PyTorch archives by hand, good and bad, for the reader's tests. Needs only Python itself.

Usage: make_pytorch_fixtures.py OUT
Writes OUT/*.pt and OUT/manifest.json: for each file "accept" with the tensors expected in it, or "reject" with a piece
of the message that must say why. The files of the real torch.save beside them are made by make_torch_fixtures.py.
"""
import io
import json
import pathlib
import struct
import sys
import zipfile


class Global:
    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    def __init__(self, function, *args):
        self.function, self.args = function, args


class Storage:
    """A persistent id as torch writes it."""

    def __init__(self, key, count, kind="FloatStorage", module="torch"):
        self.id = ("storage", Global(module, kind), key, "cpu", count)


class Raw:
    """Opcodes that leave one value on the stack."""

    def __init__(self, opcodes):
        self.opcodes = opcodes


def encode(value):
    """Protocol 2 opcodes for a value, without a memo."""
    if isinstance(value, Raw):
        return value.opcodes
    if isinstance(value, Global):
        return b"c%s\n%s\n" % (value.module.encode(), value.name.encode())
    if isinstance(value, Call):
        return encode(value.function) + encode(tuple(value.args)) + b"R"
    if isinstance(value, Storage):
        return encode(value.id) + b"Q"
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        if -2**31 <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        digits = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(digits)]) + digits
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if isinstance(value, tuple):
        return b"(" + b"".join(encode(item) for item in value) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(encode(item) for item in value) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(encode(key) + encode(item) for key, item in value.items()) + b"u"
    raise TypeError(type(value))


def pickled(value, protocol=2):
    return b"\x80" + bytes([protocol]) + encode(value) + b"."


ORDERED_DICT = Global("collections", "OrderedDict")


def tensor(storage, offset, size, stride, requires_grad=False):
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), storage, offset, size, stride, requires_grad,
                Call(ORDERED_DICT))


def floats(count, start=0.0):
    return struct.pack(f"<{count}f", *(start + i for i in range(count)))


def archive(pickle, storages, folder="archive/", byteorder=b"little", extra=(), compress=()):
    members = [(folder + "data.pkl", pickle)]
    if byteorder is not None:
        members.append((folder + "byteorder", byteorder))
    members += [(folder + "data/" + key, content) for key, content in storages.items()]
    members += [(folder + "version", b"3\n"), (folder + ".data/serialization_id", b"0" * 40), *extra]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        for name, content in members:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            file.writestr(info, content, zipfile.ZIP_DEFLATED if name in compress else zipfile.ZIP_STORED)
    return out.getvalue()


def zip64_archive(pickle, storages):
    """Written as a stream: sizes behind the data, and a zip64 field in every local header."""
    class Unseekable(io.RawIOBase):
        def __init__(self):
            self.content = b""

        def writable(self):
            return True

        def write(self, data):
            self.content += bytes(data)
            return len(data)

    out = Unseekable()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        for name, content in [("big/data.pkl", pickle), *(("big/data/" + key, c) for key, c in storages.items())]:
            with file.open(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), "w", force_zip64=True) as member:
                member.write(content)
    return out.content


def good_files():
    """name -> (archive, {tensor: [dtype, shape, values in row-major order]})"""
    six = Storage("0", 6)
    data = {"0": floats(6)}
    plain = {"w": tensor(six, 0, (2, 3), (3, 1))}
    w = {"w": ["F32", [2, 3], [0, 1, 2, 3, 4, 5]]}
    yield "plain", archive(pickled(plain), data), w
    yield "other_folder", archive(pickled(plain), data, folder="my model/"), w
    yield "no_folder", archive(pickled(plain), data, folder=""), w
    yield "no_byteorder", archive(pickled(plain), data, byteorder=None), w
    yield "zip64_streamed", zip64_archive(pickled(plain), data), w
    yield "protocol_4", archive(b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00" + encode(
        {"w": Raw(b"\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93\x94"
                  + encode((six, 0, (2, 3), (3, 1), False, {})) + b"R")}) + b".", data), w
    views = {
        "tied": tensor(six, 0, (6,), (1,)),
        "transposed": tensor(six, 0, (3, 2), (1, 3)),
        "column": tensor(six, 1, (2, 1), (3, 1)),
        "tail": tensor(six, 4, (2,), (1,)),
        "scalar": tensor(six, 5, (), ()),
        "expanded": tensor(six, 2, (2, 2), (0, 1)),
        "empty": tensor(six, 6, (0, 3), (3, 1)),
        "odd_unit_stride": tensor(six, 0, (1, 6), (2**62, 1)),
        "odd_unit_stride_view": tensor(six, 0, (3, 1, 2), (1, 2**62, 3)),
    }
    yield "views", archive(pickled({**plain, **views}), data), {
        **w, "tied": ["F32", [6], [0, 1, 2, 3, 4, 5]], "transposed": ["F32", [3, 2], [0, 3, 1, 4, 2, 5]],
        "column": ["F32", [2, 1], [1, 4]], "tail": ["F32", [2], [4, 5]], "scalar": ["F32", [], [5]],
        "expanded": ["F32", [2, 2], [2, 3, 2, 3]], "empty": ["F32", [0, 3], []],
        "odd_unit_stride": ["F32", [1, 6], [0, 1, 2, 3, 4, 5]],
        "odd_unit_stride_view": ["F32", [3, 1, 2], [0, 3, 1, 4, 2, 5]]}
    parameter = Call(Global("torch._utils", "_rebuild_parameter"), plain["w"], True, Call(ORDERED_DICT))
    with_state = Call(Global("torch._utils", "_rebuild_parameter_with_state"), plain["w"], True, {}, {"tag": 1})
    old = Call(Global("torch._utils", "_rebuild_tensor"), six, 0, Call(Global("torch", "Size"), (2, 3)), (3, 1))
    yield "rebuild_forms", archive(pickled({"p": parameter, "s": with_state, "old": old}), data), {
        "p": w["w"], "s": w["w"], "old": w["w"]}

    def untyped(dtype, count):
        storage = Storage("1", 8, "UntypedStorage", "torch.storage")
        return Call(Global("torch._utils", "_rebuild_tensor_v3"), storage, 0, (count,), (1,), False, {},
                    Global("torch", dtype))

    yield "untyped", archive(pickled({"u16": untyped("uint16", 4), "u32": untyped("uint32", 2),
                                      "f8": untyped("float8_e4m3fn", 8)}), {"1": bytes(range(8))}), {
        "u16": ["U16", [4], [256, 770, 1284, 1798]], "u32": ["U32", [2], [50462976, 117835012]],
        "f8": ["F8_E4M3", [8], list(range(8))]}
    nested = {"model": {"layers": {0: plain, 1: plain}}, "step": 7, "rate": 0.5, "name": "x", "none": None,
              "sizes": [1, (2, 3)], "dtype": Global("torch", "float16"), "huge": 2**80, "flag": True}
    yield "nested", archive(pickled(nested), data), {"model.layers.0.w": w["w"], "model.layers.1.w": w["w"]}
    # An OrderedDict whose _metadata is set by BUILD, with shared values through the memo.
    metadata = encode({"_metadata": Call(ORDERED_DICT)})
    yield "ordered_dict", archive(
        b"\x80\x02" + encode(ORDERED_DICT) + b"q\x00)Rq\x01(" + encode("w") + encode(plain["w"]) + b"q\x05"
        + encode("again") + b"h\x05u" + metadata + b"b.", data), {"w": w["w"], "again": w["w"]}


def bad_tensors():
    """name -> (value, piece of the message)"""
    six = Storage("0", 6)
    yield "reach_beyond", tensor(six, 1, (2, 3), (3, 1)), "reaches beyond"
    yield "offset_beyond", tensor(six, 7, (1,), (1,)), "reaches beyond"
    yield "negative_stride", tensor(six, 5, (6,), (-1,)), "not a count"
    yield "negative_size", tensor(six, 0, (-2, 3), (3, 1)), "not a count"
    yield "negative_offset", tensor(six, -1, (2,), (1,)), "not a count"
    yield "stride_overflow", tensor(six, 0, (3, 3), (2**62, 2**62)), "reaches beyond"
    yield "size_overflow", tensor(six, 0, (2**40, 2**40), (0, 0)), "2^63"
    yield "expanded_huge", tensor(six, 0, (2**40,), (0,)), "expansion"
    yield "rank_mismatch", tensor(six, 0, (2, 3), (1,)), "2 sizes but 1 strides"
    yield "rank_9", tensor(six, 0, (1,) * 9, (1,) * 9), "9 dimensions"
    yield "size_no_tuple", tensor(six, 0, [2, 3], (3, 1)), "expected a tuple"
    yield "size_of_strings", tensor(six, 0, ("2", "3"), (3, 1)), "not a count"
    yield "storage_absent", tensor(Storage("9", 6), 0, (6,), (1,)), "no member \"archive/data/9\""
    yield "storage_escapes", tensor(Storage("../data.pkl", 6), 0, (6,), (1,)), "no member"
    yield "storage_too_long", tensor(Storage("0", 7), 0, (6,), (1,)), "says 7 elements"
    yield "storage_negative", tensor(Storage("0", -1), 0, (6,), (1,)), "says -1 elements"
    yield "storage_other_type", tensor(Storage("0", 6, "DoubleStorage"), 0, (3,), (1,)), "says 6 elements"
    yield "storage_untyped", tensor(Storage("0", 24, "UntypedStorage"), 0, (3,), (1,)), "untyped storage"
    yield "storage_no_id", tensor("0", 0, (6,), (1,)), "its storage is a string"
    yield "few_arguments", Call(Global("torch._utils", "_rebuild_tensor_v2"), six, 0), "of 2 arguments"
    yield "bare_storage", six, "bare storage"
    yield "parameter_of_nothing", Call(Global("torch._utils", "_rebuild_parameter"), 3), "a parameter of a int"


def bad_files():
    """name -> (archive, piece of the message)"""
    six = Storage("0", 6)
    data = {"0": floats(6)}
    plain = {"w": tensor(six, 0, (2, 3), (3, 1))}
    for name, value, why in bad_tensors():
        yield name, archive(pickled({"w": value}), data), why
    yield "os_system", archive(pickled(Call(Global("os", "system"), "echo owned")), {}), "wants \"os.system\""
    yield "posix_system", archive(pickled(Call(Global("posix", "system"), "echo owned")), {}), "wants \"posix.system\""
    yield "builtins_eval", archive(pickled({"w": Call(Global("builtins", "eval"), "1+1")}), {}), "builtins.eval"
    yield "getattr_chain", archive(pickled(Call(Call(Global("builtins", "getattr"), Global("os", "path"), "join"),
                                                "a")), {}), "builtins.getattr"
    yield "dotted_name", archive(pickled(Call(Global("torch", "serialization.os.system"), "true")), {}), "refused"
    yield "stack_global", archive(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", {}), "os.system"
    yield "in_build_state", archive(b"\x80\x02" + encode(plain) + encode({"x": Call(Global("os", "system"), "x")})
                                    + b"b.", data), "os.system"
    yield "call_of_a_value", archive(pickled(Raw(encode("os.system") + encode(("x",)) + b"R")), {}), "calls a string"
    yield "inst_opcode", archive(b"\x80\x02(X\x01\x00\x00\x00xios\nsystem\n.", {}), "opcode 0x69"
    yield "big_endian", archive(pickled(plain), data, byteorder=b"big"), "byte order \"big\""
    yield "compressed", archive(pickled(plain), data, compress=["archive/data/0"]), "\"archive/data/0\" is compressed"
    yield "no_pickle", archive(pickled(plain), data).replace(b"data.pkl", b"data.pkx"), "data.pkl"
    yield "two_pickles", archive(pickled(plain), data, extra=[("other/data.pkl", pickled(plain))]), "two members"
    twice = archive(pickled(plain), {**data, "1": b""}).replace(b"archive/data/1", b"archive/data/0")
    yield "member_twice", twice, "occurs twice"
    yield "not_a_dict", archive(pickled([1, 2]), {}), "holds a list"
    yield "no_stop", archive(pickled(plain)[:-1], data), "without STOP"
    yield "behind_stop", archive(pickled(plain) + b"N", data), "behind STOP"
    yield "name_twice", archive(b"\x80\x02}(" + (encode("w") + encode(plain["w"])) * 2 + b"u.", data), "twice"
    yield "key_is_a_tuple", archive(pickled({(1, 2): plain["w"]}), data), "a dict key is a tuple"
    yield "name_not_utf8", archive(b"\x80\x02}X\x02\x00\x00\x00\xc0\x80Ns.", {}), "UTF-8"
    yield "cyclic_dict", archive(b"\x80\x02}q\x00" + encode("me") + b"h\x00s.", {}), "over and over"
    deep = plain
    for _ in range(20):
        deep = {"d": deep}
    yield "deep_dicts", archive(pickled(deep), data), "nested deeper"
    # Each dict holds the one before it ten times under different keys: ten to the power of fourteen tensors.
    laughs = b"\x80\x02" + encode(plain) + b"q\x00"
    for level in range(1, 15):
        laughs += b"}(" + b"".join(encode(str(i)) + b"h" + bytes([level - 1]) for i in range(10)) + b"uq" + bytes([level])
    yield "billion_laughs", archive(laughs + b"0" * 15 + b"h\x0e.", data), "over and over"
    whole = archive(pickled(plain), data)
    yield "cut_short", whole[:-30], "no end record"
    yield "legacy", pickled(0x1950A86A20F9469CFC6C), "old format"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    manifest = []
    for name, content, tensors in good_files():
        (out / f"{name}.pt").write_bytes(content)
        manifest.append({"file": f"{name}.pt", "expect": "accept", "tensors": tensors})
    for name, content, why in bad_files():
        (out / f"{name}.pt").write_bytes(content)
        manifest.append({"file": f"{name}.pt", "expect": "reject", "message": why})
    lines = ",\n".join(json.dumps(row) for row in manifest)
    (out / "manifest.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
