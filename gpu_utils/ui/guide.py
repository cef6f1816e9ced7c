"""What a learner asks for besides a check: hint, solution, progress. Neither hints nor progress need torch.

Each returns a value that shows itself: as HTML in a notebook, as plain text in a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.errors import BadArgument, ProgressUnavailable
from gpu_utils.grading import progress as store
from gpu_utils.grading.interrupted import interrupted
from gpu_utils.ui.report import ended_python


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
    hints = exercises.hints(exercise_id)
    if strength not in (None, 1, 2, 3):
        raise BadArgument(
            f"there is no hint of strength {strength!r}; ask for 1, 2 or 3, or leave it out for the next one"
        )
    note = ""
    try:
        if strength is None:
            strength = min(store.hints_used(exercise_id) + 1, 3)
        note = store.record_hint(exercise_id, strength) or ""
    except ProgressUnavailable as problem:
        strength, note = strength or 1, str(problem)
    text = hints[strength - 1] + (f" (Note: {note})" if note else "")
    return Note(f"Hint {strength} of 3 for {exercise_id}", text)


def solution(exercise_id: str, *, confirm: bool = False) -> Note:
    """The solution with its explanation, after asking once; `confirm=True` answers the question. It is recorded."""
    exercise = exercises.find(exercise_id)
    if not confirm and not _agreed(exercise_id):
        return Note(f"{exercise_id}: not shown", f'hint("{exercise_id}") is the smaller step.')
    note = ""
    try:
        note = store.record_solution(exercise_id) or ""
    except ProgressUnavailable as problem:
        note = f" (Note: {problem})"
    return Note(f"Solution of {exercise_id}", exercise.explanation + note, sources.solution(exercise_id))


def _agreed(exercise_id: str) -> bool:
    question = f"Show the solution of {exercise_id}? That is recorded in your progress. [y/N] "
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
    parts += [store.TIERS[row.tier - 1]] if row.tier else []
    return ", ".join(parts)


def progress() -> Progress:
    """Where you stand: every exercise of the units that exist, from the progress file of this user."""
    known = exercises.ids()
    told = " ".join(map(ended_python, interrupted()))
    try:
        return Progress(tuple(store.standing(known)), told)
    except ProgressUnavailable as problem:
        return Progress(tuple(store.Standing(name, None, 0, 0, False) for name in known), str(problem))
