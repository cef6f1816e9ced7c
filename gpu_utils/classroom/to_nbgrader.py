"""Writes marks into nbgrader's gradebook, where its formgrader and its exports find them.

A unit is the assignment, and the notebook in it, of the unit's name: 00_start. The grade cell of 00.saxpy is
"check-00-saxpy", its solution cell "answer-00-saxpy": the names that a release gives them. The marks are its automatic
scores; what somebody has graded by hand stays and counts before them, as in nbgrader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu_utils.classroom.marks import Mark, Student
from gpu_utils.classroom.records import Release, Submission
from gpu_utils.course.units import find_unit
from gpu_utils.errors import ClassroomError


def cell(kind: str, exercise: str) -> str:
    """The grade_id of an exercise's cell.

    >>> cell("check", "00.saxpy")
    'check-00-saxpy'
    """
    return f"{kind}-{exercise.replace('.', '-')}"


def to_nbgrader(path: Path, release: Release, students: Sequence[Student], submissions: Sequence[Submission]) -> int:
    """Write every mark of a lab that was handed in into nbgrader's SQLite file `path`, which must be there.

    Returns how many hand-ins were written. Raises ClassroomError without nbgrader, and for a file that it cannot use.
    """
    try:
        from nbgrader.api import Gradebook, InvalidEntry, MissingEntry
    except ImportError:
        raise ClassroomError(
            "nbgrader is not installed here; install the course with its extra `classroom`, and try again"
        ) from None
    from sqlalchemy.exc import SQLAlchemyError

    if not path.is_file():
        raise ClassroomError(
            f"there is no {path}; nbgrader makes gradebook.db in the course's folder: nbgrader generate_assignment"
        )

    handed_in = {(each.student, each.unit): each.handed_in for each in submissions}
    written = 0
    try:
        with Gradebook(f"sqlite:///{path.absolute()}", course_id="") as book:  # "" leaves the course as it is
            for unit in release.units:
                _assignment(book, release, unit, next((each.marks for each in students), ()))
            for student in students:
                for mark in student.marks:
                    if mark.status in ("graded", "incomplete"):
                        _grade(book, student, mark, handed_in.get((student.id, mark.unit)))
                        written += 1
    except (SQLAlchemyError, InvalidEntry, MissingEntry) as problem:
        raise ClassroomError(
            f"{path} cannot be used as nbgrader's gradebook ({type(problem).__name__}); "
            "expected the gradebook.db of a course that was made from this release"
        ) from None
    return written


def _assignment(book: Any, release: Release, unit: str, marks: Sequence[Mark]) -> None:
    """The assignment with its cells; those that nbgrader made from the release are found and kept."""
    name, due = find_unit(unit).name, release.due.get(unit)
    worth: Mapping[str, Any] = next((mark.worth for mark in marks if mark.unit == unit), {})
    book.update_or_create_assignment(name, duedate=_naive(due))
    book.update_or_create_notebook(name, name)
    for exercise, points in worth.items():
        book.update_or_create_grade_cell(cell("check", exercise), name, name, cell_type="code", max_score=float(points))
        book.update_or_create_solution_cell(cell("answer", exercise), name, name)


def _grade(book: Any, student: Student, mark: Mark, handed_in: datetime | None) -> None:
    name = find_unit(mark.unit).name
    book.update_or_create_student(student.id, last_name=student.name or None)
    when = {} if handed_in is None else {"timestamp": _naive(handed_in)}
    book.update_or_create_submission(name, student.id, **when)
    notebook = book.find_submission_notebook(name, name, student.id)
    notebook.late_submission_penalty = float(sum(mark.exercises.values()) - mark.points)
    for exercise, points in mark.exercises.items():
        grade = book.find_grade(cell("check", exercise), name, name, student.id)
        grade.auto_score, grade.needs_manual_grade = float(points), False
    book.db.commit()


def _naive(when: datetime | None) -> datetime | None:
    """nbgrader keeps times in UTC, without a zone."""
    return when and when.astimezone(UTC).replace(tzinfo=None)
