"""The labs as the content tests see them: cells of content/NN_name/lab.py, and answers loaded from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_utils.course import sources
from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.paths import Course
from gpu_utils.course.units import find_unit

ROOT = Path(__file__).parents[2]

Load = Callable[[str, str], Callable[..., Any]]


@functools.cache
def lab_cells(number: str) -> list[Cell]:
    """The cells of the lab of unit "00", from its only source."""
    path = Course(ROOT).source(find_unit(number), "lab")
    return parse_cells(path.read_text("utf-8"), str(path.relative_to(ROOT)))


def answer_cell(exercise_id: str) -> Cell:
    """The answer cell of an exercise, with its solution markers."""
    cells = lab_cells(exercise_id.split(".")[0])
    found = [cell for cell in cells if "answer" in cell.tags and exercise_id in cell.exercises]
    assert len(found) == 1, f"{exercise_id} has {len(found)} answer cells in its lab"
    return found[0]


@pytest.fixture(scope="session")
def load() -> Load:
    """load(exercise_id, "solution" or "untouched") -> the function that the answer cell defines."""

    @functools.cache
    def load(exercise_id: str, version: str) -> Callable[..., Any]:
        source = {"solution": sources.solution, "untouched": sources.untouched}[version]
        return sources.load(exercise_id, source(exercise_id))

    return load
