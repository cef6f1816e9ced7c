"""Cells of a lesson run outside a notebook, to hold its prose against what they print."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from pathlib import Path

from gpu_utils.course.cells import parse_cells


def printed(lesson: Path, titles: Iterable[str], folder: Path) -> dict[str, str]:
    """Title -> what that cell prints, for cells run in this order in one namespace.

    Each cell becomes a file in `folder`, because Triton reads the source of its kernels.
    """
    cells = {cell.title: cell.source for cell in parse_cells(lesson.read_text("utf-8"), lesson.name)}
    namespace: dict[str, object] = {"__name__": "lesson", "my_guess": None}
    found = {}
    for number, title in enumerate(titles):
        place = folder / f"cell{number}.py"
        place.write_text(cells[title], "utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(cells[title], str(place), "exec"), namespace)
        found[title] = out.getvalue()
    return found
