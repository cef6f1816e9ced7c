"""The marks of a class: what each student earned in each unit, what lateness took off, and why where it is nothing.

All sums are exact, in decimals. What lateness leaves is rounded to hundredths of a point, half a hundredth up: in the
student's favour. A mark is never below 0 and never above what the release says the unit is worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from gpu_utils import exercises
from gpu_utils.classroom.book import Book
from gpu_utils.classroom.records import Late, Release, Result, Submission
from gpu_utils.errors import ClassroomError

Status = Literal["graded", "incomplete", "unreadable", "nothing handed in"]

MISSING = "nothing was handed in"
_HUNDREDTH = Decimal("0.01")
_ZERO = Decimal(0)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Mark:
    """What a student has for a unit.

    status     "graded"; "incomplete" (exercises are still to be graded); "unreadable"; "nothing handed in"
    worth      every exercise of the unit -> what it is worth
    exercises  every exercise -> points, before lateness
    standings  every exercise -> its status as in Result, "" when it was not graded yet
    points     the mark: the sum of the exercises, less what lateness takes
    late       a sentence for student and teacher; "" when it came in time
    reason     a sentence for the teacher, why something earned nothing; "" when there is nothing to say
    """

    student: str
    name: str
    unit: str
    status: Status
    worth: Mapping[str, Decimal]
    exercises: Mapping[str, Decimal]
    standings: Mapping[str, str]
    points: Decimal
    late: str = ""
    reason: str = ""

    @property
    def out_of(self) -> Decimal:
        return sum(self.worth.values(), _ZERO)


@dataclass(frozen=True)
class Student:
    """A student's marks, a Mark for each unit of the release in its order."""

    id: str
    name: str
    marks: tuple[Mark, ...] = field(default_factory=tuple)

    @property
    def points(self) -> Decimal:
        return sum((mark.points for mark in self.marks), _ZERO)

    @property
    def out_of(self) -> Decimal:
        return sum((mark.out_of for mark in self.marks), _ZERO)


def class_of(book: Book) -> list[Student]:
    """Everybody in the book, by id, with their marks."""
    return students(book.release(), book.submissions(), book.results())


def students(release: Release, submissions: Iterable[Submission], results: Iterable[Result]) -> list[Student]:
    """Everybody who handed in something, by id. A unit of which nothing was ever collected is not counted yet.

    A result counts when it is of the submission that counts now: one of an older hand-in has another digest.
    """
    handed_in: dict[str, dict[str, Submission]] = {}
    names: dict[str, str] = {}
    for submission in submissions:
        handed_in.setdefault(submission.student, {})[submission.unit] = submission
        names[submission.student] = names.get(submission.student) or submission.name
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for result in results:
        counts = handed_in.get(result.student, {}).get(result.unit)
        if counts is not None and counts.digest == result.digest:
            found[result.student, result.exercise] = result.status, result.points
    collected = set().union(*handed_in.values())
    known = [unit for unit in release.units if unit in collected]
    units = release.units if "" in collected or not known else known
    return [
        Student(student, name, tuple(_mark(release, unit, student, name, handed_in[student], found) for unit in units))
        for student, name in sorted(names.items())
    ]


def _mark(
    release: Release,
    unit: str,
    student: str,
    name: str,
    handed_in: Mapping[str, Submission],
    results: Mapping[tuple[str, str], tuple[str, float]],
) -> Mark:
    worth = {each: exact(release.worth(each)) for each in exercises.ids(unit)}
    submission = handed_in.get(unit)
    if submission is None or submission.problem:
        status, reason = _why_nothing(submission, handed_in.get(""))
        nothing, unknown = dict.fromkeys(worth, _ZERO), dict.fromkeys(worth, "")
        return Mark(student, name, unit, status, worth, nothing, unknown, _ZERO, reason=reason)
    found = {each: results.get((student, each), ("", 0.0)) for each in worth}
    standings = {each: standing for each, (standing, _) in found.items()}
    points = {each: _within(earned, worth[each]) for each, (_, earned) in found.items()}
    share, late = lateness(release.late, release.due.get(unit), submission.handed_in)
    mark = (sum(points.values(), _ZERO) * share).quantize(_HUNDREDTH, ROUND_HALF_UP)
    mark = min(mark, sum(worth.values(), _ZERO))
    graded: Status = "graded" if all(standings.values()) else "incomplete"
    return Mark(student, name, unit, graded, worth, points, standings, mark, late, "; ".join(_reasons(standings)))


def _why_nothing(submission: Submission | None, of_no_unit: Submission | None) -> tuple[Status, str]:
    """A hand-in whose unit nobody can tell is the reason for every unit that has none."""
    submission = submission or of_no_unit
    if submission is None:
        return "nothing handed in", MISSING
    return ("unreadable" if submission.digest else "nothing handed in"), submission.problem or MISSING


def _reasons(standings: Mapping[str, str]) -> Iterable[str]:
    said = {
        "": "not graded yet, w2w grade goes on with it: ",
        "not graded": "could not be graded here: ",
        "unreadable": "the answer could not be read: ",
    }
    for status, words in said.items():
        if having := [each for each, found in standings.items() if found == status]:
            yield words + ", ".join(having)


def lateness(late: Late, due: datetime | None, handed_in: datetime | None) -> tuple[Decimal, str]:
    """(the share of the marks that is left, a sentence).

    The days are counted from the end of the grace time, and each one that has begun takes `per_day` of what was earned.

    >>> noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    >>> lateness(Late(grace_minutes=10, per_day=0.1), noon, noon + timedelta(hours=25))
    (Decimal('0.8'), '2 days late: 20 % of the marks are taken off')
    """
    if due is None:
        return Decimal(1), ""
    if due.utcoffset() is None:
        raise ClassroomError(f"the due time {due.isoformat()} has no zone; write it with one: {due.isoformat()}+00:00")
    if handed_in is None or handed_in.utcoffset() is None:
        return Decimal(1), "when it was handed in is not known; it counts as in time"
    over = handed_in.astimezone(UTC) - due.astimezone(UTC) - timedelta(minutes=late.grace_minutes)
    days = -(-over // _DAY)
    if days <= 0:
        return Decimal(1), ""
    words = f"{days} {'day' if days == 1 else 'days'} late"
    if late.most_days is not None and days > late.most_days:
        return _ZERO, f"{words}: more than {late.most_days}, which earns nothing"
    off = min(exact(late.per_day) * days, Decimal(1))
    return Decimal(
        1
    ) - off, f"{words}: {plain(off * 100)} % of the marks are taken off" if off else f"{words}: nothing is taken off"


def exact(number: float) -> Decimal:
    """The decimal that a person wrote: 0.1 is a tenth.

    >>> exact(0.1) * 3
    Decimal('0.3')
    """
    return Decimal(repr(float(number)))


def plain(number: Decimal) -> str:
    """A number without needless zeros and without an exponent.

    >>> plain(Decimal("2.50")), plain(Decimal("100"))
    ('2.5', '100')
    """
    return f"{number.normalize():f}"


def _within(points: float, worth: Decimal) -> Decimal:
    return min(max(exact(points), _ZERO), worth) if math.isfinite(points) else _ZERO
