"""Which element of A, B and C each lane holds: m16n8k16 of PTX and the 16x16x16 MFMA, both on float16.

The first after the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", the second after AMD's
"Matrix Instruction Calculator" and the ISA manuals of CDNA; a test executes both.
"""

from __future__ import annotations

from collections.abc import Callable

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MFMA = "v_mfma_f32_16x16x16_f16"

LANES = {MMA: 32, MFMA: 64}
COLUMNS = {MMA: 8, MFMA: 16}
ROWS = DEPTH = 16

Place = tuple[int, int]
Table = dict[str, list[Place]]


def mma(lane: int) -> Table:
    group, pair = lane // 4, lane % 4 * 2
    return {
        "a": [(group + row, pair + k + half) for k in (0, 8) for row in (0, 8) for half in (0, 1)],
        "b": [(pair + k + half, group) for k in (0, 8) for half in (0, 1)],
        "c": [(group + row, pair + half) for row in (0, 8) for half in (0, 1)],
    }


def mfma(lane: int) -> Table:
    line, first = lane % 16, lane // 16 * 4
    return {
        "a": [(line, first + i) for i in range(4)],
        "b": [(first + i, line) for i in range(4)],
        "c": [(first + i, line) for i in range(4)],
    }


RIGHT: dict[str, Callable[[int], Table]] = {MMA: mma, MFMA: mfma}


def right(instruction: str, lane: int) -> Table:
    """The solution."""
    return RIGHT[instruction](lane)


def extents(instruction: str) -> dict[str, Place]:
    """Name of a matrix -> its rows and columns."""
    columns = COLUMNS[instruction]
    return {"a": (ROWS, DEPTH), "b": (DEPTH, columns), "c": (ROWS, columns)}
