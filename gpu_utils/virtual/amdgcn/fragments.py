"""Operands of matrix instructions: from registers to numbers that np.matmul takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import fp8
from gpu_utils.virtual.amdgcn.floating import bf16_to_f32
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.halves import half_to_f32

# BLAS sums so few products one after the other, however the operands lie in memory; of more, their layout decides the
# order, so that of the longer products stays as it is: rows side by side.
FREE_LAYOUT = 16
_INPUT = {"u8": "i8", "bf8": "fp8"}  # kinds that a row of TARGETS names by another
BITS = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "i8": 8, "u8": 8, "fp8": 8, "bf8": 8, "f64": 64}


def _round_xf32(value: np.ndarray) -> np.ndarray:
    """float32 to 10 explicit bits of mantissa, to nearest even."""
    bits = value.view(np.uint32)
    bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def _flush16(value: np.ndarray) -> np.ndarray:
    return np.where(np.abs(value) < np.float32(2.0**-14), np.float32(0), value)


def flush_normal(value: np.ndarray) -> np.ndarray:
    """float32 with zeros for denormals."""
    return np.where(np.abs(value) < np.float32(2.0**-126), np.float32(0), value)


def element_reader(decoder: Decoder, kind: str) -> Callable[[np.ndarray], np.ndarray]:
    """Elements as unsigned integers of their size -> values in a type that np.matmul multiplies exactly enough."""
    if _INPUT.get(kind, kind) not in decoder.limits.inputs:
        raise decoder.unsupported(f"{decoder.target} has no matrix instruction on {kind}")
    flush = decoder.limits.flushes_halves
    if kind == "f16":
        return (lambda w: _flush16(half_to_f32(w))) if flush else half_to_f32
    if kind == "bf16":
        return (lambda w: flush_normal(bf16_to_f32(w))) if flush else bf16_to_f32
    if kind == "f32":
        return lambda w: w.view(np.float32)
    if kind == "xf32":
        return lambda w: _round_xf32(w.view(np.float32))
    if kind == "f64":
        return lambda w: w.view(np.float64)
    if kind == "i8":
        return lambda w: w.view(np.int8).astype(np.float32)
    if kind == "u8":
        return lambda w: w.astype(np.float32)
    if kind in ("fp8", "bf8"):
        table = fp8.decode_table(fp8.is_fnuz(decoder), 4 if kind == "fp8" else 5)
        return table.take
    raise decoder.unsupported(f"element type {kind}")


def fragment(
    decoder: Decoder,
    text: str,
    kind: str,
    registers: int,
    groups: int,
    blocks: int,
    rows: int,
    parted: bool = False,
) -> Callable[[Any], np.ndarray]:
    """A function of the state that reads A or the transpose of B as (waves, blocks, K, rows).

    registers: how many hold the operand. groups: how many lanes share a row, each with other k; the lane number is
    (group * blocks + block) * rows + row, and lanes beyond that repeat the first. parted: rows in the order of the
    accumulator of a 32x32 product: those of the lower lanes of each register first (K of FREE_LAYOUT at most).

    The numbers are kept until the registers hold something else: one operand meets many others in a tile.
    """
    read, row, size = element_reader(decoder, kind), decoder.source(text, registers), BITS[kind] // 8
    lanes, by_rows = groups * blocks * rows, groups * registers * 4 // size > FREE_LAYOUT
    key = (row, registers, kind, groups, blocks, rows, parted)

    def arrange(words: np.ndarray) -> np.ndarray:
        waves = words.shape[1]
        if size == 8:
            pairs = np.ascontiguousarray(words.reshape(-1, 2, waves, lanes).transpose(0, 2, 3, 1))
            words = pairs.view(np.uint64)[..., 0]
        values = read(words.view(f"u{size}")).reshape(len(words), waves, groups, blocks, rows, -1)
        if by_rows:
            values = values.transpose(1, 3, 4, 2, 0, 5)
            return np.ascontiguousarray(values).reshape(waves, blocks, rows, -1).transpose(0, 1, 3, 2)
        if parted:  # row = 8 * quarter + 4 * (upper lanes) + r
            values = values.reshape(*values.shape[:4], 4, 2, 4, -1).transpose(1, 3, 2, 0, 7, 5, 4, 6)
        else:
            values = values.transpose(1, 3, 2, 0, 5, 4)
        return np.ascontiguousarray(values).reshape(waves, blocks, -1, rows)

    def get(s: Any) -> np.ndarray:
        words = s.block(row, registers)
        if lanes < words.shape[2]:
            words = words[..., :lanes]
        return kept(s, key, words, arrange)

    return get


def kept(s: Any, key: object, words: np.ndarray, arrange: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The numbers that `arrange` makes of registers, made anew only when these hold something else."""
    before = s.fragments.get(key)
    if before is not None and not np.count_nonzero(before[0] != words):
        return before[1]
    values = arrange(words)
    s.fragments[key] = words.copy(), values
    return values
