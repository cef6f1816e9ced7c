"""`challenge("04")`: the learner's answer in the fewest predicted cycles, beside their entries so far."""

from __future__ import annotations

import inspect
import secrets
from typing import Any

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.errors import ProgressUnavailable
from gpu_utils.grading import check as engine
from gpu_utils.grading import progress as store
from gpu_utils.grading.challenge import Challenge, enter
from gpu_utils.grading.surroundings import usual_settings
from gpu_utils.ui.guide import Note
from gpu_utils.ui.table import Table

MOST_ROWS = 12
"""Entries that are shown: the latest ones, and the best."""


def challenge(unit: str, answer: Any = None) -> Table | Note:
    """Enter the answer of your notebook to the unit's challenge: fewest predicted cycles, over all its targets.

    unit    "04"
    answer  a function to enter instead of the one in the notebook

    The answer is checked first, and only a right one enters. Then it runs once on each virtual GPU, on one large case
    whose values are drawn anew, and so does the course's solution. Cycles are those that one SM or CU would need by the
    simple model of `gpu_utils.virtual.predict`: a prediction, never a measurement. Entries are kept beside your
    progress, for you alone. Raises UnknownName for a unit without a challenge.
    """
    known = exercises.challenge(unit)
    exercise = exercises.find(known.exercise)
    if answer is None:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        answer = frame.f_back.f_globals.get(exercise.name)
    with usual_settings():
        report = engine.check(exercise, answer)
    if not report.passed:
        return Note(f"{known.exercise} is {report.status}: not entered", report.headline)
    seed = secrets.randbits(63)
    entry = enter(known, exercise, answer, seed)
    if entry.refused:
        return Note(f"{known.exercise} is right on its own cases, and not entered", entry.refused)
    solution = enter(known, exercise, sources.load(known.exercise, sources.solution(known.exercise)), seed)
    note, before = "", []
    try:
        before = store.entries(unit, known.exercise)
        note = store.record_entry(unit, known.exercise, entry.cycles) or ""
    except ProgressUnavailable as problem:
        note = str(problem)
    return _table(known, [*before, ("now", entry.cycles)], solution.cycles, note)


def _table(known: Challenge, entries: list[tuple[str, dict[str, int]]], solution: dict[str, int], note: str) -> Table:
    """The course's solution, then the learner's entries; the best of them is marked."""

    def row(name: str, at: str, cycles: dict[str, int]) -> tuple[str, ...]:
        each = (f"{cycles[target]:,}" if target in cycles else "" for target in known.targets)
        return (name, at.replace("T", " ")[:16], *each, f"{sum(cycles.values()):,}")

    best = min(range(len(entries)), key=lambda at: sum(entries[at][1].values()))
    shown = sorted({best, *range(max(0, len(entries) - MOST_ROWS), len(entries))})
    rows = [row("the course", "", solution), *(row(f"entry {at + 1}", *entries[at]) for at in shown)]
    return Table(
        ("", "when (UTC)", *known.targets, "predicted cycles"),
        tuple(rows),
        " ".join(part for part in (f"{known.exercise}, {known.case.label}.", note) if part),
        frozenset({1 + shown.index(best)}),
    )
