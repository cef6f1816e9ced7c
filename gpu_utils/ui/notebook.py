"""What a learner calls in a notebook: check, hint, solution, progress.

Each returns a value that shows itself: as HTML in a notebook, as plain text in a terminal.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.errors import BadArgument, CheckFailed, ProgressUnavailable
from gpu_utils.grading import check as engine
from gpu_utils.grading import progress as store
from gpu_utils.grading.execute import usual_settings
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.report import Report
from gpu_utils.ui.report import report_html, report_text


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
    """
    exercise = exercises.find(exercise_id)
    if answer is None:
        answer = _callers_name(exercise.name)
    _show_reports_as_html()
    with usual_settings():
        report = engine.check(exercise, answer, backends=backends, seed=seed)
    report = record(report)
    must_run = report.status != "not graded" or os.environ.get("W2W_CI") == "1"
    if os.environ.get("W2W_STRICT") == "1" and must_run and not report.passed:
        raise CheckFailed(report_text(report))
    return report


def record(report: Report) -> Report:
    """Store the attempt; a report that could not be stored says so in its notes and is otherwise the same."""
    backends = ",".join(sorted({o.backend for o in report.outcomes if o.status != "skipped"}))
    try:
        note = store.record_attempt(
            report.exercise, report.status, backends, report.misconception, report.seed, report.seconds
        )
    except ProgressUnavailable as problem:
        note = str(problem)
    return replace(report, notes=(*report.notes, note)) if note else report


@dataclass(frozen=True)
class Note:
    """A short text with a title, and code where there is some."""

    title: str
    text: str
    code: str = ""

    def __repr__(self) -> str:
        return "\n".join(part for part in (self.title, self.text, self.code) if part)

    def _repr_html_(self) -> str:
        code = f"<pre>{escape(self.code)}</pre>" if self.code else ""
        return f"<div><strong>{escape(self.title)}</strong><p>{escape(self.text)}</p>{code}</div>"


def hint(exercise_id: str, strength: int | None = None) -> Note:
    """The next of an exercise's three hints, or the one of a given strength (1 to 3). It is recorded."""
    exercise = exercises.find(exercise_id)
    if strength not in (None, 1, 2, 3):
        raise BadArgument(
            f"there is no hint of strength {strength!r}; ask for 1, 2 or 3, or leave it out for the next one"
        )
    note = ""
    try:
        if strength is None:
            strength = min(store.hints_used(exercise.id) + 1, 3)
        note = store.record_hint(exercise.id, strength) or ""
    except ProgressUnavailable as problem:
        strength, note = strength or 1, str(problem)
    text = exercise.hints[strength - 1] + (f" (Note: {note})" if note else "")
    return Note(f"Hint {strength} of 3 for {exercise.id}", text)


def solution(exercise_id: str, *, confirm: bool = False) -> Note:
    """The solution with its explanation, after asking once; `confirm=True` answers the question. It is recorded."""
    exercise = exercises.find(exercise_id)
    if not confirm and not _agreed(exercise):
        return Note(f"{exercise.id}: not shown", f'hint("{exercise.id}") is the smaller step.')
    note = ""
    try:
        note = store.record_solution(exercise.id) or ""
    except ProgressUnavailable as problem:
        note = f" (Note: {problem})"
    return Note(f"Solution of {exercise.id}", exercise.explanation + note, sources.solution(exercise.id))


def _agreed(exercise: Exercise) -> bool:
    question = f"Show the solution of {exercise.id}? That is recorded in your progress. [y/N] "
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, NotImplementedError):  # no one is there to ask, as when a whole notebook is run
        return False


@dataclass(frozen=True)
class Progress:
    """Every exercise that exists and where the learner stands."""

    rows: tuple[store.Standing, ...]
    note: str = ""

    def __repr__(self) -> str:
        lines = [f"{_state(row):<14} {row.exercise:<24} {_tries(row)}" for row in self.rows]
        return "\n".join([*lines, self._summary(), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><td style="text-align:left">{_state(row)}</td>'
            f'<td style="text-align:left"><code>{escape(row.exercise)}</code></td>'
            f'<td style="text-align:left">{_tries(row)}</td></tr>'
            for row in self.rows
        )
        return f"<table>{cells}</table><p>{escape(self._summary())} {escape(self.note)}</p>"

    def _summary(self) -> str:
        passed = sum(row.state == "passed" for row in self.rows)
        return f"{passed} of {len(self.rows)} exercises passed."


def _state(row: store.Standing) -> str:
    return {"passed": "✓ passed", "in progress": "… in progress"}.get(row.state, "○ not started")


def _tries(row: store.Standing) -> str:
    parts = [f"{row.attempts} checks" if row.attempts != 1 else "1 check"] if row.attempts else []
    parts += [f"hint {row.hints} of 3"] if row.hints else []
    parts += ["solution seen"] if row.solution_seen else []
    return ", ".join(parts)


def progress() -> Progress:
    """Where you stand: every exercise of the units that exist, from the progress file of this user."""
    known = [exercise.id for exercise in exercises.every()]
    try:
        return Progress(tuple(store.standing(known)))
    except ProgressUnavailable as problem:
        return Progress(tuple(store.Standing(name, None, 0, 0, False) for name in known), str(problem))


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
