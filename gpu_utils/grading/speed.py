"""Tiers: a right answer against a named baseline on a real GPU, timed in turn in one run.

What is timed is what is judged: each pair of runs gets inputs of its own, and the results of both are compared before
the next. The clock is the grader's, the baseline is timed by the same one, and a time that the chip's memory does not
allow earns nothing. It runs in the learner's own process, where an answer can change anything: it is for their own
eyes, and no grade.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gpu_utils.analytic.roofline import Point, share_of_roofline
from gpu_utils.chips import Chip, probe
from gpu_utils.grading.compare import Tolerances, of_part
from gpu_utils.grading.exercise import Exercise, Inputs, Speed
from gpu_utils.grading.fp8 import case_on
from gpu_utils.grading.progress import TIERS
from gpu_utils.timing import Ratio, bench

MOST_OF_ROOFLINE = 1.05
"""A share of the roofline above it is a time that cannot be: work was left out, or moved out of the clock's sight."""


@dataclass(frozen=True)
class Race:
    """What came of it.

    tier        "bronze", "silver", "gold"; "" below bronze, or where `problem` says why nothing is earned
    ratio       time of the baseline over that of the answer, median of pairs; low, high: its quartiles
    fraction    the least time that the chip's memory and arithmetic allow, over the answer's; None for an unknown chip
    next_tier   the next better tier and its ratio, in words; "" after gold
    where       device and versions
    """

    tier: str
    ratio: float
    low: float
    high: float
    fraction: float | None
    baseline: str
    case: str
    next_tier: str
    where: str
    problem: str = ""

    @property
    def rank(self) -> int:
        """0 for none, 1 for bronze, 2 for silver, 3 for gold."""
        return 1 + TIERS.index(self.tier) if self.tier else 0

    def __str__(self) -> str:
        if self.problem:
            return f"Speed on {self.case}: nothing earned, {self.problem} (on {self.where})"
        share = "" if self.fraction is None else f", {self.fraction:.0%} of the roofline"
        then = f"; {self.next_tier}" if self.next_tier else ""
        return (
            f"Speed on {self.case}: {self.tier or 'no tier yet'}, {self.ratio:.2f} x {self.baseline} (quartiles "
            f"{self.low:.2f} to {self.high:.2f}){share}{then} (on {self.where})"
        )


def race(
    exercise: Exercise,
    answer: Callable[..., Any],
    seed: int,
    device: str = "cuda",
    chip: Chip | None = None,
    timer: Callable[..., Any] = bench,
) -> Race:
    """Time a right answer against the baseline of `exercise.speed`.

    seed    draws the inputs
    device  where; chip: that of the roofline, by default what this machine has
    timer   `bench`, or what stands for it in a test

    What the answer raises is raised.
    """
    speed = exercise.speed
    assert speed is not None
    pairs = _Pairs(exercise, speed, answer, seed, device)
    result: Ratio = timer(pairs.answer, against=pairs.baseline, device=device, before=pairs.renew)
    pairs.look()
    flops = speed.flops(speed.case) if speed.flops else 0.0
    point = Point("answer", flops, speed.bytes(speed.case), result.fn.median)
    fraction = share_of_roofline(chip or probe().chip, speed.dtype, point)
    problem = pairs.problem
    if fraction is not None and fraction > MOST_OF_ROOFLINE:
        problem = problem or f"a time of {fraction:.0%} of the roofline is less than its bytes need"
    reached = 0 if problem else sum(result.low >= wanted for wanted in speed.tiers)
    better = [f"{name} is {wanted:g} x" for name, wanted in zip(TIERS, speed.tiers, strict=True)][reached:]
    return Race(
        tier=TIERS[reached - 1] if reached else "",
        ratio=result.ratio,
        low=result.low,
        high=result.high,
        fraction=fraction,
        baseline=speed.baseline,
        case=speed.case.label,
        next_tier=better[0] if better else "",
        where=result.fn.where,
        problem=problem,
    )


class _Pairs:
    """The two callables of a race, which share inputs until `renew` makes new ones. Results are kept until then."""

    def __init__(self, exercise: Exercise, speed: Speed, answer: Callable[..., Any], seed: int, device: str) -> None:
        self._exercise, self._speed, self._answer = exercise, speed, answer
        case = case_on(exercise, speed.case, "gpu")
        drawn = exercise.inputs(case, torch.Generator().manual_seed(seed))
        self._tolerance: Tolerances = (speed.tolerance or exercise.tolerance)(case, drawn)
        self._drawn = {name: _moved(value, device) for name, value in drawn.items()}
        self._inputs: Inputs = {}
        self._results: dict[str, Any] = {}
        self._random = random.Random(seed)
        self.problem = ""

    def renew(self) -> None:
        """Look at the last results, and make new inputs: what was drawn, shifted along its first axis."""
        self.look()
        share, factor = self._random.random(), self._random.uniform(0.5, 1.0)
        self._inputs = {name: _shifted(value, share, factor) for name, value in self._drawn.items()}

    def answer(self) -> None:
        self._results["answer"] = self._exercise.call(self._answer, self._inputs)

    def baseline(self) -> None:
        self._results["baseline"] = self._exercise.call(self._speed.against, self._inputs)

    def look(self) -> None:
        """Compare the two results of the same inputs, once."""
        if len(self._results) == 2 and not self.problem:
            expected, got = self._results["baseline"], self._results["answer"]
            if found := _differs(expected, got, self._tolerance):
                self.problem = f"{found} differs from that of {self._speed.baseline} in a timed run"
        self._results = {}


def _moved(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _shifted(value: Any, share: float, factor: float) -> Any:
    """A tensor with the same elements in other places; a single number of floating point is scaled."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim == 0:
        return value * factor if value.is_floating_point() else value
    return value.roll(1 + int(share * len(value)), 0)


def _differs(expected: Any, got: Any, tolerance: Tolerances, where: str = "the result") -> str:
    """What differs; "" for nothing. Both are rounded, so twice the tolerance is theirs. Stays on the device."""
    if isinstance(expected, dict):
        parts: list[Any] = list(expected)
    elif isinstance(expected, (list, tuple)):
        parts = list(range(len(expected)))
    else:
        if type(got) is not torch.Tensor or (got.shape, got.dtype) != (expected.shape, expected.dtype):
            return where
        tol: Any = tolerance
        wide, near = got.float(), expected.float()
        alike = torch.isclose(wide, near, rtol=2 * tol.rtol, atol=2 * tol.atol, equal_nan=True)
        return "" if bool(alike.all()) else where
    if type(got) is not type(expected) or len(got) != len(expected):
        return where
    each = (_differs(expected[key], got[key], of_part(tolerance, key), f"{where}[{key!r}]") for key in parts)
    return next(filter(None, each), "")
