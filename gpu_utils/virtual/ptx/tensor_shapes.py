"""How the words of tensor memory lie in the registers of a warp: the shapes of tcgen05.ld and tcgen05.st.

With lane = 4 * group + quad (PTX manual, "Data Movement Shape"; CUTLASS's copy_traits_sm100.hpp says the same):

  32x32b     register i: row lane, column i
  16x64b     register i: row group + 8 * (lane % 2), column 2 * i + lane / 2 % 2
  16x128b    register 2 * i + h: row group + 8 * h, column 4 * i + quad
  16x256b    register 4 * i + 2 * h + e: row group + 8 * h, column 8 * i + 2 * quad + e
  16x32bx2   register i: row lane % 16, column i; lanes 16 to 31 take it from an address of their own
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

U32 = np.uint32
REPEATS = -1  # stands for .num in `split`


class Shape(NamedTuple):
    """rows of one access, columns of one repeat; the block (rows, columns) split into axes, and which of them number
    the registers, which the lanes."""

    rows: int
    columns: int
    split: tuple[int, ...]
    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    most: int  # repeats: 128 registers at most


SHAPES = {
    "32x32b": Shape(32, 1, (32, REPEATS), (1,), (0,), 128),
    "16x64b": Shape(16, 2, (2, 8, REPEATS, 2), (2,), (1, 3, 0), 128),
    "16x128b": Shape(16, 4, (2, 8, REPEATS, 4), (2, 0), (1, 3), 64),
    "16x256b": Shape(16, 8, (2, 8, REPEATS, 4, 2), (2, 0, 4), (1, 3), 32),
    "16x32bx2": Shape(16, 1, (32, REPEATS), (1,), (0,), 128),
}


def to_registers(shape: Shape, block: np.ndarray) -> np.ndarray:
    """(warps, rows, columns) -> (registers, warps, 32)."""
    warps = len(block)
    axes = [1 + axis for axis in shape.registers], [1 + axis for axis in shape.lanes]
    return block.reshape(warps, *shape.split).transpose(*axes[0], 0, *axes[1]).reshape(-1, warps, 32)


def from_registers(shape: Shape, registers: np.ndarray) -> np.ndarray:
    """(registers, warps, 32) -> (warps, rows, columns); of 16x32bx2 both halves, as 32 rows."""
    count, warps = registers.shape[:2]
    fixed = int(np.prod([shape.split[axis] for axis in shape.registers if shape.split[axis] > 0]))
    sizes = [count // fixed if size < 0 else size for size in shape.split]
    order = (*shape.registers, *shape.lanes)
    parts = registers.reshape(*(sizes[a] for a in shape.registers), warps, *(sizes[a] for a in shape.lanes))
    parts = np.moveaxis(parts, len(shape.registers), 0)
    back = [0, *(1 + order.index(axis) for axis in range(len(sizes)))]
    return parts.transpose(back).reshape(warps, -1, count * 32 // (sizes[0] if len(sizes) == 2 else 16))


def packed(block: np.ndarray) -> np.ndarray:
    """.pack::16b: the low halves of two columns side by side in one word, the first in its low half."""
    return (block[..., ::2] & U32(0xFFFF)) | block[..., 1::2] << U32(16)


def unpacked(block: np.ndarray) -> np.ndarray:
    """.unpack::16b: the two halves of each word in two columns, the upper half of which is 0."""
    halves = np.empty((*block.shape, 2), U32)
    halves[..., 0], halves[..., 1] = block & U32(0xFFFF), block >> U32(16)
    return halves.reshape(*block.shape[:-1], -1)
