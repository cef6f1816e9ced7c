"""One answer of one submission, graded inside of walls: a Result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpu_utils import exercises
from gpu_utils.classroom.records import Result, Submission
from gpu_utils.errors import NotebookUnreadable
from gpu_utils.grading import check as engine
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.notebook import Answers, answers_in
from gpu_utils.grading.report import Outcome, Report
from gpu_utils.grading.walls import bwrap
from gpu_utils.grading.walls.runner import Walls, run_walled

MOST_ANSWER = 100_000
"""Characters of an answer that a gradebook keeps."""

MOST_DETAIL = 4000
"""And of each sentence about it."""


def mark(
    submission: Submission,
    exercise_id: str,
    seed: int,
    out_of: float,
    walls: Walls,
    backends: Sequence[str] = (),
) -> Result:
    """What an exercise of a submission earned: all of `out_of`, or nothing.

    seed      128 bits from which the cases are drawn; the same seed gives the same Result, but for its seconds
    backends  names in place of those that the exercise chooses

    Never raises for anything in the submission: what cannot be read or run is a Result that says so.
    """
    start = time.perf_counter()
    exercise = exercises.find(exercise_id)
    try:
        found = answers_in(submission.content, submission.source) if not submission.problem else None
    except NotebookUnreadable as problem:
        return _unmarked(submission, exercise, seed, out_of, "unreadable", str(problem))
    if found is None:
        return _unmarked(submission, exercise, seed, out_of, "unreadable", submission.problem)
    report, source, note = _report(exercise, found, seed, walls, backends)
    return replace(
        _unmarked(submission, exercise, seed, out_of, report.status, report.headline[:MOST_DETAIL]),
        points=out_of if report.passed else 0.0,
        misconception=report.misconception,
        hint=report.hint,
        outcomes=tuple(map(_row, report.outcomes)),
        flags=_flags(report),
        log=note + report.printed,
        answer=source[:MOST_ANSWER],
        walls="bubblewrap" if walls.walled else "none",
        backends=", ".join(dict.fromkeys(o.backend for o in report.outcomes if o.status != "skipped")),
        seconds=time.perf_counter() - start,
    )


def _report(
    exercise: Exercise, found: Answers, seed: int, walls: Walls, backends: Sequence[str]
) -> tuple[Report, str, str]:
    """The report, the answer's source, and a line about where it was found, "" where it was in its place."""
    answer = found.find(exercise.id)
    if answer is None:
        return engine.missing_answer(exercise, seed), "", ""
    note = f"the answer was {answer.note}\n" if answer.note else ""
    problem = answer.error or found.broken
    if problem:
        return engine.unreadable_answer(exercise, problem), answer.source, note
    runner = run_walled(found.program(answer), walls)
    return (
        engine.check(exercise, None, runner=runner, seed=seed, backends=backends or None),
        answer.source,
        note,
    )


def _unmarked(
    submission: Submission, exercise: Exercise, seed: int, out_of: float, status: str, headline: str
) -> Result:
    """A Result without points."""
    return Result(
        student=submission.student,
        unit=exercise.unit,
        exercise=exercise.id,
        digest=submission.digest,
        seed=f"{seed:032x}",
        status=status,
        points=0.0,
        out_of=out_of,
        headline=headline,
    )


def _row(outcome: Outcome) -> dict[str, Any]:
    return {
        "case": outcome.case,
        "why": outcome.why,
        "where": outcome.where,
        "status": outcome.status,
        "kind": outcome.kind,
        "detail": outcome.detail[:MOST_DETAIL],
        "fresh": outcome.fresh,
    }


_SUSPICIOUS = {
    "died": "the answer's process ended, or sent something that is no result",
    "idle": "the result stays right when its kernels do nothing",
    "error:BadRecord": "the record of its launches does not give its result",
}
"""Kind of an outcome -> what a teacher may want to look at."""

_NOT_THERE = tuple(f"gpu_utils.{name}" for name in bwrap.LEFT_OUT)


def _flags(report: Report) -> tuple[str, ...]:
    kinds = dict.fromkeys(outcome.kind for outcome in report.outcomes if outcome.status == "failed")
    found = [f"{_SUSPICIOUS[kind]} ({report.headline})" for kind in kinds if kind in _SUSPICIOUS]
    if any(name in outcome.detail for outcome in report.outcomes for name in _NOT_THERE):
        found.append(f"it asks for a part of the course that answers do not have ({report.headline})")
    return tuple(found)
