"""Marks: exact sums, lateness, and what earns nothing has its reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpu_utils.classroom.marks import class_of, lateness, students
from gpu_utils.classroom.records import Late, Release
from gpu_utils.errors import ClassroomError
from tests.unit.classroom.made_class import DUE, RELEASE, UNIT, book, hand_in, result, small_class, submission

PER_DAY = Late(grace_minutes=10, per_day=0.1, most_days=3)


def _mark(submissions, results, release=RELEASE):
    (student,) = students(release, submissions, results)
    return student.marks[0]


def _all_right(**of_submission):
    return _mark([submission("a", **of_submission)], [result("a", each) for each in UNIT])


def test_a_student_earns_the_points_of_the_release():
    mark = _all_right()
    assert (mark.status, mark.late, mark.reason) == ("graded", "", "")
    assert mark.points == mark.out_of == Decimal(len(UNIT) - 2) + Decimal("2.1")


def test_tenths_add_up_without_a_remainder():
    release = replace(RELEASE, points=dict.fromkeys(UNIT, 0.1))
    mark = _mark([submission("a")], [result("a", each, points=0.1) for each in UNIT], release)
    assert mark.out_of == Decimal("0.1") * len(UNIT) == mark.points


def test_nobody_has_more_than_an_exercise_is_worth_or_less_than_nothing():
    for points, expected in ((99.0, "2.0"), (-5.0, "0"), (float("nan"), "0"), (float("inf"), "0")):
        mark = _mark([submission("a")], [result("a", "00.vector_add", points=points)])
        assert mark.exercises["00.vector_add"] == Decimal(expected)


@pytest.mark.parametrize(
    ("minutes", "share", "words"),
    [
        (-1, "1", ""),
        (10, "1", ""),
        (11, "0.9", "1 day late: 10 % of the marks are taken off"),
        (10 + 24 * 60, "0.9", "1 day late: 10 % of the marks are taken off"),
        (11 + 24 * 60, "0.8", "2 days late: 20 % of the marks are taken off"),
        (11 + 3 * 24 * 60, "0", "4 days late: more than 3, which earns nothing"),
    ],
)
def test_every_day_that_has_begun_after_the_grace_time_costs_its_share(minutes, share, words):
    assert lateness(PER_DAY, DUE, DUE + timedelta(minutes=minutes)) == (Decimal(share), words)


def test_a_policy_that_takes_nothing_still_says_how_late_it_was():
    assert lateness(Late(), DUE, DUE + timedelta(days=2)) == (Decimal(1), "2 days late: nothing is taken off")


def test_lateness_never_takes_more_than_all():
    assert lateness(Late(per_day=0.4), DUE, DUE + timedelta(days=30))[0] == 0


def test_times_are_compared_across_zones_and_summer_time():
    from zoneinfo import ZoneInfo

    berlin = ZoneInfo("Europe/Berlin")
    assert lateness(PER_DAY, DUE, (DUE + timedelta(minutes=5)).astimezone(timezone(timedelta(hours=-7))))[0] == 1
    due = datetime(2026, 10, 25, 1, 30, tzinfo=berlin)  # in this night an hour comes twice
    assert lateness(Late(per_day=0.1), due, due + timedelta(days=1))[1].startswith("2 days late")


def test_a_hand_in_at_an_unknown_time_is_in_time_and_says_so():
    for unknown in (None, datetime(2027, 1, 1)):
        mark = _all_right(handed_in=unknown)
        assert mark.points == mark.out_of
        assert mark.late == "when it was handed in is not known; it counts as in time"


def test_a_due_time_without_a_zone_is_refused():
    with pytest.raises(ClassroomError, match="has no zone; write it with one"):
        lateness(Late(), datetime(2026, 12, 1), DUE)


def test_half_a_hundredth_is_rounded_up():
    release = replace(RELEASE, points={**dict.fromkeys(UNIT, 0.0), "00.saxpy": 0.61}, late=Late(per_day=0.5))
    late = submission("a", handed_in=DUE + timedelta(hours=1))
    mark = _mark([late], [result("a", "00.saxpy", points=0.61)], release)
    assert mark.points == Decimal("0.31")  # 0.305


def test_what_cannot_be_read_earns_nothing_and_keeps_its_reason(tmp_path):
    found = {student.id: student.marks[0] for student in class_of(small_class(tmp_path))}
    assert len(found) == 5
    assert (found["student-003"].status, found["student-003"].points) == ("unreadable", 0)
    assert "cut off" in found["student-003"].reason
    assert (found["student-004"].status, found["student-004"].points) == ("nothing handed in", 0)


def test_a_hand_in_of_an_unknown_unit_is_the_reason_for_the_units_that_have_none():
    release = Release("r", ("00", "01"))
    lost = submission("a", unit="", problem="its unit cannot be told")
    (student,) = students(release, [submission("a"), lost], [])
    assert [(mark.status, mark.reason) for mark in student.marks][1] == ("unreadable", "its unit cannot be told")
    assert student.marks[0].status == "incomplete"


def test_a_result_of_an_older_hand_in_does_not_count():
    mark = _mark([submission("a", digest="d2")], [result("a", each) for each in UNIT])
    assert (mark.points, mark.status) == (0, "incomplete")
    assert mark.reason.startswith("not graded yet, w2w grade goes on with it: 00.platform, ")


def test_an_exercise_that_the_machine_could_not_grade_is_named():
    results = [result("a", each, "not graded" if each == "00.saxpy" else "passed") for each in UNIT]
    mark = _mark([submission("a")], results)
    assert mark.reason == "could not be graded here: 00.saxpy"


def test_results_of_somebody_without_a_hand_in_count_for_nobody():
    assert students(RELEASE, [], [result("ghost", "00.saxpy")]) == []


@given(some.dictionaries(some.sampled_from(UNIT), some.floats()), some.integers(-10_000, 10_000), some.floats(0, 5))
def test_a_mark_is_always_between_nothing_and_all(points, minutes, per_day):
    release = replace(RELEASE, late=Late(per_day=per_day))
    given = submission("a", handed_in=datetime(2026, 12, 1, 12, tzinfo=UTC) + timedelta(minutes=minutes))
    mark = _mark([given], [result("a", each, points=number) for each, number in points.items()], release)
    assert 0 <= mark.points <= mark.out_of


def test_the_class_is_read_from_its_gradebook(tmp_path):
    made = book(tmp_path)
    hand_in(made, "b")
    hand_in(made, "a", passed=1)
    assert [(student.id, student.points) for student in class_of(made)] == [
        ("a", Decimal(1)),
        ("b", Decimal(len(UNIT) - 2) + Decimal("2.1")),
    ]
