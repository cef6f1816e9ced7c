"""Marks in nbgrader's gradebook: as its own grades, with the lateness, also beside what it holds already."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from gpu_utils.classroom.marks import class_of
from gpu_utils.classroom.to_nbgrader import to_nbgrader
from gpu_utils.errors import ClassroomError
from tests.conftest import unavailable
from tests.unit.classroom.made_class import UNIT, hand_in, small_class


def _write(made, path: Path) -> int:
    return to_nbgrader(path, made.release(), class_of(made), made.submissions())


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """The empty gradebook of a course, as nbgrader makes it."""
    if importlib.util.find_spec("nbgrader") is None:
        unavailable("nbgrader is not installed (the extra `classroom`)")
    from nbgrader.api import Gradebook

    monkeypatch.setattr("nbgrader.api.get_alembic_version", lambda: "made")  # else a process of seconds says it
    made = tmp_path / "gradebook.db"
    Gradebook(f"sqlite:///{made}", "made_course").close()
    return made


def test_every_hand_in_has_its_scores_its_lateness_and_its_time(tmp_path, path):
    from nbgrader.api import Gradebook

    made = small_class(tmp_path / "book")
    assert _write(made, path) == 3
    with Gradebook(f"sqlite:///{path}", "made_course") as book:
        assert book.find_assignment("00_start").max_score == pytest.approx(6.1)
        late = book.find_submission("00_start", "student-002")
        assert (late.score, late.late_submission_penalty) == (pytest.approx(3.0), pytest.approx(0.6))
        assert late.total_seconds_late == 25 * 3600
        grade = book.find_grade("check-00-vector_add", "00_start", "00_start", "student-002")
        assert (grade.auto_score, grade.max_score, grade.needs_manual_grade) == (2.0, 2.0, False)
        assert [cell.name for cell in book.find_notebook("00_start", "00_start").solution_cells] == [
            "answer-" + each.replace(".", "-") for each in UNIT
        ]


def test_writing_again_replaces_scores_and_keeps_what_a_person_gave(tmp_path, path):
    from nbgrader.api import Course, Gradebook

    made = small_class(tmp_path / "book")
    _write(made, path)
    where = ("00_start", "00_start", "student-002")
    with Gradebook(f"sqlite:///{path}", "made_course") as book:
        book.find_grade("check-00-saxpy", *where).manual_score = 0.05
        book.db.commit()
    hand_in(made, "student-002", passed=1)
    _write(made, path)
    with Gradebook(f"sqlite:///{path}", "made_course") as book:
        assert book.find_grade("check-00-vector_add", *where).auto_score == 0
        assert book.find_grade("check-00-saxpy", *where).score == pytest.approx(0.05)
        assert len(book.students) == 3
        assert [course.id for course in book.db.query(Course)] == ["made_course"]


def test_a_file_that_is_no_gradebook_is_refused(tmp_path, path):
    path.write_text("not a database " * 100, encoding="utf-8")
    with pytest.raises(ClassroomError, match="cannot be used as nbgrader's gradebook"):
        _write(small_class(tmp_path / "book"), path)


def test_a_gradebook_that_is_not_there_is_not_made(tmp_path, path):
    with pytest.raises(ClassroomError, match="nbgrader makes gradebook"):
        _write(small_class(tmp_path / "book"), tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists()


def test_without_nbgrader_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbgrader.api", None)
    with pytest.raises(ClassroomError, match="nbgrader is not installed here; install the course with its extra"):
        _write(small_class(tmp_path / "book"), tmp_path / "gradebook.db")
