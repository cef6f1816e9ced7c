"""A matrix operand drawn as a matrix: in each cell the lane that holds the element, its shade the register."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.ui.explore.drawing import Picture, count, heading, path, picture, small, svg, table, text
from gpu_utils.ui.operand_layouts import Instruction, Operand, instruction, part_name

_LEFT, _TOP, _HIGH = 34.0, 40.0, 17.0
_MOST, _ROWS = 32, 16
"""A matrix of more rows or columns than _MOST is drawn in part: _ROWS rows or _MOST columns of it."""

SHOWS = ("lane", "register")
_AXES = {"A": ("m", "k"), "B": ("k", "n"), "D": ("m", "n")}


@dataclass(frozen=True)
class Chosen:
    """What is marked: an element and the lane that holds it, a lane alone, or nothing."""

    row: int = 0
    column: int = 0
    lane: int | None = None
    element: bool = False


def operand_figure(
    name: str,
    operand: str = "A",
    *,
    row: int | None = None,
    column: int | None = None,
    lane: int | None = None,
    shows: str = "lane",
) -> Picture:
    """Which lane holds which element of an operand.

    name, operand  of INSTRUCTIONS in gpu_utils/ui/operand_layouts.py, such as "mma.m16n8k16.f16"; "A", "B", "C" or "D"
    row, column    an element to mark, and what else its lane holds
    lane           a lane to mark, in place of an element
    shows          what is written into each cell: "lane" or "register"

    Errors: UnknownName for an instruction, an operand or a label that there is not, BadArgument for an element or lane
    outside of it, for A or B where they lie in shared memory, and for a row without a column.

    >>> operand_figure("mma.m16n8k16.f16", "A", row=3, column=5)
    Row 3, column 5 of A is in lane 14, register 0, upper half. Lane 14 holds 8 of the 256 elements, in 4 registers.
    """
    of = instruction(name)
    held = of.operand(operand)
    if (row is None) != (column is None) or (row is not None and lane is not None):
        raise BadArgument("expected a row and a column, or a lane, or none of them")
    if shows not in SHOWS:
        raise UnknownName("label of the cells", shows, SHOWS)
    if row is not None and column is not None:
        places = held.places(row, column)
        return drawn(of, operand, Chosen(row, column, places[0].lane, element=True), shows)
    if lane is None:
        return drawn(of, operand, Chosen(), shows)
    return drawn(of, operand, Chosen(*held.element(lane, 0), lane), shows)


def drawn(of: Instruction, operand: str, chosen: Chosen, shows: str = "lane") -> Picture:
    """The matrix, and under it the registers of the chosen lane. shows: what is written into each cell, of SHOWS."""
    letter, held = "D" if operand == "C" else operand, of.operand(operand)
    rows, columns = _window(held.rows, chosen.row, _ROWS), _window(held.columns, chosen.column, _MOST)
    words = _words(of, letter, held, chosen)
    axes = _AXES[letter]
    title = (
        f"{'C and D' if letter == 'D' else letter} of {of.name}: {held.rows} rows ({axes[0]}) x {held.columns} columns "
        f"({axes[1]}), {held.kind}"
    )
    part = ""
    if len(rows) < held.rows:
        part = f"Drawn: rows {rows[0]} to {rows[-1]} of {held.rows}. "
    if len(columns) < held.columns:
        part = f"Drawn: columns {columns[0]} to {columns[-1]} of {held.columns}. "
    drawing = svg(*_matrix(held, axes, chosen, rows, columns, shows), words, least=_least(len(columns)))
    number = "register" if shows == "register" else _unit(of)
    legend = f"Each cell has the number of its {number}; its shade is the register. {part}{of.note}"
    legend = f"{legend.strip()} Source: {of.source}."
    of_lane = "" if chosen.lane is None else _registers(of, letter, held, chosen)
    return picture(of.vendor, words, heading(title), drawing, after=small(legend) + of_lane)


def _unit(of: Instruction) -> str:
    return "thread" if of.lanes > 64 else "lane"


def _named(of: Instruction, lane: int) -> str:
    """A lane in words; of a warpgroup also its warp."""
    return f"thread {lane} (lane {lane % 32} of warp {lane // 32})" if of.lanes > 64 else f"lane {lane}"


def _words(of: Instruction, letter: str, held: Operand, chosen: Chosen) -> str:
    total = held.rows * held.columns
    share = f"holds {count(held.item_count, 'element')} of {total:,}, in {count(held.registers, 'register')}"
    if chosen.lane is None:
        copies = held.lane_count * held.item_count // total
        twice = f", and each element lies in {copies} lanes" if copies > 1 else ""
        return f"{letter} of {of.name}: each of {held.lane_count} {_unit(of)}s {share}{twice}."
    who = f"{_unit(of)} {chosen.lane}".capitalize()
    share = f"holds {held.item_count} of the {total:,} elements, in {count(held.registers, 'register')}"
    if not chosen.element:
        return f"{who} {share} of {letter}."
    places = held.places(chosen.row, chosen.column)
    lanes = " and in ".join(_named(of, place.lane) for place in places)
    where = f"is in {lanes}, {held.where(places[0].item)}"
    return f"Row {chosen.row}, column {chosen.column} of {letter} {where}. {who} {share}."


def _window(size: int, at: int, most: int) -> range:
    """The rows or columns that are drawn: all, or the stretch around `at`."""
    if size <= _MOST:
        return range(size)
    first = at // most * most
    return range(first, min(first + most, size))


def _wide(columns: int) -> float:
    return 36.0 if columns <= 16 else 20.0


def _least(columns: int) -> float:
    return _LEFT + columns * _wide(columns)


def _starts(held: Operand) -> range:
    """The first item of each register, or pair of registers."""
    return range(0, held.item_count, held.parts)


def _shade(held: Operand, item: int) -> float:
    """Registers from light to dark."""
    return 0.06 + 0.5 * (item // held.parts) / max(len(_starts(held)) - 1, 1)


def _matrix(
    held: Operand, axes: tuple[str, str], chosen: Chosen, rows: range, columns: range, shows: str
) -> tuple[float, float, list[str]]:
    """Width, height and parts of the drawing."""
    wide = _wide(len(columns))
    right, bottom = _LEFT + len(columns) * wide, _TOP + len(rows) * _HIGH
    parts = [text(_LEFT, 12, f"{axes[1]} →", size=11), text(0, _TOP - 4, f"{axes[0]} ↓", size=11)]
    parts += [text(_LEFT + (i + 0.5) * wide, _TOP - 4, c, size=10, at="middle") for i, c in enumerate(columns)]
    parts += [text(_LEFT - 6, _TOP + i * _HIGH + 12, row, size=10, at="end") for i, row in enumerate(rows)]
    cells, labels, edges = [], [], []
    for down, row in enumerate(rows):
        for i, column in enumerate(columns):
            x, y, places = _LEFT + i * wide, _TOP + down * _HIGH, held.places(row, column)
            mine = any(place.lane == chosen.lane for place in places)
            cells.append(_cell(x, y, wide, held, (row, column)))
            label = " ".join(str(place.lane) for place in places)
            if shows == "register":
                label = str(held.register(places[0].item))
            bold = ' font-weight="bold"' if mine else ""
            labels.append(f'<text x="{x + wide / 2:g}" y="{y + 12.5:g}"{bold}>{label}</text>')
            if mine:
                edges.append(_edge(x, y, wide, chosen.element and (row, column) == (chosen.row, chosen.column)))
    parts.append(f'<g style="fill:var(--hue);stroke:var(--line);stroke-width:.5">{"".join(cells)}</g>')
    size = 9 if held.lane_count * held.item_count > held.rows * held.columns else 10
    parts.append(f'<g font-size="{size}" text-anchor="middle" pointer-events="none">{"".join(labels)}</g>')
    parts += [*edges, *_legend(held, bottom + 10, right)]
    lines = -(-len(_starts(held)) // _per_line(held, right))
    return max(right + 4, 330.0), bottom + 12 + 18 * lines, parts


def _cell(x: float, y: float, wide: float, held: Operand, at: tuple[int, int]) -> str:
    places = held.places(*at)
    lanes = [place.lane for place in places]
    unit = "thread" if held.lane_count > 64 else "lane" if len(lanes) == 1 else "lanes"
    said = f"row {at[0]}, column {at[1]}: {unit} {' and '.join(map(str, lanes))}, {held.where(places[0].item)}"
    shade = f'fill-opacity="{_shade(held, places[0].item):.2f}"'
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{_HIGH:g}" {shade}><title>{said}</title></rect>'


def _edge(x: float, y: float, wide: float, here: bool) -> str:
    """A frame: thick around the chosen element, thin around the others of its lane."""
    corners = [(x, y), (x + wide, y), (x + wide, y + _HIGH), (x, y + _HIGH), (x, y)]
    line = path(corners, "edge")
    return line.replace('class="edge"', 'class="edge" style="stroke-width:3.5"') if here else line


def _per_line(held: Operand, right: float) -> int:
    """Registers in a line of the legend."""
    return int((max(right, 330.0) - _LEFT - 56) // _step(held))


def _step(held: Operand) -> float:
    return 44.0 if held.pairs else 32.0


def _legend(held: Operand, y: float, right: float) -> list[str]:
    """The shade of each register, with its number."""
    parts = [text(_LEFT, y + 10, "register", size=11)]
    for number, item in enumerate(_starts(held)):
        line, along = divmod(number, _per_line(held, right))
        x, top, at = _LEFT + 56 + along * _step(held), y + 18 * line, held.register(item)
        style = f"fill:var(--hue);fill-opacity:{_shade(held, item):.2f};stroke:var(--line);stroke-width:.5"
        parts.append(f'<rect x="{x:g}" y="{top:g}" width="12" height="12" style="{style}"/>')
        parts.append(text(x + 15, top + 10, f"{at},{at + 1}" if held.pairs else at, size=10))
    return parts


def _registers(of: Instruction, letter: str, held: Operand, chosen: Chosen) -> str:
    """Every register of the chosen lane, with the (row, column) of each part; the chosen element's is marked."""
    assert chosen.lane is not None
    lines, marked = [], []
    for number, first in enumerate(range(0, held.item_count, held.parts)):
        cells = [held.element(chosen.lane, first + part) for part in range(held.parts)]
        at = held.register(first)
        lines.append((f"{at}, {at + 1}" if held.pairs else at, *cells))
        if chosen.element and (chosen.row, chosen.column) in cells:
            marked.append(number)
    parts = ["element"] if held.parts == 1 else [part_name(held.parts, part) for part in range(held.parts)]
    title = heading(f"What {_named(of, chosen.lane)} holds of {letter}: (row, column)")
    return title + table(("register", *parts), lines, marked)
