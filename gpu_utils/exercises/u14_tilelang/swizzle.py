"""14.swizzle: where the elements of a tile lie, so that no bank is asked twice: counted on the virtual GPUs."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_utils.analytic.layouts import by_operand, by_rows, fault_of, lane_offsets, whole_pieces
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.backends.launching import launch_cpp
from gpu_utils.chips.targets import TARGETS
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

PIECE = 16
"""Bytes that a lane moves at once."""

JUDGES = ("sm_80", "gfx942")
"""Virtual GPUs on which a layout is counted. sm_90 serves shared memory as sm_80 does."""

SOURCE = Path(__file__).parent / "kernels" / "tile_pieces.cu"


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"rows": case["rows"], "cols": case["cols"], "size": case["size"]}


def tabulated(answer: Callable[..., Any], inputs: Inputs) -> list[list[Any]]:
    """The answer for every element of the tile: a list for each row. What is no whole number stays as it is."""

    def place(row: int, col: int) -> Any:
        found = answer(row=row, col=col, cols=inputs["cols"], size=inputs["size"])
        return operator.index(found) if hasattr(found, "__index__") and not isinstance(found, bool) else found

    return [[place(row, col) for col in range(inputs["cols"])] for row in range(inputs["rows"])]


def right(row: int, col: int, cols: int, size: int) -> int:
    """One right layout of many: pieces moved by xor with bits of the row."""
    each = PIECE // size
    pieces = cols // each
    lowest = min(pieces & -pieces, 8)
    piece = col // each ^ row // (8 // lowest) % lowest
    return row * cols + piece * each + col % each


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    places, wrong = _places(inputs, value)
    if places is None:
        return wrong
    if fault := fault_of(places):
        more = f"; it has {places.size} places, 0 to {places.size - 1}" if fault.kind == "outside" else ""
        return Difference(fault.kind, f"(row, col) = {fault.sentence}{more}")
    return _whole(places, inputs["size"]) or _counted(places, inputs["size"])


def _places(inputs: Inputs, value: Any) -> tuple[np.ndarray | None, Difference | None]:
    """The table as an array, or what is wrong with it."""
    for row, line in enumerate(value):
        for col, place in enumerate(line):
            if isinstance(place, bool) or not isinstance(place, int):
                call = f"swizzle({row}, {col}, {inputs['cols']}, {inputs['size']})"
                return None, Difference(
                    "form", f"{call} is {place!r}; expected a whole number, the place of the element"
                )
            if abs(place) > 2**40:
                return None, Difference("outside", f"(row, col) = ({row}, {col}) goes to place {place}")
    return np.array(value, np.int64), None


def _whole(places: np.ndarray, size: int) -> Difference | None:
    """Whether every 16 bytes of a row stay together, in their order, at a multiple of 16 bytes."""
    each = PIECE // size
    if not (broken := whole_pieces(places, each)):
        return None
    return Difference(
        "piece",
        f"{broken}; expected {each} places in a row that begin at a multiple of {each}, because a lane moves 16 bytes "
        f"at once",
    )


def _counted(places: np.ndarray, size: int) -> Difference | None:
    counts = {target: _on(target, places.shape, size, places.tobytes()) for target in JUDGES}
    for target, (written, read, arrived) in counts.items():
        if not arrived:
            return Difference("values", f"on {target} what was read is not what was written")
        for lost, what in ((written, "writes along the rows"), (read, "reads of the operand")):
            if lost:
                detail = f"on {target} the {what} take {lost} passes more than without bank conflicts; expected none"
                return Difference(f"conflicts:{list(counts.values())}", detail)
    return None


@lru_cache(maxsize=256)
def _on(target: str, shape: tuple[int, int], size: int, table: bytes) -> tuple[int, int, bool]:
    """Conflicts of writing and of reading a tile on a virtual GPU, and whether the data came back."""
    places = np.frombuffer(table, np.int64).reshape(shape)
    rows, lanes = shape[0], TARGETS[target].lanes
    pieces = shape[1] * size // PIECE
    taken = by_rows(rows, pieces, lanes), by_operand(rows, pieces, lanes)
    written, read = (_of_lanes(places, one, size) for one in taken)
    number = [torch.from_numpy(np.where(one[..., 0] < 0, -1, one[..., 0] * pieces + one[..., 1])) for one in taken]
    data = number[0].reshape(-1, 1).repeat(1, 4).int().contiguous()
    out = torch.full((read.numel(), 4), -1, dtype=torch.int32)
    arguments = [written, len(taken[0]), read, len(taken[1]), data, out]
    gpu = launch_cpp((target,), SOURCE.read_text("utf-8"), "tile_pieces", 1, lanes, arguments)[target]
    lost = {"store": 0, "load": 0}
    for access in gpu.counters.shareds.values():
        lost[access.kind] += access.transactions - access.ideal
    return lost["store"], lost["load"], torch.equal(out[:, 0], number[1].reshape(-1).int())


def _of_lanes(places: np.ndarray, taken: np.ndarray, size: int) -> torch.Tensor:
    """Of each lane of each access the place in pieces, int32."""
    found = lane_offsets(places, taken, size, PIECE)
    return torch.from_numpy(np.where(found < 0, -1, found // PIECE).astype(np.int32).reshape(-1))


def _fresh(rng: random.Random) -> Case:
    size, pieces = rng.choice([1, 2, 4]), rng.choice([4, 8, 12, 16, 20, 24])
    return Case("a tile nobody chose", rows=rng.choice([16, 32, 48]), cols=pieces * PIECE // size, size=size)


def _moved(piece: Callable[[int, int, int], int]) -> Callable[..., int]:
    """A layout that moves pieces within their row: piece(row, piece, pieces)."""

    def layout(row: int, col: int, cols: int, size: int) -> int:
        each = PIECE // size
        return row * cols + piece(row, col // each, cols // each) * each + col % each

    return layout


def _only_two_bytes(row: int, col: int, cols: int, size: int) -> int:
    return right(row, col, cols, 2)


def _padded(row: int, col: int, cols: int, size: int) -> int:
    return row * (cols + PIECE // size) + col


_WRONG: tuple[tuple[str, Callable[..., int], str], ...] = (
    (
        "row_after_row",
        _moved(lambda row, piece, pieces: piece),
        "The 8 rows that are read together lie as in a tile stored row after row: the same piece of each is in the "
        "same banks, or in the same as every other row's. Neighbouring rows must differ in where their pieces lie, so "
        "the lowest bits of the row decide.",
    ),
    (
        "padding",
        _padded,
        "Rows are padded, so the tile no longer fits its place. Move pieces within a row instead: as many places as "
        "elements.",
    ),
    (
        "elements_moved",
        lambda row, col, cols, size: row * cols + (col ^ row % 8),
        "Single elements are moved. A lane moves 16 bytes at once, so the elements of a piece stay together: move "
        "whole pieces.",
    ),
    (
        "columns_first",
        lambda row, col, cols, size: col * 16 + row,
        "The tile lies column after column. A piece is 16 bytes of one row, and must stay in one piece.",
    ),
    (
        "places_in_bytes",
        lambda row, col, cols, size: right(row, col, cols, size) * size,
        "The places are counted in bytes. They are counted in elements here.",
    ),
    (
        "two_bytes_an_element",
        _only_two_bytes,
        "Every element is taken for one of 2 bytes. A piece has 16 // size elements.",
    ),
    (
        "xor_with_the_row",
        _moved(lambda row, piece, pieces: piece ^ row),
        "The whole number of the row goes into the xor, and pieces leave their row. Take as many bits as the pieces of "
        "a row allow.",
    ),
    (
        "xor_with_row_modulo_8",
        _moved(lambda row, piece, pieces: piece ^ row % 8),
        "Three bits of the row go into the xor, also where a row has fewer than 8 pieces, or no multiple of 8. The "
        "xor must stay among the pieces of the row.",
    ),
    (
        "xor_with_low_bits_of_the_row",
        _moved(lambda row, piece, pieces: piece ^ row % min(pieces & -pieces, 8)),
        "The xor takes the lowest bits of the row, also where a row of 64 bytes fills half of the banks. There two "
        "rows lie side by side already; which of them meet? It is every other row.",
    ),
    (
        "xor_with_every_other_row",
        _moved(lambda row, piece, pieces: piece ^ row // 2 % 4),
        "The xor is that of rows of 64 bytes. Rows of 128 bytes all begin at the same bank: 8 of them must differ.",
    ),
    (
        "rotated",
        _moved(lambda row, piece, pieces: (piece + row) % pieces),
        "Each row is rotated by its number. NVIDIA's phases of 8 neighbours are content with that at some widths; on "
        "gfx942 one phase holds lanes of two pieces (lanes 0-3 and 20-23), and a sum lets them meet. An xor does not.",
    ),
)

EXERCISE = Exercise(
    id="14.swizzle",
    title="A tile without bank conflicts",
    parameters=("row", "col", "cols", "size"),
    kind="host",
    inputs=_inputs,
    reference=lambda rows, cols, size: tabulated(right, {"rows": rows, "cols": cols, "size": size}),
    call=tabulated,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Case("rows of 64 bytes: two of them fill the banks", rows=16, cols=32, size=2),
        Case("rows of 128 bytes", rows=32, cols=64, size=2),
        Case("rows of 256 bytes", rows=16, cols=128, size=2),
        Case("rows of 192 bytes: 12 pieces are no power of two", rows=32, cols=96, size=2),
        Case("elements of one byte", rows=32, cols=64, size=1),
        Case("elements of four bytes", rows=16, cols=32, size=4),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda row, col, cols, size: 0,
        "ones": lambda row, col, cols, size: 1,
        "nan": lambda row, col, cols, size: float("nan"),
        "the input": lambda row, col, cols, size: col,
    },
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Write the number of its 16-byte slot (place in bytes // 16, modulo 8) beside each piece of 8 rows: 8 slots "
        "are all 32 banks. Which pieces are read together, and which slots have they?",
        "Leave rows where they are and permute the pieces of each row by an xor with something that the row's number "
        "gives. For rows of 128 bytes it is row % 8. For 64 bytes two rows lie side by side in the banks: how many "
        "different permutations are needed, and which rows share one?",
        "pieces = cols // each, with each = 16 // size; lowest = min(pieces & -pieces, 8), the largest power of two in "
        "pieces, 8 at most. The row gives row // (8 // lowest) % lowest, and the new piece is the old one ^ that.",
    ),
    explanation=(
        "The banks see 16-byte slots modulo 8. Rows of `pieces` slots repeat their slots after 8 // lowest rows, where "
        "lowest is the largest power of two in pieces: so many rows are apart by themselves, and among the others an "
        "xor with lowest different numbers sets them apart. An xor with a constant is a permutation, so the layout is "
        "a bijection and wastes nothing. It also keeps apart lanes of two neighbouring pieces, which one phase of "
        "gfx942 holds; a rotation does not. Padding by a piece is a rotation as well, and costs a piece a row."
    ),
)
