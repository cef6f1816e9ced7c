"""What a lesson asks its reader to predict, where it shows the answer, and where its sittings end, from its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.paths import course

_HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Asked:
    """One prediction: its name ("00.programs"), its slots, the cells that ask and answer it, by number."""

    name: str
    slots: tuple[str, ...]
    cell: int
    revealed: tuple[str, ...] | None = None
    answered: int | None = None


@dataclass(frozen=True)
class Sitting:
    """What one sitting asks (name -> slots), and the heading that follows its stop; "" after the last one."""

    number: int
    asks: Mapping[str, tuple[str, ...]]
    then: str


def asked(cells: Sequence[Cell]) -> list[Asked]:
    """Every `predict("NN.name", question, slot=...)` of a lesson, in order, with the slots of its `.reveal(...)`."""
    found: list[Asked] = []
    held: dict[str, int] = {}
    for at, call, variable in _calls(cells):
        slots = tuple(word.arg or "**" for word in call.keywords if word.arg != "because")
        if isinstance(call.func, ast.Name) and call.func.id == "predict":
            held[variable] = len(found)
            found.append(Asked(_text(call), slots, at))
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "reveal":
            of = call.func.value
            number = held.get(of.id) if isinstance(of, ast.Name) else None
            if number is not None and found[number].answered is None:
                one = found[number]
                found[number] = Asked(one.name, one.slots, one.cell, slots, at)
    return found


def reveals(cell: Cell) -> ast.Call | None:
    """The call in a cell that shows the answer of a prediction."""
    return next((call for _, call, _ in _calls([cell]) if _name(call) == "reveal"), None)


def sittings(cells: Sequence[Cell]) -> list[Sitting]:
    """The sittings of a lesson: each ends where a cell calls `sitting("NN", number)`."""
    ends = [at for at, call, _ in _calls(cells) if _name(call) == "sitting"]
    every = asked(cells)
    found, start = [], 0
    for number, end in enumerate(ends, 1):
        after = "\n".join(cell.source for cell in cells[end + 1 :] if cell.kind == "markdown")
        heading = _HEADING.search(after)
        then = heading[1] if heading and number < len(ends) else ""
        found.append(Sitting(number, {one.name: one.slots for one in every if start <= one.cell < end}, then))
        start = end
    return found


def sittings_of(unit: str) -> list[Sitting]:
    """The sittings of a unit's lesson. Raises UnknownName, NotWritten, and ContentError outside of a checkout."""
    here = course()
    path = here.source(here.find(unit), "lesson")
    return sittings(parse_cells(path.read_text("utf-8"), here.relative(path)))


def _calls(cells: Sequence[Cell]) -> Iterator[tuple[int, ast.Call, str]]:
    """(number of the cell, call, variable that takes its value) of the calls at the top of the cells."""
    for at, cell in enumerate(cells):
        if cell.kind != "code":
            continue
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:  # a cell with magics, which only IPython reads
            continue
        for node in tree.body:
            value = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
            if isinstance(value, ast.Call):
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                yield at, value, target.id if isinstance(target, ast.Name) else ""


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _text(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
