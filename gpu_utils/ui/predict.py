"""`predict`: a question before an experiment, and beside what the experiment measured what the learner had said."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from gpu_utils.course.reasons import told_of
from gpu_utils.errors import BadArgument, ProgressUnavailable, W2WError
from gpu_utils.grading import progress as store
from gpu_utils.ui.explore.drawing import styled
from gpu_utils.ui.showing import in_notebook, show
from gpu_utils.ui.slots import Slot
from gpu_utils.ui.table import Table

_NAME = re.compile(r"\d\d\.[a-z][a-z0-9_]*")


def predict(name: str, question: str, **slots: Slot) -> Guess:
    """Ask for a prediction: a small form in the cell, whose answers are kept with your progress.

        guess = predict("00.programs", "How many programs must the grid have?", programs=number())
        ...                                              # the next cell measures
        guess.reveal(programs=grid[0], because="10 / 4 is 2.5, rounded up")

    name      unit and topic, "00.programs": the guess is kept under it, and a sitting's end names the topic
    question  one or two sentences; `code` in backticks
    slots     one for each thing asked: `number`, `choice` or `yes_no` of gpu_utils.lesson

    Enter keeps a number, Tab goes on to the next slot. Without widgets, `guess.say(programs=3)` does the same. What
    was said last before `reveal` counts; a guess after it is a second try, and is shown as one.
    Raises BadArgument for a name of another form, no slot, or a slot that is called because.
    """
    if not _NAME.fullmatch(name):
        raise BadArgument(f"{name!r} is not the name of a prediction; write unit and topic, such as '00.programs'")
    if not slots or "because" in slots:
        raise BadArgument(f"{name} has no slot, or one called because; name each thing that is asked, as programs=...")
    guess = Guess(name, question, slots)
    show(guess)
    return guess


class Guess:
    """One prediction: what is asked, what was said in this try, and what came out. Made by `predict`."""

    def __init__(self, name: str, question: str, slots: Mapping[str, Slot]) -> None:
        self.name, self.question, self.slots = name, question, dict(slots)
        self.note = ""
        self.stored = True  # whether progress could be read and written so far
        self.first: dict[str, Any] = {}  # the answers of this try that this notebook showed first
        self.now = store.Prediction()
        self.changed: Callable[[], None] = lambda: None
        self._refresh()

    @property
    def locked(self) -> bool:
        """Whether this try has its answer."""
        return bool(self.now.answers)

    @property
    def shown(self) -> bool:
        """Whether this notebook has shown the answer in a cell of its own."""
        return bool(self.first)

    def label(self, slot: str) -> str:
        return self.slots[slot].label or slot.replace("_", " ")

    def say(self, **guesses: Any) -> None:
        """Make a guess without the form: `guess.say(programs=3)`. The last one before the answer counts.

        Raises BadArgument for a slot that does not exist and for what its slot cannot take.
        """
        self._check(guesses, all_of_them=False)
        read = {slot: self.slots[slot].read(guess) for slot, guess in guesses.items()}
        for slot, guess in guesses.items():
            self.keep(slot, guess if isinstance(guess, str) else str(read[slot]))
        print(self.standing)

    def keep(self, slot: str, written: str) -> None:
        """Keep a guess as it was written; a locked try stays as it is. Raises BadArgument for what cannot be read."""
        self.slots[slot].read(written)
        self._refresh()
        if not self.locked:
            self.now = replace(self.now, guesses={**self.now.guesses, slot: written})
            self._try(lambda: store.record_guess(self.name, self.now.attempt, slot, written))
        self.changed()

    def reveal(self, *, because: str = "", **truths: Any) -> None:
        """Show what came out beside what was said, and lock the guess.

        because  why it is so, in a sentence; without it what the unit's lesson in content/ says
        truths   for every slot what the experiment computed; None where this machine cannot tell

        Run again with other answers, it shows both and no reason: the guess and its reason belong to the first ones.
        Without a guess it says so and goes on. Raises BadArgument where the slots are not those of the question.
        """
        self._check(truths, all_of_them=True)
        known = {slot: None if truth is None else self.slots[slot].read(truth) for slot, truth in truths.items()}
        self._refresh()
        if not self.locked:
            answers = {slot: (str(truth), self._hit(slot, truth)) for slot, truth in known.items() if truth is not None}
            self.now = replace(self.now, answers=answers)
            self._try(lambda: store.record_answers(self.name, self.now.attempt, answers))
        self.first = self.first or known
        if self._differs(known):
            rows = tuple(
                (self.label(slot), *(self._words(slot, it[slot]) for it in (self.first, known))) for slot in known
            )
            show(Answer("Run again, it is now", Table(("", "first", "now"), rows), "", self.note))
        else:
            show(Answer(self.title, self._table(known), because or self._told(), self.note))
        self.changed()

    def again(self) -> None:
        """Open another try. The first one stays what counts, because the answer has been seen since."""
        self._refresh()
        if self.locked:
            self.now, self.first = store.Prediction(self.now.attempt + 1), {}
        self.changed()

    @property
    def title(self) -> str:
        """What stands above the answer: whose try this is."""
        if self.now.attempt > 1:
            return f"Try {self.now.attempt}, with the answer seen before"
        return "You said, it is" if self.now.guesses else "You made no guess. It is"

    @property
    def standing(self) -> str:
        """Where this try stands, in a sentence."""
        if self.locked:
            return "The answer has been shown, so this guess is locked. guess.again() opens a second try."
        said = [f"{self.label(slot)}: {self._said(slot)}" for slot in self.slots if slot in self.now.guesses]
        left = len(self.slots) - len(said)
        if not said:
            return "Guess, then run the next cell."
        rest = f" {left} still open." if left else " Now run the next cell."
        return f"Kept: {'; '.join(said)}.{rest}"

    def answer(self) -> Answer:
        """What is stored of a locked try."""
        truths = {slot: self.slots[slot].read(text) for slot, (text, _) in self.now.answers.items()}
        return Answer(self.title, self._table(truths), "", self.note)

    def __repr__(self) -> str:
        if self.locked:
            return f"Predict {self.name}: {self.question}\n{self.answer()!r}\n{self.standing}"
        asks = [f"  {self.label(slot)} ({slot}): {kind.asks}" for slot, kind in self.slots.items()]
        how = f"guess.say({', '.join(f'{slot}=...' for slot in self.slots)})"
        lines = [f"Predict {self.name}: {self.question}", *asks, self.standing, f"To guess, type: {how}"]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if not in_notebook():
            return {"text/plain": repr(self)}
        from gpu_utils.ui.predict_form import Form

        return Form(self)._repr_mimebundle_(**options)

    def _check(self, given: Mapping[str, Any], *, all_of_them: bool) -> None:
        unknown = [slot for slot in given if slot not in self.slots]
        missing = [slot for slot in self.slots if slot not in given] if all_of_them else []
        if unknown or missing:
            wrong = f"{unknown[0]} is none of them" if unknown else f"{missing[0]} is missing"
            raise BadArgument(f"{self.name} asks for {', '.join(self.slots)}; {wrong}")

    def _refresh(self) -> None:
        """Read this try again: another notebook may have answered or locked it. Slots of an older lesson are left.

        Once progress has failed, what this notebook remembers is more than what is stored.
        """

        def read() -> None:
            tries = store.predictions([self.name])[self.name]
            if tries and tries[-1].attempt >= self.now.attempt:
                latest = tries[-1]
                self.now = replace(
                    latest,
                    guesses={slot: text for slot, text in latest.guesses.items() if self._reads(slot, text)},
                    answers={slot: answer for slot, answer in latest.answers.items() if self._reads(slot, answer[0])},
                )

        if self.stored:
            self._try(read)

    def _reads(self, slot: str, text: str) -> bool:
        try:
            self.slots[slot].read(text)
        except (KeyError, BadArgument):
            return False
        return True

    def _try(self, action: Callable[[], str | None]) -> None:
        """Progress that cannot be stored never stops a lesson: it is said, and this notebook remembers."""
        try:
            self.note = action() or self.note
        except ProgressUnavailable as problem:
            self.stored = False
            self.note = f"Your guesses are not kept beyond this notebook: {problem}"

    def _told(self) -> str:
        try:
            return told_of(self.name[:2]).get(self.name, "")
        except W2WError:  # outside of a checkout, or a prediction of one's own
            return ""

    def _said(self, slot: str) -> str:
        return self.slots[slot].say(self.slots[slot].read(self.now.guesses[slot]))

    def _hit(self, slot: str, truth: Any) -> bool | None:
        guess = self.now.guesses.get(slot)
        return None if guess is None else self.slots[slot].hits(self.slots[slot].read(guess), truth)

    def _differs(self, known: Mapping[str, Any]) -> bool:
        """Whether an answer is another than the first one, by more than a guess may be off."""
        pairs = ((self.slots[slot], self.first.get(slot), truth) for slot, truth in known.items())
        return any(None not in (first, now) and not kind.hits(first, now) for kind, first, now in pairs)

    def _words(self, slot: str, truth: Any) -> str:
        return "unknown here" if truth is None else self.slots[slot].say(truth)

    def _table(self, truths: Mapping[str, Any]) -> Table:
        rows = []
        for slot, kind in self.slots.items():
            truth, guess = truths.get(slot), self.now.guesses.get(slot)
            it_is = self._words(slot, truth)
            said = "no guess" if guess is None else self._said(slot)
            verdict = "" if guess is None or truth is None else kind.compared(kind.read(guess), truth)
            rows.append((self.label(slot), said, it_is, verdict))
        if not self.now.guesses:
            return Table(("", "it is"), tuple((label, it_is) for label, _, it_is, _ in rows))
        return Table(("", "you said", "it is", ""), tuple(rows))


@dataclass(frozen=True, repr=False)
class Answer:
    """A guess beside what came out."""

    title: str
    table: Table
    because: str
    note: str

    def __repr__(self) -> str:
        because = [f"because {self.because}"] if self.because else []
        return "\n".join([f"{self.title}:", repr(self.table), *because, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        return styled(f'<div class="w2w-x">{self.html()}</div>')

    def html(self) -> str:
        because = f"<p><b>because</b> {code(self.because)}</p>" if self.because else ""
        note = f'<p class="small">{escape(self.note)}</p>' if self.note else ""
        return (
            f'<div class="answer" role="status"><h4>{escape(self.title)}</h4>{self.table.html()}{because}{note}</div>'
        )


def code(words: str) -> str:
    """Words as HTML; what stands in backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))
