"""content/ -> notebooks/, labs/, solutions/. One way only, and the same bytes every time.

The format of content
---------------------
`content/NN_name/lesson.py` and `lab.py` are py:percent files: each cell starts with a header at the start of a line.

    # %% [markdown] statement of vector_add       a markdown cell; its lines are comments. The title is not shown
    # %% imports tags=["setup"]                   a code cell with a title and tags
    # %%                                          a code cell without either

A lab starts its code with the cell tagged "setup". Each exercise then is a markdown statement, an answer and a check:

    # %% 00.vector_add tags=["answer", "00.vector_add"]
    def vector_add(x, y):
        # BEGIN SOLUTION
        return x + y
        # END SOLUTION

    # %% tags=["check"]
    check("00.vector_add")

- The title of an answer cell is the exercise's id, and the cell defines the function named after the dot.
- What lies between the markers is cut from the lab. In host code `# YOUR CODE (about N lines)` and
  `raise NotImplementedError("00.vector_add is yours to write")` take its place; in a `@triton.jit` function
  `# YOUR CODE (about N lines)` and `pass`. N counts lines that are neither blank nor comments. Every answer cell has a
  cut in host code, so that an untouched lab raises; a cut lies inside the body of one function; a kernel must not use,
  after its cut, a name that only the cut binds.
- An answer in C++ is a function that returns its source as one string; in that string the markers are
  `// BEGIN SOLUTION` and `// END SOLUTION`. `// YOUR CODE (about N lines)` and
  `#error "03.warp_reduce is yours to write"` take the place of the cut, anywhere in the string. The source stands in a
  file beside the exercise, which reads it too; a line `// INSERT gpu_utils/exercises/.../warp_reduce.cu` stands for it.
- A cell tagged "solution" (also markdown: the explanation) is left out of the lab.
- A cell tagged "raises-exception" is meant to end in an error.
- A lesson has no answers, checks or solution cells.
- In a lesson, the `because="..."` of a prediction's `.reveal(...)` stays out of the notebook, for it would stand under
  the question; `reveal` takes it from here.
- Answer and check cells carry w2w metadata {"exercise": id, "role": "answer" or "check"}.
- Titles are unique in a file. Cell ids come from the unit, the title (or the last title before) and the count since
  that title, so that an edit elsewhere does not move them.

Lesson -> notebooks/NN_name.ipynb, lab -> labs/NN_name.ipynb and, complete, solutions/NN_name.ipynb. A mistake is a
ContentError that starts with file:line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.cut import complete, stub
from gpu_utils.course.files import keep, write_atomically
from gpu_utils.course.paths import GENERATED, Course
from gpu_utils.course.reasons import told, untold
from gpu_utils.course.rules import check_lab, check_lesson, check_titles, checked
from gpu_utils.course.units import Unit
from gpu_utils.errors import ContentError

SCHEMA = 1


@dataclass(frozen=True)
class Difference:
    """One generated file that is not what a rebuild makes; `why` is half a sentence."""

    path: Path
    why: str


@dataclass(frozen=True)
class Written:
    """One notebook that a build changed, and where its old content is kept if someone had run it in place."""

    path: Path
    kept: Path | None


def build(course: Course, units: Iterable[Unit], now: datetime) -> list[Written]:
    """Writes the notebooks of these units; returns those that changed. Raises ContentError, CannotWrite.

    A notebook that was run in place may hold a learner's work: it is kept in work/ before it is overwritten.
    """
    changed = []
    for path, text in render_units(course, units).items():
        on_disk = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if on_disk != text:
            kept = keep(path, course.work, now) if _was_run(on_disk) else None
            write_atomically(path, text.encode())
            changed.append(Written(path, kept))
    return changed


def _was_run(text: str) -> bool:
    """A generated notebook has neither outputs nor execution counts; JupyterLab adds them."""
    return re.search(r'"execution_count": \d|"output_type"', text) is not None


def differences(course: Course, units: Iterable[Unit]) -> list[Difference]:
    """Where the generated notebooks on disk differ from a rebuild of these units; empty when they are current."""
    found = []
    for path, text in render_units(course, units).items():
        if not path.exists():
            found.append(Difference(path, "is missing"))
        elif (on_disk := path.read_text(encoding="utf-8", errors="replace")) != text:
            found.append(Difference(path, _first_difference(on_disk, text)))
    return found


def strays(course: Course) -> list[Difference]:
    """Files in the generated folders that no unit makes. They are reported, never deleted: they may be a learner's."""
    made = {course.notebook(unit, kind) for unit in course.written() for kind in kinds(course, unit)}
    return [
        Difference(path, "is not made from content/; move it away")
        for folder in GENERATED.values()
        for path in sorted((course.root / folder).rglob("*"))
        if path.is_file() and path not in made and ".ipynb_checkpoints" not in path.parts
    ]


def kinds(course: Course, unit: Unit) -> list[str]:
    """The kinds of notebook that the unit's content makes."""
    parts = {"lesson": ["lesson"], "lab": ["lab", "solution"]}
    return [kind for part, made in parts.items() if course.source(unit, part).is_file() for kind in made]


def render_units(course: Course, units: Iterable[Unit]) -> dict[Path, str]:
    """Path -> text of every notebook of these units. Raises ContentError."""
    return {course.notebook(unit, kind): render(course, unit, kind) for unit in units for kind in kinds(course, unit)}


def render(course: Course, unit: Unit, kind: str) -> str:
    """The text of one notebook; kind is "lesson", "lab" or "solution". Raises ContentError."""
    path = course.source(unit, "lesson" if kind == "lesson" else "lab")
    where = course.relative(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ContentError(f"{where}:1: not UTF-8: {error.reason} at byte {error.start}") from None
    cells = parse_cells(text, where)
    check_titles(cells, where)
    (check_lesson if kind == "lesson" else check_lab)(cells, unit, where)
    told(cells, where)
    kept = [
        _notebook_cell(cell, identity, kind, where)
        for cell, identity in zip(cells, cell_ids(cells, unit, kind), strict=True)
        if not (kind == "lab" and "solution" in cell.tags)
    ]
    metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "w2w": {"unit": unit.name, "kind": kind, "schema": SCHEMA},
    }
    notebook = {"cells": kept, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return as_text(notebook)


def as_text(notebook: dict[str, Any]) -> str:
    """A notebook as nbformat writes it; to import that for a learner's `./w2w start` takes seconds."""
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True, separators=(",", ": ")) + "\n"


def cell_ids(cells: list[Cell], unit: Unit, kind: str) -> Iterator[str]:
    """Cell ids: readable, at most 64 characters, the same in a lab and its solution."""
    part = "lesson" if kind == "lesson" else "lab"
    title, count = "top", 0
    for cell in cells:
        title, count = (cell.title, 0) if cell.title else (title, count + 1)
        digest = hashlib.sha256(f"{unit.name}/{part}/{title}/{count}".encode()).hexdigest()[:8]
        slug = re.sub(r"[^A-Za-z0-9_]+", "-", title).strip("-")[:40]
        yield f"{slug}-{count}-{digest}"


def _notebook_cell(cell: Cell, identity: str, kind: str, where: str) -> dict[str, Any]:
    metadata: dict[str, object] = {"tags": list(cell.tags)} if cell.tags else {}
    written: dict[str, Any] = {"cell_type": cell.kind, "id": identity, "metadata": metadata}
    if cell.kind == "markdown":
        return {**written, "source": cell.source.splitlines(keepends=True)}
    if exercises := _exercises_of(cell):
        metadata["w2w"] = {"exercise": exercises[0], "role": "answer" if "answer" in cell.tags else "check"}
    source = untold(cell) if kind == "lesson" else cell.source
    if "answer" in cell.tags:
        source = stub(source, exercises[0], where, cell.first) if kind == "lab" else complete(source)
    return {**written, "source": source.splitlines(keepends=True), "execution_count": None, "outputs": []}


def _exercises_of(cell: Cell) -> list[str]:
    if "answer" in cell.tags:
        return cell.exercises
    return checked(cell.source) if "check" in cell.tags else []


def _first_difference(on_disk: str, expected: str) -> str:
    ours = json.loads(expected)["cells"]
    try:
        theirs = [dict(cell) for cell in json.loads(on_disk)["cells"]]
    except (ValueError, TypeError, KeyError):
        return "is not a notebook"
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if mine != other:
            keys = [key for key in sorted({*mine, *other}) if mine.get(key) != other.get(key)]
            return f"differs first in cell {number} ({mine['id']}): {', '.join(keys)}"
    if len(ours) != len(theirs):
        return f"has {len(theirs)} cells, expected {len(ours)}"
    return "differs in metadata or layout"
