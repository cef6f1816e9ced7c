"""What a check returns: values. How they look is ui's."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gpu_utils.grading.speed import Race

Status = Literal["passed", "failed", "not started", "not graded"]


class Mode(enum.Enum):
    """What an outcome is of."""

    RUN = "the answer ran"
    IDLE = "it ran while every kernel did nothing, and its result must then be wrong"
    DEVICE = "it ran on an imaginary device, which refuses what a GPU refuses: tensors left on the CPU"
    COMPILED = "its kernels were built for a target, and not run"
    NOT_RUN = "said once for all cases: a backend cannot run here, or does not count what a limit needs"

    def of(self, backend: str) -> str:
        """A backend in this mode, in words.

        >>> Mode.IDLE.of("virtual:sm_80"), Mode.COMPILED.of("gfx942")
        ('virtual:sm_80 with idle kernels', 'compiled for gfx942')
        """
        words = {
            Mode.IDLE: f"{backend} with idle kernels",
            Mode.DEVICE: "a device apart from the CPU",
            Mode.COMPILED: f"compiled for {backend}",
        }
        return words.get(self, backend)


@dataclass(frozen=True)
class Outcome:
    """One case on one backend.

    backend its name, for Mode.COMPILED the target
    kind    "" when it passed, else a stable word: "value", "shape", "dtype", "device", "nan", "type",
            "error:ValueError", "timeout", "mutated", "torch:copy", "torch:work", "limit:launches", "compile", "died",
            "skipped"
    detail  one sentence for the learner: what differs, or why it was skipped
    """

    case: str
    why: str
    backend: str
    status: Literal["passed", "failed", "skipped"]
    mode: Mode = Mode.RUN
    fresh: bool = False
    kind: str = ""
    detail: str = ""
    seconds: float = 0.0

    @property
    def where(self) -> str:
        """The backend and the mode in words."""
        return self.mode.of(self.backend)


@dataclass(frozen=True)
class Report:
    """The verdict on one exercise.

    status     "passed", "failed", "not started" (the stub is untouched), "not graded" (no backend could run it)
    headline   one sentence
    hint       of the misconception whose wrong answer behaves the same; "" when none does
    seed       reproduces the fresh cases: check(id, seed=...)
    printed    what the answer printed, cut to a readable length
    notes      sentences about the check itself, for example that progress could not be stored
    stored     whether stored listings stood in for the compiler of an answer in C++
    speed      on a real GPU: a right answer against a baseline; None elsewhere
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
    stored: bool = False
    speed: Race | None = None

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def first_failure(self) -> Outcome | None:
        return next((outcome for outcome in self.outcomes if outcome.status == "failed"), None)

    def __str__(self) -> str:
        return f"{self.exercise}: {self.status.upper()}. {self.headline}"
