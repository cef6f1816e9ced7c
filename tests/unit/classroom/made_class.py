"""A small class in a gradebook, of rows that nobody graded: what every page and table of it is made from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpu_utils import exercises
from gpu_utils.classroom.book import SECRET, Book
from gpu_utils.classroom.records import Late, Release, Result, Submission

DUE = datetime(2026, 12, 1, 12, tzinfo=UTC)
SEED = "00112233445566778899aabbccddeeff"
RELEASE = Release(
    id="autumn",
    units=("00",),
    points={"00.vector_add": 2.0, "00.saxpy": 0.1},
    due={"00": DUE},
    late=Late(grace_minutes=10, per_day=0.1, most_days=3),
    course="0.1.0",
)
UNIT = exercises.ids("00")


def book(folder: Path, release: Release = RELEASE) -> Book:
    """An empty gradebook with a known secret."""
    made = Book(folder, make=True)
    (folder / SECRET).write_text("11" * 32 + "\n", encoding="utf-8")
    made.keep_release(release)
    return made


def submission(student: str, **other: Any) -> Submission:
    given = {"unit": "00", "source": f"class.zip::{student}.ipynb", "digest": "d1", "handed_in": DUE} | other
    return Submission(student, **given)


def outcome(status: str = "passed", **other: Any) -> dict[str, Any]:
    return {
        "case": "three blocks",
        "why": "a multiple of the block",
        "where": "virtual:sm_80",
        "status": status,
        "kind": "" if status == "passed" else "value",
        "detail": "",
        "fresh": False,
    } | other


def result(student: str, exercise: str, status: str = "passed", **other: Any) -> Result:
    worth = RELEASE.worth(exercise)
    given = {
        "digest": "d1",
        "seed": SEED,
        "points": worth if status == "passed" else 0.0,
        "out_of": worth,
        "headline": f"{exercise} has {status}",
        "outcomes": (outcome(), outcome(fresh=True, case="a size that nobody chose")),
        "backends": "virtual:sm_80, virtual:gfx942",
    } | other
    return Result(student, exercise.partition(".")[0], exercise, status=status, **given)


def hand_in(into: Book, student: str, *, passed: int = len(UNIT), **other: Any) -> None:
    """A lab whose first exercises pass, and the others do not."""
    into.put_submission(submission(student, **other))
    for number, exercise in enumerate(UNIT):
        into.put_result(result(student, exercise, "passed" if number < passed else "failed"))


def small_class(folder: Path) -> Book:
    """Five students: all right, two right and late, unreadable, nothing, and one with the name of a formula."""
    made = book(folder)
    hand_in(made, "student-001", name="S. Example")
    hand_in(made, "student-002", passed=2, handed_in=DUE + timedelta(hours=25))
    broken = "class.zip::student-003.ipynb is cut off: it ends in the middle of a cell"
    made.put_submission(submission("student-003", problem=broken))
    made.put_submission(
        submission("student-004", problem="handed in nothing for unit 00", digest="", source="", handed_in=None)
    )
    hand_in(made, "=cmd|'/c calc'!A1", passed=0, name='+1+1"<b>')
    return made
