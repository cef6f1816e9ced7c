"""gfx1250's tensor data mover: tensor_load_to_lds and tensor_store_from_lds move a tile of up to five dimensions.

A descriptor in two or four groups of scalar registers says where: group 0 the LDS address and the first element of the
tile in global memory, groups 1 to 3 how many elements the tensor still has from there in each dimension, the tile's
sizes and the strides in elements (the innermost is 1). Elements outside the tensor load as zero and are not stored. A
load may leave a gap in LDS after every 2 to the power of n words. In gather mode groups 2 and 3 list rows.
Each wave does it as a whole, whatever EXEC says, and the copy is done when it is issued.

Not executed, and reported as an error: iteration, barriers in LDS that the copy arrives at, multicast to other blocks.
Source: the fields as Triton's TDMUtility.cpp lists and fills them (createTDMDescriptor, fillTDMDescriptor).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_utils.errors import VirtualGpuError
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.machine import Op, source_of

Run = Callable[[Any], Any]
_GROUPS = (4, 8, 4, 4)  # words
_RUN_BYTES = 16  # of neighbours that one lane moves at a time
_ADDRESS = (1 << 57) - 1


@dataclass(frozen=True)
class Tile:
    """What waves share of a descriptor: sizes of the tile from the innermost on, and how LDS is filled.

    size: bytes of an element. gap_every, gap: elements of LDS between gaps, and of one gap; 0 where there is none.
    indices: bits of a row number in gather mode, else 0.
    """

    sizes: tuple[int, ...]
    size: int
    gap_every: int
    gap: int
    indices: int


def decode(decoder: Decoder, ins: Instruction, op: Op) -> tuple[Run, str, str]:
    """(run, kind, ends) of a tensor instruction."""
    name = ins.mnemonic
    if name not in ("tensor_load_to_lds", "tensor_store_from_lds") or not decoder.gfx125:
        raise decoder.unsupported()
    texts = [text for text in ins.operands[:4] if text not in ("null", "off")]
    rows = [decoder.source(text, count) for text, count in zip(texts, _GROUPS, strict=False)]
    counts = _GROUPS[: len(rows)]
    loads = name == "tensor_load_to_lds"

    def run(s: Any) -> None:
        words = np.zeros((s.waves, sum(_GROUPS)), np.int64)
        at = 0
        for row, count in zip(rows, counts, strict=True):
            for i in range(count):
                words[:, at + i] = s.U[row + i][:, 0]
            at += count
        taking_part = (words[:, 0] & 3) != 0
        if s.act is not None:
            taking_part = taking_part & s.act
        shape = words[:, [0, 4, 7, 8, 15, 18]] & [
            0xC0000000,
            0xFFFFFFFF,
            0xFFFF0000,
            0xFFFFFFFF,
            0xFFFF0000,
            0xFFFF0000,
        ]
        for kind in np.unique(shape[taking_part], axis=0):
            alike = taking_part & (shape == kind).all(axis=1)
            _move(s, op, loads, _tile(s, op, kind.tolist()), words, alike)

    return run, "global", ""


def _tile(s: Any, op: Op, kind: list[int]) -> Tile:
    mode, control, tile0, tile12, tile3, tile4 = kind
    for bit, what in ((18, "arrives at a barrier in LDS"), (19, "iterates")):
        if control >> bit & 1:
            raise _refused(s, op, what)
    if control & 0xFFFF & ~1:
        raise _refused(s, op, "goes to several blocks")
    size = 1 << (control >> 16 & 3)
    sizes = [tile0 >> 16, tile12 & 0xFFFF, tile12 >> 16, tile3 >> 16, tile4 >> 16]
    indices = 0
    if mode >> 31 & 1:
        indices, sizes = (32 if mode >> 30 & 1 else 16), sizes[:2]
    used = next((i for i, length in enumerate(sizes) if not length), len(sizes))
    every = gap = 0
    if control >> 20 & 1:
        every, gap = (4 << (control >> 22 & 7) + 1) // size, 4 * ((control >> 25) + 1) // size
    return Tile(tuple(sizes[:used]), size, every, gap, indices)


def _left(words: np.ndarray) -> list[np.ndarray]:
    """Elements that the tensor has from the first of the tile on, int64 (waves,), from the innermost dimension on."""
    w = words.T
    return [
        w[5] >> 16 | (w[6] & 0xFFFF) << 16,
        w[6] >> 16 | (w[7] & 0xFFFF) << 16,
        w[12],
        w[13],
        w[17] >> 16 | (w[18] & 0xFFFF) << 16,
    ]


def _strides(words: np.ndarray) -> list[np.ndarray]:
    """Elements from one to the next, int64 (waves,), from the innermost dimension on."""
    w = words.T
    return [
        np.ones(len(words), np.int64),
        w[9] | (w[10] & 0xFFFF) << 32,
        w[10] >> 16 | w[11] << 16,
        w[14] | (w[15] & 0xFFFF) << 32,
        w[16] | (w[17] & 0xFFFF) << 32,
    ]


def _move(s: Any, op: Op, loads: bool, tile: Tile, words: np.ndarray, waves: np.ndarray) -> None:
    """Move the tiles of some waves, `lanes` runs of neighbours at a time."""
    left, strides, total = _left(words), _strides(words), math.prod(tile.sizes)
    if not total:
        return
    run = _run_length(tile, left[0][waves])
    first = np.arange(0, total, run)
    place = np.zeros((s.waves, len(first)), np.int64)
    inside = np.ones((s.waves, len(first)), bool)
    rest = first
    for i, length in enumerate(tile.sizes):
        index = np.broadcast_to(rest % length, place.shape)
        if i == 1 and tile.indices:
            index = np.take_along_axis(_rows_listed(words, tile.indices), index, axis=1)
        inside &= index < left[i][:, None]
        place = place + index * strides[i][:, None]
        rest = rest // length
    base = (words[:, 2] | words[:, 3] << 32) & _ADDRESS
    where = base[:, None] + place * tile.size
    to = first + (first // tile.gap_every * tile.gap if tile.gap_every and loads else 0)
    lds = words[:, 1:2] + to * tile.size
    width, count = (4, run * tile.size // 4) if tile.size == 8 else (tile.size, run)
    for start in range(0, len(first), s.lanes):
        stop = min(start + s.lanes, len(first))
        here, spot = (np.zeros((s.waves, s.lanes), np.int64) for _ in range(2))
        mask, whole = (np.zeros((s.waves, s.lanes), bool) for _ in range(2))
        here[:, : stop - start], spot[:, : stop - start] = where[:, start:stop], lds[:, start:stop]
        mask[:, : stop - start] = inside[:, start:stop] & waves[:, None]
        whole[:, : stop - start] = waves[:, None]
        if loads:
            values = s.memory.load(s, op, here, width, count, mask, aligned=False) if mask.any() else None
            zero = np.zeros((s.waves, s.lanes), f"u{width}")
            found = [zero] * count if values is None else [np.where(mask, value, zero) for value in values]
            s.shared.store(s, op, spot, found, width, whole)
        elif mask.any():
            values = s.shared.load(s, op, spot, width, count, mask)
            s.memory.store(s, op, here, values, width, mask, aligned=False)


def _run_length(tile: Tile, left: np.ndarray) -> int:
    """Neighbours of the innermost dimension that all are inside of the tensor or all outside, in every wave."""
    run = math.gcd(tile.sizes[0], max(1, _RUN_BYTES // tile.size), *((tile.gap_every,) if tile.gap_every else ()))
    ends = np.unique(np.minimum(left, tile.sizes[0]))
    return math.gcd(run, *ends.tolist())


def _rows_listed(words: np.ndarray, bits: int) -> np.ndarray:
    """The rows that gather mode lists, int64 (waves, 8 or 16)."""
    listed = words[:, 12:20]
    return listed if bits == 32 else np.stack([listed & 0xFFFF, listed >> 16], axis=-1).reshape(len(words), -1)


def _refused(s: Any, op: Op, what: str) -> VirtualGpuError:
    return VirtualGpuError(
        f"kernel {s.program.name}{source_of(op)}: the descriptor of `{op.text.strip()}` {what}; a virtual GPU executes "
        "plain copies of tiles, with gaps and with listed rows: leave that field 0"
    )
