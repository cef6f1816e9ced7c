"""Where an element of a tile lies when the tile is stored in fractals, as an Ascend cube core wants it."""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import BadArgument

ROWS, BYTES = 16, 32
"""A fractal: 16 rows of 32 bytes, in one piece. Source: CANN, copy_gm_to_cbuf_multi_nd2nz (ND to NZ)."""


def fractal_places(rows: int, cols: int, itemsize: int) -> np.ndarray:
    """The place of each element, int64 (rows, cols), counted in elements: fractals down the rows, then across.

    rows, cols  of the tile, rows a multiple of 16; itemsize: bytes of an element
    Raises BadArgument for rows that fill no whole fractal.

    >>> int(fractal_places(64, 48, 2)[17, 35])
    2323
    """
    if rows % ROWS or min(rows, cols) < 1:
        raise BadArgument(f"a tile of {rows} rows fills no whole fractals; expected a multiple of {ROWS}")
    wide = BYTES // itemsize
    row, col = np.indices((rows, cols), dtype=np.int64)
    return col // wide * rows * wide + row * wide + col % wide
