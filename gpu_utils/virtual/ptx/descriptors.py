"""Descriptors of tcgen05: what the instruction multiplies, and how its operands lie in shared memory.

Shared-memory descriptor, 64 bits (PTX manual, "Shared Memory Descriptor"; CUTLASS's mma_sm100_desc.hpp): 0-13 start
address, 16-29 leading and 32-45 stride byte offset, all in units of 16 bytes; 46-48 the constant 1; 49-51 base offset;
52 mode of the leading offset; 61-63 swizzle: 0 none, 1 of 128 bytes by 32, 2, 4, 6 of 128, 64, 32 bytes by 16.

With W the bytes that are swizzled, row r, k in elements, b the byte along K, x the byte along M or N:

  K-major, swizzled:    (r / 8) * stride + (r % 8) * W + b
  K-major, not:         (r / 8) * stride + (b / 16) * lead + (r % 8) * 16 + b % 16
  MN-major, swizzled:   (x / W) * lead + (k / 8) * stride + (k % 8) * W + x % W     (by 32: 4 for 8)
  MN-major, not:        (x / 16) * stride + (k / 8) * lead + (k % 8) * 16 + x % 16
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpu_utils.errors import OutOfBounds, UninitialisedShared
from gpu_utils.virtual.machine import Op, source_of
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.tensor_memory import fault

U64 = np.uint64
WIDTHS = {0: 0, 1: 128, 2: 128, 4: 64, 6: 32}
BY_32 = 1


class Matrix(NamedTuple):
    """A shared-memory descriptor: bytes, and the code of the swizzle."""

    start: int
    lead: int
    stride: int
    base: int
    swizzle: int

    @classmethod
    def of(cls, state: PtxState, op: Op, wave: int, d: int) -> Matrix:
        """From its 64 bits. Raises TensorMemoryFault for a descriptor that is none of sm_100."""
        swizzle = d >> 61
        if (d >> 46) & 7 != 1:
            fault(state, op, wave, f"passes {d:#018x}, which is no shared-memory descriptor of sm_100: bits 46 to 48 "
                  "must be 1 (sm_90's have 0 there)")  # fmt: skip
        if swizzle not in WIDTHS or (d >> 52) & 1:
            fault(state, op, wave, f"passes the shared-memory descriptor {d:#018x}, whose swizzle is {swizzle}: "
                  "it must be 0, 1, 2, 4 or 6, and bit 52 be 0")  # fmt: skip
        return cls((d & 0x3FFF) << 4, (d >> 16 & 0x3FFF) << 4, (d >> 32 & 0x3FFF) << 4, d >> 49 & 7, swizzle)


class Product(NamedTuple):
    """An instruction descriptor, 32 bits: shape, types by number, and what is negated or transposed."""

    m: int
    n: int
    d: int
    a: int
    b: int
    negate: bool
    turn_a: bool
    turn_b: bool
    saturate: bool
    sparse: bool
    scale_a: int  # byte of the word in tensor memory where the scales begin; of forms with block scales
    scale_b: int
    powers: bool  # scales are UE8M0, not UE4M3
    long_k: bool

    @classmethod
    def of(cls, bits: int, scaled: bool) -> Product:
        """From its bits (CUTLASS's InstrDescriptor, and InstrDescriptorBlockScaled for forms with block scales)."""
        return cls(
            m=(bits >> 24 & 31) << 4,
            n=(bits >> 17 & 63) << 3,
            d=bits >> 4 & 3,
            a=bits >> 7 & 7,
            b=bits >> 10 & 7,
            negate=bool((bits >> 13 ^ bits >> 14) & 1),
            turn_a=bool(bits >> 15 & 1),
            turn_b=bool(bits >> 16 & 1),
            saturate=not scaled and bool(bits >> 3 & 1),
            sparse=bool(bits >> 2 & 1),
            scale_a=bits >> 29 & 3,
            scale_b=bits >> 4 & 3,
            powers=bool(bits >> 23 & 1),
            long_k=scaled and bool(bits >> 31),
        )


@lru_cache(maxsize=1024)
def chunk_places(matrix: Matrix, rows: int, count: int, turned: bool, size: int) -> np.ndarray:
    """Where the 16-byte chunks of an operand lie in the block's shared memory.

    K-major: (rows, count / 16) with count the bytes along K. MN-major: (K, rows * size / 16), where K = count / size.
    """
    width, four = WIDTHS[matrix.swizzle], matrix.swizzle == BY_32
    if turned:
        tall = 4 if four else 8
        k, x = np.arange(count // size)[:, None], np.arange(0, rows * size, 16)[None]
        if width:
            place = (x // width) * matrix.lead + (k // tall) * matrix.stride + (k % tall) * width + x % width
        else:
            place = (x // 16) * matrix.stride + (k // 8) * matrix.lead + (k % 8) * 16
    else:
        r, b = np.arange(rows)[:, None], np.arange(0, count, 16)[None]
        if width:
            place = (r // 8) * matrix.stride + (r % 8) * width + b
        else:
            place = (r // 8) * matrix.stride + (b // 16) * matrix.lead + (r % 8) * 16
    address = matrix.start + place
    if width:
        row = (address >> 7) - matrix.base
        address = address ^ (((row & 3) << 5) if four else ((row << 4) & (width - 16)))
    address.flags.writeable = False
    return address


def chunks(state: PtxState, op: Op, places: np.ndarray, waves: np.ndarray, used: int = 16) -> np.ndarray:
    """uint8 (n, rows, bytes) of the chunks at `places`, for the block of each of `waves`.

    used: bytes of each chunk that hold elements; the rest is padding and may be unwritten.
    """
    low, high = int(places.min()), int(places.max()) + 16
    if low < 0 or high > state.shared.size:
        raise OutOfBounds(
            f"kernel {state.program.name}{source_of(op)}: {state.where(int(waves[0]), 0)} uses a matrix that reaches "
            f"offset {high} of shared memory, which has {state.shared.size} bytes per block (`{op.mnemonic}`)"
        )
    flat = places[None] + (state.block_of_wave[waves] * state.shared.stride)[:, None, None]
    if state.watch is not None:
        state.shared.touch(state, op, waves, flat.reshape(len(waves), -1), used, "load", "tcgen05")
    if state.shared.check:
        marks = state.shared.marks[8].take(flat >> 4)
        wanted = U64(int("01" * (used // 2), 16))
        if ((marks & wanted) != wanted).any():
            raise UninitialisedShared(
                f"kernel {state.program.name}{source_of(op)}: {state.where(int(waves[0]), 0)} uses a matrix in shared "
                f"memory of which a part was never written; is a store, a copy or a wait missing? (`{op.mnemonic}`)"
            )
    words = np.empty((*flat.shape, 2), U64)
    words[..., 0], words[..., 1] = state.shared.words[8].take(flat >> 3), state.shared.words[8].take((flat >> 3) + 1)
    return words.reshape(len(waves), places.shape[0], -1).view(np.uint8)


def operand(
    state: PtxState, op: Op, d: int, waves: np.ndarray, rows: int, size: int, turned: bool, used: int = 16
) -> np.ndarray:
    """Elements of a matrix with 32 bytes along K: unsigned of `size` bytes, (n, rows, 32 / size)."""
    matrix = Matrix.of(state, op, int(waves[0]), d)
    if (matrix.swizzle == BY_32) != (turned and size == 4):
        fault(state, op, int(waves[0]), "combines a swizzle of 128 bytes by 32 with an operand that is not 32 bits "
              "wide and transposed, or the other way round")  # fmt: skip
    raw = chunks(state, op, chunk_places(matrix, rows, 32, turned, size), waves, used).view(f"u{size}")
    return np.ascontiguousarray(raw.swapaxes(1, 2)) if turned else raw


def copied_rows(state: PtxState, op: Op, d: int, waves: np.ndarray, rows: int, count: int, bits: int) -> np.ndarray:
    """uint8 (n, rows, count): what tcgen05.cp takes, a K-major matrix of `count` bytes a row."""
    matrix = Matrix.of(state, op, int(waves[0]), d)
    if matrix.swizzle == BY_32:
        fault(state, op, int(waves[0]), "copies with a swizzle of 128 bytes by 32, which is for transposed operands")
    return chunks(state, op, chunk_places(matrix, rows, count, False, 1), waves, 2 * bits or 16)
