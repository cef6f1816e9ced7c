"""What a table entry of an arithmetic instruction is, and the operand types that entries name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Operand type -> (column of the register file, NumPy type of the view). Packed pairs double the last axis.
TYPES: dict[str, tuple[str, np.dtype]] = {
    "pred": ("pred", np.dtype(bool)),
    **{name: ("16", np.dtype(kind)) for name, kind in [("b16", "u2"), ("u16", "u2"), ("s16", "i2"), ("f16", "f2")]},
    "bf16": ("16", np.dtype("u2")),
    "b8": ("16", np.dtype("u2")),
    "u8": ("16", np.dtype("u2")),
    "s8": ("16", np.dtype("u2")),
    **{name: ("32", np.dtype(kind)) for name, kind in [("b32", "u4"), ("u32", "u4"), ("s32", "i4"), ("f32", "f4")]},
    "f16x2": ("32", np.dtype("f2")),
    "bf16x2": ("32", np.dtype("u2")),
    "u16x2": ("32", np.dtype("u2")),
    "s16x2": ("32", np.dtype("i2")),
    **{name: ("64", np.dtype(kind)) for name, kind in [("b64", "u8"), ("u64", "u8"), ("s64", "i8"), ("f64", "f8")]},
    "f32x2": ("64", np.dtype("f4")),
    "cc": ("pred", np.dtype(bool)),
}
BYTES = {"pred": 1, "b8": 1, "u8": 1, "s8": 1, "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "b128": 16, "cc": 1}
BYTES |= {f"{k}{n}": n // 8 for k in "bus" for n in (16, 32, 64)}
BYTES |= dict.fromkeys(("f16x2", "bf16x2", "u16x2", "s16x2"), 4) | {"f32x2": 8}


class Form(NamedTuple):
    """One executable spelling: fn(*inputs, *outputs) fills the output arrays; no output is read after it is written."""

    outs: tuple[str, ...]
    ins: tuple[str, ...]
    fn: Callable[..., object]


Table = dict[str, Form]


def store(fn: Callable[..., np.ndarray]) -> Callable[..., None]:
    """An entry's function from one that returns its single result."""

    def run(*arrays: np.ndarray) -> None:
        np.copyto(arrays[-1], fn(*arrays[:-1]), casting="unsafe")

    return run
