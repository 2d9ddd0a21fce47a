#!/usr/bin/env python3
"""Makes PyTorch files with the real torch.save, for the reader's tests.

Needs torch and safetensors. Usage: make_torch_fixtures.py OUT
Writes OUT/torch_save.pt with tensors of every kind a checkpoint holds, OUT/torch_expected.safetensors with the same
values laid out plainly, OUT/torch_legacy.pt in the old non-zip form, and OUT/torch_refused.pt with an object inside.
"""
import collections
import fractions
import pathlib
import sys

import torch
from safetensors.torch import save_file


def tensors():
    generator = torch.Generator().manual_seed(7)
    base = torch.randn(6, 8, generator=generator)
    tied = torch.randn(3, 5, generator=generator)
    return collections.OrderedDict({
        "plain": torch.randn(4, 3, generator=generator),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 4),
        "transposed": base.t(),
        "column_slice": base[:, 2:5],
        "row_slice": base[3:],
        "stepped": base[::2, 1::3],
        "expanded": torch.randn(1, 4, generator=generator).expand(3, 4),
        "tied_a": tied,
        "tied_b": tied,
        "tied_flat": tied.view(15),
        "parameter": torch.nn.Parameter(torch.randn(2, 2, generator=generator)),
        "f64": torch.randn(3, generator=generator, dtype=torch.float64),
        "f16": torch.randn(5, generator=generator).half(),
        "bf16": torch.randn(5, generator=generator).bfloat16(),
        "i8": torch.tensor([-128, 0, 127], dtype=torch.int8),
        "i16": torch.tensor([-32768, 5], dtype=torch.int16),
        "i32": torch.tensor([-7, 1 << 30], dtype=torch.int32),
        "i64": torch.tensor([-7, 1 << 60], dtype=torch.int64),
        "u8": torch.tensor([0, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
    })


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    state = tensors()
    torch.save(state, out / "torch_save.pt")
    torch.save({"model": state, "epoch": 3, "note": "x"}, out / "torch_nested.pt")
    torch.save({"w": state["plain"]}, out / "torch_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"w": state["plain"], "half": fractions.Fraction(1, 2)}, out / "torch_refused.pt")
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in state.items()},
              out / "torch_expected.safetensors")


if __name__ == "__main__":
    main()
