"""The end of a sitting: what its reader saw coming, where intuition was off, how far the lab is, where to go on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from typing import Literal

from gpu_utils import exercises
from gpu_utils.course.paths import Course, course
from gpu_utils.course.predictions import sittings_of
from gpu_utils.course.units import Unit
from gpu_utils.errors import BadArgument, ProgressUnavailable, W2WError
from gpu_utils.grading import progress as store
from gpu_utils.ui.explore.drawing import box, count, styled, svg, text

Outcome = Literal["seen", "off", "open"]
_MARK = {"seen": "■", "off": "□", "open": "·"}
_ROW, _SIDE, _LEFT = 22.0, 16.0, 200.0


@dataclass(frozen=True, repr=False)
class SittingEnd:
    """What a sitting's predictions came to; it shows itself.

    topics  (name of a prediction without its unit, outcome of each slot of its first try)
    lab     how many exercises of the unit's lab are passed, in words
    then    where to go on: heading of the next sitting, "lab 00", after a lab that is passed "lesson 01"; "" after all
    path    of the notebook to go on with, from the working folder; "" where it is this one
    """

    unit: str
    number: int
    topics: tuple[tuple[str, tuple[Outcome, ...]], ...]
    lab: str
    then: str
    path: str
    note: str = ""

    @property
    def words(self) -> str:
        every = [outcome for _, outcomes in self.topics for outcome in outcomes]
        seen, answered = every.count("seen"), len(every) - every.count("open")
        if not answered:
            return f"Sitting {self.number}: you made no guess, so there is nothing to compare."
        off = [topic for topic, outcomes in self.topics if "off" in outcomes]
        where = f" Your intuition was off at: {', '.join(off)}." if off else " Nothing came out otherwise."
        without = f" {count(every.count('open'), 'answer')} came without a guess." if "open" in every else ""
        return f"Sitting {self.number}: you saw {seen} of {count(answered, 'answer')} coming.{where}{without}"

    def __repr__(self) -> str:
        wide = max((len(topic) for topic, _ in self.topics), default=0)
        rows = [f"  {topic:<{wide}}  {''.join(_MARK[one] for one in outcomes)}" for topic, outcomes in self.topics]
        return "\n".join([self.words, *rows, self.lab, *(line for line in (self._on(), self.note) if line)])

    def _repr_html_(self) -> str:
        parts = []
        for row, (topic, outcomes) in enumerate(self.topics):
            y = 4 + row * _ROW
            parts.append(text(_LEFT - 10, y + 13, topic, at="end"))
            for at, outcome in enumerate(outcomes):
                x = _LEFT + at * (_SIDE + 4)
                parts.append(box(x, y, _SIDE, _SIDE, "even" if outcome == "seen" else "empty"))
                if outcome == "off":
                    parts.append(text(x + _SIDE / 2, y + 13, "×", size=16, at="middle", bold=True))
        drawing = svg(480, 8 + len(self.topics) * _ROW, parts, repr(self))
        legend = "filled: you saw it coming; ×: you did not; empty: no guess"
        link = self.path or f"#{self.then.replace(' ', '-')}"
        go_on = f'Go on with <a href="{escape(link)}">{escape(self.then)}</a>.' if self.then else self._on()
        note = f'<p class="small">{escape(self.note)}</p>' if self.note else ""
        return styled(
            f'<div class="w2w-x"><p role="status"><b>{escape(self.words)}</b></p>{drawing}'
            f'<p class="small">{legend}</p><p>{escape(self.lab)} {go_on}</p>{note}</div>'
        )

    def _on(self) -> str:
        if not self.then:
            return f"Unit {self.unit} is done."
        return f"Go on with: {self.then}{self.path and f', {self.path}'}"


def sitting(unit: str, number: int) -> SittingEnd:
    """The end of a sitting, as the last line of its last cell: `sitting("00", 1)`.

    Only first tries count. Which predictions belong to the sitting is read from the lesson's text: those since the cell
    that ended the sitting before. Raises UnknownName or NotWritten for a unit, BadArgument for a sitting it has not.
    """
    found = sittings_of(unit)
    if not 1 <= number <= len(found):
        raise BadArgument(f"lesson {unit} has {count(len(found), 'sitting')}, so there is no sitting {number}")
    one = found[number - 1]
    note = ""
    try:
        tries = store.predictions(one.asks)
    except ProgressUnavailable as problem:
        tries, note = {}, str(problem)
    topics = tuple((_topic(name), _outcomes(tries.get(name, []), slots)) for name, slots in one.asks.items())
    passed, of = _lab(unit)
    lab = f"Lab {unit}: {passed} of {count(of, 'exercise')} passed." if of else ""
    then, path = (one.then, "") if one.then else _after(unit, done=bool(of) and passed == of)
    return SittingEnd(unit, number, topics, lab, then, path, note)


def _after(unit: str, done: bool) -> tuple[str, str]:
    """What follows a lesson, and its path: the lab, or once that is done the next lesson that is written, if any."""
    here = course()
    found = here.find(unit)
    if not done:
        return f"lab {unit}", _path(here, found, "lab")
    later = [each for each in here.written() if each.number > found.number]
    return (f"lesson {later[0].number}", _path(here, later[0], "lesson")) if later else ("", "")


def _path(here: Course, unit: Unit, kind: str) -> str:
    """The learner's copy of a notebook, else the notebook, from the working folder, which is that of the lesson."""
    copy = here.copy(unit, kind)
    return os.path.relpath(copy if copy.exists() else here.notebook(unit, kind))


def _topic(name: str) -> str:
    return name.partition(".")[2].replace("_", " ")


def _outcomes(tries: list[store.Prediction], slots: tuple[str, ...]) -> tuple[Outcome, ...]:
    """One outcome for each slot of the first try; open without a guess, and where the answer was not shown yet.

    A slot that was guessed and that the machine could not answer is left out.
    """
    first = tries[0] if tries else store.Prediction()
    left_out = {slot for slot in first.guesses if first.answers and slot not in first.answers}
    hits = [first.answers.get(slot, ("", None))[1] for slot in slots if slot not in left_out]
    return tuple("open" if hit is None else "seen" if hit else "off" for hit in hits)


def _lab(unit: str) -> tuple[int, int]:
    """(exercises of the lab that are passed, all of them); (0, 0) where nobody can tell."""
    try:
        names = exercises.ids(unit)
        return sum(each.state == "passed" for each in store.standing(names)), len(names)
    except W2WError:
        return 0, 0
