"""Cells of a lesson run outside a notebook, to hold its prose against what they show."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpu_utils.course.cells import parse_cells


def printed(lesson: Path, titles: Iterable[str], folder: Path) -> dict[str, str]:
    """Title -> what that cell shows as text, for cells run in this order in one namespace.

    That is what it prints, and what its last line is worth, as in a notebook: a table, a figure in words.

    Each cell becomes a file in `folder`, because Triton reads the source of its kernels.
    """
    cells = {cell.title: cell.source for cell in parse_cells(lesson.read_text("utf-8"), lesson.name)}
    namespace: dict[str, object] = {"__name__": "lesson", "my_guess": None}
    found = {}
    for number, title in enumerate(titles):
        place = folder / f"cell{number}.py"
        place.write_text(cells[title], "utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            _run(cells[title], str(place), namespace)
        found[title] = out.getvalue()
    return found


def all_printed(lesson: Path, folder: Path) -> dict[str, str]:
    """`printed` for every cell of code but those that end a sitting; what the learner guessed goes to `folder`."""
    cells = [cell for cell in parse_cells(lesson.read_text("utf-8"), lesson.name) if cell.kind == "code"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_DATA", str(folder / "data"))
        return printed(lesson, [cell.title for cell in cells if "sitting(" not in cell.source], folder)


def _run(source: str, place: str, namespace: dict[str, object]) -> None:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), place, "eval"), namespace)
        if value is not None:
            print(value)
