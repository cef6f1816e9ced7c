"""Why an answer is so: written beside the experiment in content/, left out of the notebook, read when it is revealed.

In the notebook it would stand right below the question.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache

from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.paths import course
from gpu_utils.course.predictions import asked, reveals
from gpu_utils.errors import ContentError


def told(cells: Sequence[Cell], where: str) -> dict[str, str]:
    """Prediction -> the `because` of the cell that reveals its answer.

    Raises ContentError where that is no plain string: what is computed belongs into a table below the answer.
    """
    found = {}
    for one in asked(cells):
        cell = None if one.answered is None else cells[one.answered]
        word = cell and _because(cell)
        if cell and word:
            if not isinstance(word.value, ast.Constant) or not isinstance(word.value.value, str):
                line = cell.first + word.lineno - 1
                raise ContentError(f"{where}:{line}: the because of {one.name} is computed; write a plain string")
            found[one.name] = word.value.value
    return found


@cache
def told_of(unit: str) -> Mapping[str, str]:
    """The reasons of a unit's lesson. Raises UnknownName, NotWritten, and ContentError outside of a checkout."""
    here = course()
    path = here.source(here.find(unit), "lesson")
    return told(parse_cells(path.read_text("utf-8"), here.relative(path)), here.relative(path))


def untold(cell: Cell) -> str:
    """The source of a cell without the `because` of its `.reveal(...)`."""
    word = _because(cell)
    if word is None or word.value.end_lineno is None or word.value.end_col_offset is None:
        return cell.source
    lines = cell.source.encode().splitlines(keepends=True)  # the syntax tree counts columns in bytes

    def at(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column

    text = b"".join(lines)
    before = text[: at(word.lineno, word.col_offset)].decode()
    after = text[at(word.value.end_lineno, word.value.end_col_offset) :].decode()
    if not before.rpartition("\n")[2].strip():  # a line of its own
        return before.rstrip(" ") + re.sub(r"\A,?[ ]*\n", "", after)
    return re.sub(r",\s*\Z", "", before) + re.sub(r"\A,\s*", "", after)


def _because(cell: Cell) -> ast.keyword | None:
    call = reveals(cell)
    return next((word for word in call.keywords if word.arg == "because"), None) if call else None
