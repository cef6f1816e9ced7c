"""The rules of content that a build insists on; each violation is a ContentError that starts with file:line."""

from __future__ import annotations

import ast

from gpu_utils.course.cells import EXERCISE_ID, Cell
from gpu_utils.course.cut import MARKERS, find_cuts
from gpu_utils.course.units import Unit
from gpu_utils.errors import ContentError


def check_titles(cells: list[Cell], where: str) -> None:
    """Titles are unique in a file: cell ids come from them."""
    lines: dict[str, int] = {}
    for cell in cells:
        if cell.title in lines:
            raise ContentError(
                f"{where}:{cell.header}: the title {cell.title!r} is already used on line {lines[cell.title]}"
            )
        if cell.title:
            lines[cell.title] = cell.header


def check_lesson(cells: list[Cell], unit: Unit, where: str) -> None:
    """A lesson has no exercises and no markers."""
    for cell in cells:
        for tag in cell.tags:
            if tag in ("answer", "check", "solution") or EXERCISE_ID.fullmatch(tag):
                raise ContentError(f"{where}:{cell.header}: the tag {tag!r} belongs in lab.py")
        _check_no_markers(cell, where)


def check_lab(cells: list[Cell], unit: Unit, where: str) -> None:
    """A lab starts with its setup; every exercise has one answer, and a check after it."""
    code = [cell for cell in cells if cell.kind == "code"]
    setups = [cell for cell in code if "setup" in cell.tags]
    if len(setups) != 1 or code[0] is not setups[0]:
        line = next((cell.header for cell in (*setups[-1:], *code)), 1)
        raise ContentError(f'{where}:{line}: the first code cell, and only it, has tags=["setup"]')
    answered: dict[str, Cell] = {}
    checks: set[str] = set()
    for cell in cells:
        place = f"{where}:{cell.header}"
        if "answer" in cell.tags:
            exercise = _check_answer(cell, unit, where)
            if exercise in answered:
                raise ContentError(f"{place}: {exercise} is already answered on line {answered[exercise].header}")
            answered[exercise] = cell
            continue
        _check_no_markers(cell, where)
        found = checked(cell.source) if cell.kind == "code" else []
        if ("check" in cell.tags) != bool(found):
            raise ContentError(f'{place}: a cell calls check("NN.name") if and only if it has the tag "check"')
        for exercise in [*found, *cell.exercises]:
            if exercise not in answered:
                raise ContentError(f"{place}: {exercise} has no answer cell above")
        checks.update(found)
        if len(found) > 1 or (cell.exercises and cell.exercises != found):
            raise ContentError(f"{place}: a check cell checks one exercise, the one of its tag")
    for exercise, cell in answered.items():
        if exercise not in checks:
            raise ContentError(f'{where}:{cell.header}: no cell tagged "check" calls check("{exercise}")')


def _check_answer(cell: Cell, unit: Unit, where: str) -> str:
    place = f"{where}:{cell.header}"
    if cell.kind != "code" or len(cell.exercises) != 1 or "solution" in cell.tags or "check" in cell.tags:
        raise ContentError(f'{place}: an answer is a code cell with tags=["answer", "NN.name"]')
    exercise = cell.exercises[0]
    number, name = exercise.split(".")
    if cell.title != exercise:
        raise ContentError(f"{place}: the title of this answer cell is {cell.title!r}, expected {exercise!r}")
    if number != unit.number:
        raise ContentError(f"{place}: exercise {exercise} is not of unit {unit.name}")
    try:
        defined = [node.name for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        raise ContentError(f"{place}: an answer cell is plain Python, without magics") from None
    if name not in defined:
        raise ContentError(
            f"{place}: the answer to {exercise} is a function named {name!r}, found {', '.join(defined) or 'none'}"
        )
    if all(cut.in_kernel for cut in find_cuts(cell.source, where, cell.first)):
        raise ContentError(f"{place}: no cut in host code, so an untouched lab could not tell NOT STARTED from wrong")
    return exercise


def _check_no_markers(cell: Cell, where: str) -> None:
    for number, line in enumerate(cell.source.split("\n")):
        if line.strip() in MARKERS:
            raise ContentError(f'{where}:{cell.first + number}: `{line.strip()}` outside a cell tagged "answer"')


def checked(source: str) -> list[str]:
    """The exercise ids that a cell passes to check().

    >>> checked('check("00.vector_add")')
    ['00.vector_add']
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell with magics, which only IPython reads
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    return [
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id == "check"
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]
