"""The source of an exercise's answer cell, from content/: complete, or as the lab has it."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any

from gpu_utils.course import cut
from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.paths import course
from gpu_utils.errors import ContentError

_serial = itertools.count()


def solution(exercise_id: str) -> str:
    """The complete answer cell, without markers. Raises ContentError when the lab has no such cell."""
    cell, _, _ = _answer_cell(exercise_id)
    return cut.complete(cell.source)


def written_lines(exercise_id: str) -> list[int]:
    """The lines of `solution(exercise_id)`, from 1, that a learner writes: those between the markers."""
    cell, _, _ = _answer_cell(exercise_id)
    written, number, inside = [], 0, False
    for line in cell.source.split("\n"):
        if line.strip() in cut.MARKERS:
            inside = "BEGIN" in line
        else:
            number += 1
            written += [number] * inside
    return written


def untouched(exercise_id: str) -> str:
    """The answer cell as a learner first sees it."""
    cell, _, where = _answer_cell(exercise_id)
    return cut.stub(cell.source, exercise_id, where, cell.first)


def with_setup(exercise_id: str, answer: str) -> str:
    """The lab's setup cell followed by `answer`: what a check runs."""
    _, setup, _ = _answer_cell(exercise_id)
    return f"{setup}\n\n{answer}"


def load(exercise_id: str, answer: str) -> Callable[..., Any]:
    """The function that an answer cell defines, after running the lab's setup cell and then `answer`.

    The lines count from the cell's first, as in a notebook: there Triton finds again what it compiled here.
    """
    _, setup, _ = _answer_cell(exercise_id)
    namespace: dict[str, Any] = {"__name__": "answer"}
    for part, text in (("setup", setup), ("answer", answer)):
        # Triton reads a kernel's source back through linecache
        name = f"<{part} {exercise_id} {next(_serial)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec", dont_inherit=True), namespace)
    return namespace[exercise_id.split(".", 1)[1]]


def load_solution(exercise_id: str) -> Callable[..., Any]:
    """The solution as a function."""
    return load(exercise_id, solution(exercise_id))


def _answer_cell(exercise_id: str) -> tuple[Cell, str, str]:
    """The answer cell, the source of the lab's setup cell, and the lab's path for messages."""
    here = course()
    path = here.source(here.find(exercise_id.split(".")[0]), "lab")
    where = here.relative(path)
    cells = parse_cells(path.read_text(encoding="utf-8"), where)
    setup = next((cell.source for cell in cells if "setup" in cell.tags), "")
    for cell in cells:
        if "answer" in cell.tags and exercise_id in cell.tags:
            return cell, setup, where
    raise ContentError(f"{where}:1: there is no answer cell for {exercise_id}")
