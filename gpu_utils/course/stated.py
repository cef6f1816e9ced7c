"""What the text of a lesson states of its cells: content/NN_name/stated.toml, held against every run of the lesson.

    [lesson]
    balance = ['H100 .* 19\\.97 +9\\.985$']

The key is the title of a code cell, the values are regular expressions; `^` and `$` are the ends of a line. Each has to
be found in what the cell shows as text: what it prints, and its tables and figures in words.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_utils.course.build import cell_ids
from gpu_utils.course.cells import parse_cells
from gpu_utils.course.paths import Course
from gpu_utils.course.units import UNITS, Unit
from gpu_utils.errors import ContentError

FILE = "stated.toml"
Patterns = Mapping[str, Sequence[str]]


def of_notebook(course: Course, notebook: Path) -> Patterns:
    """Id of a cell -> the patterns that it has to show; empty for what is not a lesson of the course."""
    unit = next((unit for unit in UNITS if course.notebook(unit, "lesson") == notebook), None)
    return of_lesson(course, unit) if unit else {}


def of_lesson(course: Course, unit: Unit) -> Patterns:
    """The same for a unit. Raises ContentError for a title that no code cell has, and for what is no pattern."""
    file = course.content / unit.name / FILE
    if not file.is_file():
        return {}
    cells = parse_cells(course.source(unit, "lesson").read_text("utf-8"), f"{unit.name}/lesson.py")
    ids = {
        cell.title: identity
        for cell, identity in zip(cells, cell_ids(cells, unit, "lesson"), strict=True)
        if cell.kind == "code" and cell.title
    }
    patterns: dict[str, list[str]] = tomllib.loads(file.read_text("utf-8"))["lesson"]
    for title, wanted in patterns.items():
        if title not in ids:
            raise ContentError(f"{course.relative(file)}:1: no code cell of the lesson has the title {title!r}")
        for pattern in wanted:
            try:
                re.compile(pattern)
            except re.error as problem:
                raise ContentError(f"{course.relative(file)}:1: {pattern!r} is no pattern: {problem}") from None
    return {ids[title]: wanted for title, wanted in patterns.items()}


def unseen(patterns: Sequence[str], outputs: Sequence[Mapping[str, Any]]) -> str:
    """A sentence on the first pattern that the outputs of a cell do not show, with what they do; "" when all are."""
    shown = "\n".join(_as_text(output) for output in outputs)
    for pattern in patterns:
        if not re.search(pattern, shown, re.MULTILINE):
            return f"The lesson's text relies on {pattern!r} ({FILE}), and the cell shows no such thing:\n{shown}"
    return ""


def _as_text(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return str(output["text"])
    return str(output.get("data", {}).get("text/plain", ""))
