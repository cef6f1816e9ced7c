"""A layout of a tile: a function from (row, column) to a place in shared memory, and what it costs the banks.

Whatever is moved goes in pieces: 16 bytes of a row, or one element. Three patterns of access say which piece each lane
of a warp or wavefront takes; with a layout they become byte offsets, and `gpu_utils.analytic.access` counts passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_utils.analytic.access import BankAccess, bank_conflicts
from gpu_utils.analytic.formulas import formula, names
from gpu_utils.errors import BadArgument

NAMES = ("row", "col", "rows", "cols")
"""What a layout may name: the element, and the tile."""

MOST = 1 << 14
"""Elements of a tile."""


def offsets(layout: str, rows: int, cols: int) -> np.ndarray:
    """The place of each element, int64 (rows, cols), counted in elements; of a formula in `NAMES`.

    Errors: BadArgument for a tile of no or of more than `MOST` elements, and for text that is no such formula.

    >>> offsets("row * cols + (col ^ row % 4)", 2, 4)
    array([[0, 1, 2, 3],
           [5, 4, 7, 6]])
    """
    if min(rows, cols) < 1 or rows * cols > MOST:
        raise BadArgument(f"a tile of {rows} x {cols} was asked for; expected 1 to {MOST:,} elements")
    if other := sorted(names(layout) - set(NAMES)):
        raise BadArgument(f"`{layout}` names {other[0]}; known are {', '.join(NAMES)}")
    row, col = np.indices((rows, cols), dtype=np.int64)
    found = np.asarray(formula(layout, {"row": row, "col": col, "rows": rows, "cols": cols}), np.int64)
    return np.broadcast_to(found, (rows, cols)).copy()


@dataclass(frozen=True)
class Fault:
    """Why a layout is no bijection of a tile.

    kind    "outside" (a place that is none) or "collision" (two elements in one place)
    place   the place; elements: (row, col) of the one element, or of the two
    """

    kind: str
    place: int
    elements: tuple[tuple[int, int], ...]

    @property
    def sentence(self) -> str:
        """
        >>> Fault("collision", 4, ((0, 4), (1, 1))).sentence
        '(0, 4) and (1, 1) both go to place 4'
        """
        if self.kind == "outside":
            return f"{self.elements[0]} goes to place {self.place}, which the tile does not have"
        return f"{self.elements[0]} and {self.elements[1]} both go to place {self.place}"


def fault_of(places: np.ndarray) -> Fault | None:
    """The first fault of a layout, int64 (rows, cols); None for a bijection onto as many places as elements.

    >>> fault_of(np.array([[0, 1], [1, 2]]))
    Fault(kind='collision', place=1, elements=((0, 1), (1, 0)))
    """
    flat, cols = places.reshape(-1), places.shape[1]
    beyond = np.nonzero((flat < 0) | (flat >= flat.size))[0]
    if beyond.size:
        return Fault("outside", int(flat[beyond[0]]), (_element(beyond[0], cols),))
    order = np.argsort(flat, kind="stable")
    again = np.nonzero(flat[order][1:] == flat[order][:-1])[0]
    if not again.size:
        return None
    first = min(again, key=lambda at: order[at + 1])
    one, other = order[first], order[first + 1]
    return Fault("collision", int(flat[one]), (_element(one, cols), _element(other, cols)))


def whole_pieces(places: np.ndarray, each: int) -> str:
    """Which piece of `each` elements is not in one piece, in order and at a multiple of it; "" if all are.

    >>> whole_pieces(offsets("row * cols + (col ^ row)", 2, 4), 2)
    'the piece of row 1 from column 0 on goes to the places 5, 4'
    """
    pieces = places.reshape(len(places), -1, each)
    wrong = np.argwhere((pieces != pieces[..., :1] + np.arange(each)).any(axis=-1) | (pieces[..., 0] % each != 0))
    if not len(wrong):
        return ""
    row, piece = (int(one) for one in wrong[0])
    found = ", ".join(map(str, pieces[row, piece]))
    return f"the piece of row {row} from column {piece * each} on goes to the places {found}"


def _element(number: Any, cols: int) -> tuple[int, int]:
    return int(number) // cols, int(number) % cols


# Who takes which piece. int64 (accesses, lanes, 2): row and piece of each lane, -1 for none.


def by_rows(rows: int, pieces: int, lanes: int) -> np.ndarray:
    """Lane after lane along the rows: how a tile comes in from global memory.

    >>> by_rows(2, 4, 4)[1].tolist()
    [[1, 0], [1, 1], [1, 2], [1, 3]]
    """
    number = np.arange(-(-rows * pieces // lanes) * lanes).reshape(-1, lanes)
    taken = np.stack([number // pieces, number % pieces], axis=-1)
    return np.where((number < rows * pieces)[..., None], taken, -1)


def by_columns(rows: int, pieces: int, lanes: int) -> np.ndarray:
    """Lane after lane down a column of pieces.

    >>> by_columns(4, 2, 4)[1].tolist()
    [[0, 1], [1, 1], [2, 1], [3, 1]]
    """
    number = np.arange(-(-rows * pieces // lanes) * lanes).reshape(-1, lanes)
    taken = np.stack([number % rows, number // rows], axis=-1)
    return np.where((number < rows * pieces)[..., None], taken, -1)


def by_operand(rows: int, pieces: int, lanes: int) -> np.ndarray:
    """As a matrix instruction wants its operand: 16 rows, and of them 2 pieces for 32 lanes (`ldmatrix`), 4 for 64.

    Lane l takes row l % 16 and piece l // 16 of its part of the tile.

    >>> by_operand(16, 4, 32)[1, [0, 15, 16]].tolist()
    [[0, 2], [15, 2], [0, 3]]
    """
    wide = lanes // 16
    lane = np.arange(lanes)
    found = [
        np.stack([top + lane % 16, left + lane // 16], axis=-1)
        for top in range(0, rows, 16)
        for left in range(0, pieces, wide)
    ]
    taken = np.array(found)
    there = (taken[..., 0] < rows) & (taken[..., 1] < pieces)
    return np.where(there[..., None], taken, -1)


PATTERNS: Mapping[str, Any] = {"rows": by_rows, "columns": by_columns, "operand": by_operand}
"""Name of a pattern of access -> which piece each lane takes."""


def lane_offsets(places: np.ndarray, taken: np.ndarray, element_bytes: int, piece_bytes: int) -> np.ndarray:
    """Byte offset of each lane's piece, int64 (accesses, lanes), -1 for none.

    places  of each element; taken: row and piece of each lane; piece_bytes: a multiple of element_bytes

    >>> lane_offsets(offsets("row * cols + col", 2, 8), by_rows(2, 1, 4), 2, 16).tolist()
    [[0, 16, -1, -1]]
    """
    each = piece_bytes // element_bytes
    row, piece = taken[..., 0], taken[..., 1]
    found = places[np.maximum(row, 0), np.maximum(piece, 0) * each] * element_bytes
    return np.where(row >= 0, found, -1)


def accesses(found: np.ndarray, piece_bytes: int, target: str, access: str) -> list[BankAccess]:
    """What each access costs on a target; found: byte offsets (accesses, lanes), -1 for none; access: read or write."""
    return [
        bank_conflicts(
            [None if at < 0 else int(at) for at in one], access_bytes=piece_bytes, target=target, access=access
        )
        for one in found
    ]
