"""A layout of a tile, typed as a formula: which lane takes which piece, which bank serves it, is it a bijection."""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from typing import Any

import numpy as np

from gpu_utils.analytic.access import BankAccess, bank_cycles
from gpu_utils.analytic.formulas import formula, names
from gpu_utils.analytic.layouts import PATTERNS, Fault, accesses, fault_of, lane_offsets, offsets, whole_pieces
from gpu_utils.chips import TARGETS
from gpu_utils.chips.banks import service
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.ui.explore.access import schedule
from gpu_utils.ui.explore.drawing import (
    Picture,
    alert,
    beside,
    box,
    count,
    heading,
    path,
    picture,
    small,
    svg,
    targets_of,
    text,
    wave,
)
from gpu_utils.ui.explore.widget import Explorer, choice, slider, typed

EXAMPLES = (
    "row * cols + col",
    "row * cols + (col ^ row % 8 * 8)",
    "row * cols + (col ^ row % 4 * 8)",
    "row * cols + (col + row * 8) % cols",
    "row * (cols + 8) + col",
    "row * cols + (col ^ row % 8)",
    "col * rows + row",
)
WAYS = {"rows": "along the rows", "columns": "down the columns", "operand": "as a matrix operand, 16 rows"}
COLUMNS = (8, 16, 32, 64, 96, 128)
_LEFT, _WIDE, _HIGH = 52.0, 448.0, 13.0
_MOST_ROWS = 16
_ALL_ROWS = 1 << 16
_WORK = 400_000


def draw(
    layout: str, rows: int, cols: int, element_bytes: int, moved: int, way: str, access: str, number: int, amd: str
) -> Picture:
    """A tile under a layout: whether it is a bijection, and one access of a warp and of a wavefront.

    layout         formula in row, col, rows, cols: the place of an element, counted in elements
    element_bytes  of an element; moved: bytes that a lane moves, 16 or 0 for one element
    way            of WAYS; access: "read" or "write"; number: which access is drawn

    Errors: BadArgument for a layout that cannot be read, or a row that is no multiple of what a lane moves.
    """
    piece = moved or element_bytes
    if cols * element_bytes % piece:
        raise BadArgument(f"a row has {cols * element_bytes} bytes; expected a multiple of {piece}, what a lane moves")
    places = offsets(layout, rows, cols)
    fault = fault_of(places)
    above = _bijection(layout, places, fault)
    if places.min() < 0 or (broken := whole_pieces(places, piece // element_bytes)):
        why = "a place below 0 has no bank" if places.min() < 0 else broken
        return Picture(above.html + alert(f"No access is drawn: {why}."), f"{above.words} No access is drawn: {why}.")
    sides = beside(*(_side(one, places, element_bytes, piece, way, access, number, fault) for one in ("sm_80", amd)))
    return Picture(above.html + sides.html, f"{above.words}\n{sides.words}")


def _bijection(layout: str, places: np.ndarray, fault: Fault | None) -> Picture:
    if fault is None:
        words = f"Each of the {places.size:,} elements has a place of its own: a bijection, every element tried."
    else:
        words = f"No bijection: (row, col) = {fault.sentence}."
    return picture("", f"{words} {for_all_rows(layout, places.shape[1])}".strip())


@lru_cache(maxsize=64)
def for_all_rows(layout: str, cols: int) -> str:
    """What Z3 says of a layout for 1 to 65,536 rows, in a sentence; "" where it is not installed.

    >>> for_all_rows("row * cols + col", 8) in ("", "With 1 to 65,536 rows: proved by Z3.")
    True
    """
    if importlib.util.find_spec("z3") is None:
        return ""
    z3 = importlib.import_module("z3")
    context, bits = z3.Context(), any(sign in layout for sign in ("^", "&", "<<", ">>"))

    def unknown(name: str) -> Any:
        return z3.BitVec(name, 32, context) if bits else z3.Int(name, context)

    rows, row, col, row2, col2 = map(unknown, ("rows", "row", "col", "row2", "col2"))
    one = {"row": row, "col": col, "rows": rows, "cols": cols}
    other = {**one, "row": row2, "col": col2}
    lines = ["0 <= row", "row < rows", "0 <= col", f"col < {cols}"]
    known = [formula(line, values) for values in (one, other) for line in lines]
    known += [formula("1 <= rows", one), formula(f"rows <= {_ALL_ROWS}", one)]
    wrong = (
        ("outside", z3.Or(formula(f"({layout}) < 0", one), formula(f"({layout}) >= rows * cols", one))),
        ("a collision", z3.And(z3.Or(row != row2, col != col2), formula(layout, one) == formula(layout, other))),
    )
    for what, condition in wrong:
        solver = z3.Solver(ctx=context)
        solver.set("rlimit", _WORK)
        solver.add(*known, condition)
        found = solver.check()
        if found == z3.sat:
            model = solver.model()
            at, first, left, second, right = (
                model.eval(each, model_completion=True).as_long() for each in (rows, row, col, row2, col2)
            )
            more = "" if what == "outside" else f" and ({second}, {right})"
            return f"With 1 to {_ALL_ROWS:,} rows: refuted by Z3, {what} with {at} rows: ({first}, {left}){more}."
        if found != z3.unsat:
            return f"With 1 to {_ALL_ROWS:,} rows: Z3 gave up."
    return f"With 1 to {_ALL_ROWS:,} rows: proved by Z3."


def _side(
    target: str,
    places: np.ndarray,
    element_bytes: int,
    piece: int,
    way: str,
    access: str,
    number: int,
    fault: Fault | None,
) -> Picture:
    unit, each = TARGETS[target], piece // element_bytes
    taken = PATTERNS[way](places.shape[0], places.shape[1] // each, unit.lanes)
    found = lane_offsets(places, taken, element_bytes, piece)
    cycles, least = bank_cycles(found, piece, service(target, access, piece))
    at = number % len(found)
    (one,) = accesses(found[at : at + 1], piece, target, access)
    title = f"{target}: a {wave(unit.vendor)} of {unit.lanes} lanes, {one.served.banks} banks"
    lost = "no conflict" if cycles == least else f"{count(cycles - least, 'pass')} lost to bank conflicts"
    words = (
        f"All {count(len(found), access)} of {piece} bytes a lane: {count(cycles, 'pass')}, {least} would do: {lost}. "
        f"Drawn is {access} {at}: {count(one.cycles, 'pass')}, {one.least} would do."
    )
    tile = _tile(places, taken[at], one, each, fault)
    banks = _banks(one)
    caption = "Above: the lane that takes a piece, and its place in pieces. Below: banks, passes, the lane served."
    return picture(
        unit.vendor,
        f"{target}: {words}",
        heading(title),
        svg(_LEFT + _WIDE + 4, *tile, f"{words} The tile.", least=400),
        svg(_LEFT + _WIDE + 4, *banks, f"{words} The banks.", least=400),
        after=small(f"{caption} Source of the phases: {one.served.source}"),
    )


def _tile(
    places: np.ndarray, taken: np.ndarray, one: BankAccess, each: int, fault: Fault | None
) -> tuple[float, list[str]]:
    """The pieces of the rows that the access touches: lane and place; elements that break the bijection are framed."""
    pieces = places.shape[1] // each
    there = taken[taken[:, 0] >= 0]
    top = int(there[:, 0].min()) if len(there) else 0
    shown = range(top, min(top + _MOST_ROWS, len(places)))
    lanes = {(int(row), int(piece)): lane for lane, (row, piece) in enumerate(taken) if row >= 0}
    wide = min(_WIDE / pieces, 56.0)
    parts = [text(0, 11, "piece", size=10)]
    step = 1 if wide > 16 else 4
    parts += [text(_LEFT + (at + 0.5) * wide, 11, at, size=8, at="middle") for at in range(0, pieces, step)]
    for line, row in enumerate(shown):
        y = 16.0 + line * 20
        parts.append(text(0, y + 14, f"row {row}", size=10))
        for at in range(pieces):
            lane = lanes.get((row, at))
            kind = "empty" if lane is None else ("even", "odd")[one.lanes[lane].group % 2]
            parts.append(box(_LEFT + at * wide, y, wide, 20, kind))
            middle = _LEFT + (at + 0.5) * wide
            if wide > 16:
                parts.append(text(middle, y + 18, places[row, at * each] // each, size=7, at="middle"))
            if wide > 10 and lane is not None:
                parts.append(text(middle, y + 10, lane, size=9, at="middle", bold=True))
    for row, col in fault.elements if fault else ():
        if row in shown:
            x, y = _LEFT + col // each * wide, 16.0 + (row - top) * 20
            parts.append(path([(x, y), (x + wide, y), (x + wide, y + 20), (x, y + 20), (x, y)], "edge"))
    below = 16.0 + len(shown) * 20
    if fault and any(row in shown for row, _ in fault.elements):
        parts.append(text(_LEFT, below + 13, "framed: what breaks the bijection", size=10))
        below += 16
    return below + 4, parts


def _banks(one: BankAccess) -> tuple[float, list[str]]:
    """A row for each pass, a column for each bank, and the lane that is served there."""
    served, banks = schedule(one), one.served.banks
    wide, rows = _WIDE / banks, min(one.cycles, _MOST_ROWS)
    parts = [text(0, 11, "bank", size=10)]
    parts += [text(_LEFT + (bank + 0.5) * wide, 11, bank, size=8, at="middle") for bank in range(0, banks, 4)]
    parts += [text(0, 26 + row * _HIGH, f"pass {row}", size=9) for row in range(rows)]
    for (row, bank), lanes in served.items():
        if row < rows:
            x, y = _LEFT + bank * wide, 16 + row * _HIGH
            parts.append(box(x, y, wide, _HIGH, ("even", "odd")[one.lanes[lanes[0]].group % 2]))
            if wide > 10 or not bank % 4:
                parts.append(text(x + wide / 2, y + 10, lanes[0], size=8 if wide > 10 else 6, at="middle"))
    below = 16 + rows * _HIGH
    parts += [path([(_LEFT, 16 + row * _HIGH), (_LEFT + _WIDE, 16 + row * _HIGH)], "grid") for row in range(rows + 1)]
    if one.cycles > rows:
        parts.append(text(_LEFT, below + 13, f"... and {one.cycles - rows} more passes", size=11))
        below += 18
    return below + 4, parts


def explorer(
    layout: str = "row * cols + col",
    *,
    rows: int = 32,
    cols: int = 64,
    element_bytes: int = 2,
    moved: int = 16,
    way: str = "operand",
    access: str = "read",
    number: int = 0,
    amd: str = "gfx942",
) -> Any:
    """A formula in row, col, rows and cols, to type or to choose; the tile, and how lanes go through it.

    rows, cols     of the tile; element_bytes: 1, 2 or 4; moved: bytes that a lane moves, 16, or 0 for one element
    way            "rows", "columns" or "operand"; access: "read" or "write"; number: which access is drawn

    Errors: BadArgument for a layout that cannot be read, or rows beyond the slider; UnknownName for another choice.
    """
    if way not in WAYS:
        raise UnknownName("way", way, WAYS)
    if not 8 <= rows <= 64 or not 0 <= number <= 63:
        raise BadArgument(f"rows is {rows} and number {number}; expected 8 to 64 rows and access 0 to 63")
    names(layout)
    return Explorer(
        draw,
        {
            "layout": typed("place of (row, col)", layout, EXAMPLES),
            "rows": slider("rows", rows, 8, 64, 8),
            "cols": choice("columns", COLUMNS, cols),
            "element_bytes": choice("bytes an element", (1, 2, 4), element_bytes),
            "moved": choice("a lane moves", [("16 bytes", 16), ("one element", 0)], moved),
            "way": choice("lanes go", [(words, name) for name, words in WAYS.items()], way),
            "access": choice("access", ["read", "write"], access),
            "number": slider("which access", number, 0, 63),
            "amd": choice("AMD target", targets_of("amd"), amd),
        },
    )
