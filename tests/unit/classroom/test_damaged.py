"""Every damaged hand-in is one row with a clear reason, or its answers; its neighbours are untouched.

A file of tests/fixtures/damaged makes what student-002 hands in, `make(folder)`, and says what must come of it:

PROBLEM  what the row's problem says, a regular expression
ADDS     the answer to 00.vector_add is found and adds; NOTE: what one of the row's notes says
ERROR    what the answer's own error says; MISSING: there is no answer
ABSENT   nothing was handed in

of_notebooks.toml says the same of the notebooks in tests/fixtures.
"""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from gpu_utils.classroom.collecting import collect
from gpu_utils.classroom.records import Submission
from gpu_utils.classroom.roster import Roster, Student
from gpu_utils.grading.notebook import answers_in
from tests.fixtures.hand_ins import lab, put

FIXTURES = Path(__file__).parents[2] / "fixtures"
DAMAGED = sorted((FIXTURES / "damaged").glob("*.py"))
NOTEBOOKS = tomllib.loads((FIXTURES / "damaged" / "of_notebooks.toml").read_text("utf-8"))
STUDENTS = ["student-001", "student-002", "student-003"]


def collected(folder: Path) -> Submission:
    """The row of student-002, whose neighbours' rows are as they should be."""
    put(folder, {"student-001/00_start.ipynb": lab(says="1"), "student-003/00_start.ipynb": lab(says="3")})
    rows = list(collect([folder], units=["00"], roster=Roster(map(Student, STUDENTS))))
    assert [row.student for row in rows] == STUDENTS
    assert [rows[0].content, rows[2].content] == [lab(says="1"), lab(says="3")]
    assert not any(row.problem or row.notes for row in (rows[0], rows[2]))
    return rows[1]


def judge(row: Submission, says: dict) -> None:
    assert "\n" not in row.problem or "\n" in row.source
    if "problem" in says:
        assert re.search(says["problem"], row.problem)
        assert row.content == b""
        assert row.digest or not row.source.endswith(".ipynb") or "handed in nothing" in row.problem
        return
    assert row.problem == ("handed in nothing for unit 00" if says.get("absent") else "")
    if "note" in says:
        assert any(re.search(says["note"], note) for note in row.notes)
    if says.get("absent"):
        return
    answer = answers_in(row.content, row.source).find("00.vector_add")
    if says.get("missing"):
        assert answer is None
    elif "error" in says:
        assert says["error"] in answer.error
    else:
        assert says["adds"]
        namespace: dict = {}
        exec(answer.source, namespace)
        assert namespace["vector_add"](1, 2) == 3


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: path.stem)
def test_a_damaged_hand_in_is_one_row_and_its_neighbours_are_untouched(tmp_path, path):
    fixture = runpy.run_path(str(path))
    folder = tmp_path / "class"
    (folder / "student-002").mkdir(parents=True)
    fixture["make"](folder / "student-002")
    judge(collected(folder), {name.lower(): value for name, value in fixture.items() if name.isupper()})


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_damaged_notebook_is_one_row_and_its_neighbours_are_untouched(tmp_path, name):
    folder = put(tmp_path / "class", {"student-002/00_start.ipynb": (FIXTURES / f"{name}.ipynb").read_bytes()})
    judge(collected(folder), NOTEBOOKS[name])


def test_there_are_as_many_damaged_hand_ins_as_were_asked_for():
    assert len(DAMAGED) >= 20
