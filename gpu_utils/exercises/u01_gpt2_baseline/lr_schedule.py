"""01.lr_schedule: linear warm-up, then a cosine down to a floor."""

from __future__ import annotations

import math
import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {**case.params, "step": list(range(case["total_steps"] + 6))}


def _rate(
    step: int,
    warmup_steps: int,
    total_steps: int,
    max_lr: float,
    min_lr: float,
    first: int = 1,
    longer: int = 0,
    shape: str = "cosine",
    start: int | None = None,
    clamp: bool = True,
    early: int = 0,
) -> float:
    """The schedule; the arguments after min_lr make it wrong."""
    if step < warmup_steps:
        return max_lr * (step + first) / (warmup_steps + longer)
    if step >= total_steps and clamp:
        return min_lr
    start = warmup_steps if start is None else start
    progress = (step - start) / (total_steps - early - start)
    factor = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "line": 1 - progress}[shape]
    return min_lr + (max_lr - min_lr) * factor


def _reference(step: list[int], **settings: Any) -> list[float]:
    return [_rate(one, **settings) for one in step]


def _call(answer: Any, inputs: Inputs) -> list[Any]:
    """The rates of all steps, asked from the last to the first: an answer that counts its calls is found so."""
    rates = [answer(**{**inputs, "step": step}) for step in reversed(inputs["step"])]
    return rates[::-1]


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # an optimiser multiplies float32 weights by it: float32 is precise enough
    return tolerance(torch.float32, magnitude=case["max_lr"])


def _wrong(**changes: Any) -> Any:
    def answer(step: int, warmup_steps: int, total_steps: int, max_lr: float, min_lr: float) -> float:
        return _rate(step, warmup_steps, total_steps, max_lr, min_lr, **changes)

    return answer


def _no_floor(step: int, warmup_steps: int, total_steps: int, max_lr: float, min_lr: float) -> float:
    return min_lr if step >= total_steps else _rate(step, warmup_steps, total_steps, max_lr, 0.0)


def _no_warmup(step: int, warmup_steps: int, total_steps: int, max_lr: float, min_lr: float) -> float:
    return _rate(step, 0, total_steps, max_lr, min_lr)


def _filled(value: Any) -> Any:
    return lambda step, warmup_steps, total_steps, max_lr, min_lr: step if value is None else value


def _fresh(rng: random.Random) -> Case:
    max_lr, warmup = rng.uniform(1e-4, 1e-2), rng.randint(2, 12)
    return Case(
        "a fresh schedule",
        warmup_steps=warmup,
        total_steps=warmup + rng.randint(90, 300),
        max_lr=max_lr,
        min_lr=max_lr * rng.uniform(0.02, 0.3),
    )


EXERCISE = Exercise(
    id="01.lr_schedule",
    title="Learning rate: linear warm-up, cosine decay, floor",
    parameters=("step", "warmup_steps", "total_steps", "max_lr", "min_lr"),
    kind="host",
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    call=_call,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "input": _filled(None)},
    cases=(
        Case(
            "a usual schedule, and a few steps past its end", warmup_steps=10, total_steps=50, max_lr=6e-4, min_lr=6e-5
        ),
        Case("no warm-up: nothing may be divided by zero", warmup_steps=0, total_steps=20, max_lr=1e-3, min_lr=1e-4),
        Case("the example of the docstring", warmup_steps=4, total_steps=8, max_lr=1.0, min_lr=0.2),
        Case("one step of warm-up", warmup_steps=1, total_steps=9, max_lr=3e-4, min_lr=3e-5),
        Case("warm-up to the very end: no cosine at all", warmup_steps=7, total_steps=7, max_lr=1e-3, min_lr=2e-4),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "starts_at_zero",
            _wrong(first=0),
            "Step 0 has learning rate 0: the first batch is wasted. Warm-up reaches max_lr at its last step.",
        ),
        Misconception(
            "never_arrives",
            _wrong(longer=1),
            "Warm-up is cut into warmup_steps + 1 parts, so its last step stays below max_lr. It reaches max_lr.",
        ),
        Misconception(
            "cosine_from_step_zero",
            _wrong(start=0),
            "The cosine runs from step 0, so the rate jumps down when warm-up ends. Its progress is 0 at warmup_steps.",
        ),
        Misconception(
            "arrives_one_step_early",
            _wrong(early=1),
            "The cosine is at min_lr one step too early, at total_steps - 1. It would arrive at total_steps.",
        ),
        Misconception(
            "rises_again",
            _wrong(clamp=False),
            "After total_steps the rate rises again: the cosine goes on. It stays at min_lr.",
        ),
        Misconception(
            "linear_decay",
            _wrong(shape="line"),
            "The rate falls on a straight line. A cosine falls slowly at first and at the end.",
        ),
        Misconception(
            "decays_to_zero",
            _no_floor,
            "The cosine falls to 0 and jumps up to min_lr at the end. It must fall to min_lr.",
        ),
        Misconception(
            "no_warmup",
            _no_warmup,
            "There is no warm-up, and the cosine starts at step 0.",
        ),
    ),
    hints=(
        "Three ranges: step < warmup_steps, step >= total_steps, and between them.",
        "In warm-up, step s takes the (s + 1)-th of warmup_steps equal steps up to max_lr. Between, let progress "
        "run from 0 at warmup_steps to 1 at total_steps.",
        "Between: min_lr + (max_lr - min_lr) * 0.5 * (1 + math.cos(math.pi * progress)). Test for the end before you "
        "divide by total_steps - warmup_steps.",
    ),
    explanation=(
        "AdamW divides by the root of a running average of squared gradients, which is unreliable for the first "
        "batches: warm-up keeps those steps small. The cosine changes slowly at both ends: long at a high rate to "
        "travel, then long at a low rate to settle. The floor keeps the last steps from being wasted."
    ),
)
