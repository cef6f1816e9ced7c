"""A challenge: an exercise's answer again, on one large case, for the fewest predicted cycles. It must be right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gpu_utils.backends.virtual import VirtualBackend
from gpu_utils.grading.execute import run
from gpu_utils.grading.exercise import Case, Exercise
from gpu_utils.grading.fp8 import case_on
from gpu_utils.grading.jobs import Job
from gpu_utils.grading.verdicts import judge


@dataclass(frozen=True)
class Challenge:
    """What a unit's challenge is.

    exercise  id of the exercise whose answer competes
    case      its inputs: shapes that stay the same, values that are drawn anew each time
    targets   virtual GPUs whose predicted cycles are added up
    """

    exercise: str
    case: Case
    targets: tuple[str, ...] = ("sm_80", "gfx942")


@dataclass(frozen=True)
class Entry:
    """What an answer came to: predicted cycles by target, or the sentence that keeps it out."""

    cycles: dict[str, int]
    refused: str = ""


def enter(challenge: Challenge, exercise: Exercise, answer: Callable[..., Any], seed: int) -> Entry:
    """Run the answer on the challenge's case, on each target. It is judged there like in a check, limits and all.

    seed  draws the inputs: the same seed gives two answers the same ones
    """
    cycles = {}
    for target in challenge.targets:
        backend = VirtualBackend(f"virtual:{target}", target, cycles=True)
        case = case_on(exercise, challenge.case, backend.name)
        inputs = exercise.inputs(case, torch.Generator().manual_seed(seed))
        attempt = run(exercise, answer, inputs, backend)
        outcome = judge(exercise, Job(case, True, backend.name, inputs, exercise.reference(**inputs)), attempt)
        if outcome.status != "passed":
            return Entry({}, f"case {outcome.case} on {outcome.where}: {outcome.detail}")
        cycles[target] = round(attempt.counters["predicted_cycles"])
    return Entry(cycles)
