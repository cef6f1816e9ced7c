"""What a check returns: values. How they look is ui's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["passed", "failed", "not started", "not graded"]


@dataclass(frozen=True)
class Outcome:
    """One case on one backend.

    kind    "" when it passed, else a stable word: "value", "shape", "dtype", "device", "nan", "type",
            "error:ValueError", "timeout", "mutated", "limit:launches", "compile", "died", "skipped"
    detail  one sentence for the learner: what differs, or why it was skipped
    """

    case: str
    why: str
    backend: str
    status: Literal["passed", "failed", "skipped"]
    fresh: bool = False
    kind: str = ""
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """The verdict on one exercise.

    status     "passed", "failed", "not started" (the stub is untouched), "not graded" (no backend could run it)
    headline   one sentence
    hint       of the misconception whose wrong answer behaves the same; "" when none does
    seed       reproduces the fresh cases: check(id, seed=...)
    printed    what the answer printed, cut to a readable length
    notes      sentences about the check itself, for example that progress could not be stored
    """

    exercise: str
    title: str
    status: Status
    headline: str
    outcomes: Sequence[Outcome] = ()
    misconception: str = ""
    hint: str = ""
    seed: int = 0
    seconds: float = 0.0
    printed: str = ""
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def first_failure(self) -> Outcome | None:
        return next((outcome for outcome in self.outcomes if outcome.status == "failed"), None)

    def __str__(self) -> str:
        return f"{self.exercise}: {self.status.upper()}. {self.headline}"
