"""`check` as a learner calls it in a notebook; its report shows itself as HTML, in a terminal as text."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpu_utils import exercises
from gpu_utils.errors import CheckFailed, ProgressUnavailable
from gpu_utils.grading import check as engine
from gpu_utils.grading import progress as store
from gpu_utils.grading.interrupted import interrupted, noted
from gpu_utils.grading.report import Report
from gpu_utils.grading.surroundings import usual_settings
from gpu_utils.ui.report import ended_python, report_html, report_text


def check(
    exercise_id: str,
    answer: Any = None,
    *,
    backends: Sequence[str] | None = None,
    seed: int | None = None,
) -> Report:
    """Check the answer that the calling notebook holds under the exercise's name.

    exercise_id  "00.vector_add"
    answer       a function to check instead of the one in the notebook
    backends     where to run, for example ["interpreter"]; default: what this machine has (see W2W_BACKENDS)
    seed         of an earlier report, to draw the same fresh cases again

    Returns a Report. Raises UnknownName for an id that does not exist. With W2W_STRICT=1, as in validation,
    a report that did not pass raises CheckFailed; where it could not be graded, for want of a compiler, only in CI
    (W2W_CI=1), which must have everything.

    It runs the answer in this very process, so it cannot be proof against its author: an answer may change the grader
    itself, or end Python. What counts is `w2w check`, which runs every answer in a process of its own.
    """
    exercise = exercises.find(exercise_id)
    if answer is None:
        answer = _callers_name(exercise.name)
    _show_reports_as_html()
    ended = [_ended_python(name) for name in interrupted(forget=True)]
    with usual_settings(), noted(exercise.id):
        report = engine.check(exercise, answer, backends=backends, seed=seed)
    report = record(replace(report, notes=(*report.notes, *ended)))
    must_run = report.status != "not graded" or os.environ.get("W2W_CI") == "1"
    if os.environ.get("W2W_STRICT") == "1" and must_run and not report.passed:
        raise CheckFailed(report_text(report))
    return report


def _ended_python(exercise: str) -> str:
    """Stores that a check ended Python, and says it."""
    with contextlib.suppress(ProgressUnavailable):
        store.record_attempt(exercise, "died", "", "", 0, 0.0)
    return ended_python(exercise)


def record(report: Report) -> Report:
    """Store the attempt; a report that could not be stored says so in its notes and is otherwise the same."""
    backends = ",".join(sorted({o.where for o in report.outcomes if o.status != "skipped"}))
    try:
        note = store.record_attempt(
            report.exercise, report.status, backends, report.misconception, report.seed, report.seconds
        )
        if report.speed and not report.speed.problem:
            of = report.speed
            store.record_race(report.exercise, of.rank, of.ratio, of.fraction, of.where)
    except ProgressUnavailable as problem:
        note = str(problem)
    return replace(report, notes=(*report.notes, note)) if note else report


def _callers_name(name: str) -> Any:
    """The global of that name where `check` was called: the notebook's."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    assert frame.f_back.f_back is not None
    return frame.f_back.f_back.f_globals.get(name)


def _show_reports_as_html() -> None:
    try:
        from IPython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(Report, report_html)
        shell.display_formatter.formatters["text/plain"].for_type(
            Report, lambda report, printer, _cycle: printer.text(report_text(report))
        )
