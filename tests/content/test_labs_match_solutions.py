"""By discovery over content/: a lab is its solution outside the cut parts, and what is committed is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpu_utils.course.build import differences, kinds, strays
from gpu_utils.course.cells import parse_cells
from gpu_utils.course.cut import BEGIN, BEGIN_CPP, END, END_CPP
from gpu_utils.course.ipynb import nbformat
from gpu_utils.course.paths import Course

HERE = Course(Path(__file__).parents[2])
UNITS = HERE.written()
NOTEBOOKS = [(unit, kind) for unit in UNITS for kind in kinds(HERE, unit)]

_STUB = re.compile(
    r" *(?:#|//) YOUR CODE \(about \d+ lines?\)\n *(?:pass|raise NotImplementedError\(\".*\"\)|#error \".*\")"
)
_CUT = re.compile(rf" *(?:{BEGIN}\n.*?\n *{END}|{BEGIN_CPP}\n.*?\n *{END_CPP})", re.DOTALL)

each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
each_notebook = pytest.mark.parametrize(("unit", "kind"), NOTEBOOKS, ids=lambda value: getattr(value, "name", value))


def read(unit, kind):
    return nbformat.read(HERE.notebook(unit, kind), as_version=4)


def test_there_are_units():
    assert UNITS
    assert NOTEBOOKS


@each_unit
def test_a_unit_has_a_lesson_and_a_lab(unit):
    assert kinds(HERE, unit) == ["lesson", "lab", "solution"]


@each_unit
def test_a_lab_is_its_solution_outside_the_cut_parts(unit):
    solution = {cell.id: cell for cell in read(unit, "solution").cells}
    cells = parse_cells(HERE.source(unit, "lab").read_text("utf-8"), "lab.py")
    with_markers = {cell.exercises[0]: cell.source for cell in cells if "answer" in cell.tags}
    lab = read(unit, "lab").cells
    for cell in lab:
        complete = solution.pop(cell.id)
        assert (cell.cell_type, cell.metadata) == (complete.cell_type, complete.metadata)
        if "answer" not in cell.metadata.get("tags", []):
            assert cell.source == complete.source
            continue
        outside = _CUT.split(with_markers[cell.metadata.w2w.exercise])
        assert len(outside) > 1, "nothing was cut"
        assert _STUB.split(cell.source) == outside
        rest = complete.source
        for part in filter(None, outside):
            _, found, rest = rest.partition(part)
            assert found == part, f"not in the solution: {part!r}"
    assert all("solution" in cell.metadata.get("tags", []) for cell in solution.values())
    order = [cell.id for cell in read(unit, "solution").cells]
    assert [cell.id for cell in lab] == [identity for identity in order if identity not in solution]


def test_the_committed_notebooks_are_current():
    wrong = [f"{HERE.relative(found.path)} {found.why}" for found in differences(HERE, UNITS) + strays(HERE)]
    assert wrong == [], "run `./w2w build`"


@each_notebook
def test_a_notebook_is_valid_and_carries_no_outputs(unit, kind):
    notebook = read(unit, kind)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)


@each_notebook
def test_only_a_lab_has_stubs_and_nothing_has_markers(unit, kind):
    text = "\n".join(cell.source for cell in read(unit, kind).cells)
    assert BEGIN not in text
    assert END not in text
    assert bool(_STUB.search(text)) == (kind == "lab")
