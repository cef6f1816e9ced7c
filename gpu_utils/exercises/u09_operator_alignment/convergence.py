"""09.convergence: noise or a bug, by a test that is judged by how often it is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u09_operator_alignment import convergence_slips as slips
from gpu_utils.exercises.u09_operator_alignment.loss_curves import TAIL, drawn_curves
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

ALARMS, POWER, SHIFT = 0.05, 0.75, 5.0
"""False alarms that are allowed, shifts that must be found, and their size in standard errors."""

SETS = {"honest": 0.0, "higher": SHIFT, "lower": -SHIFT, "much higher": 12.0, "diverged": 0.0}
FEW = 40


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    noise = {name: case[name] for name in ("size", "rho", "white", "between")}
    made: Inputs = {"tail": TAIL}
    for name, shift in SETS.items():
        draws = case["draws"] if name == "honest" else FEW
        reference, port = drawn_curves(draws, **noise, shift=shift, generator=generator)
        if name == "diverged":
            port[:, 2, -5:] = torch.tensor(float("nan"))
        made[name] = [reference, port]
    return made


def reference(tail: int, **sets: Any) -> dict[str, list[str]]:
    return {name: slips.of_many(slips.right, pairs, tail) for name, pairs in sets.items()}


def _call(wanted: Callable[..., Any], inputs: Inputs) -> dict[str, list[Any]]:
    """The answer's verdicts on all sets of curves, each in a copy of its own."""
    return {
        name: [wanted(one.clone(), other.clone(), inputs["tail"]) for one, other in zip(*inputs[name], strict=True)]
        for name in inputs
        if name != "tail"
    }


def allowed(draws: int) -> float:
    """The share of false alarms that a right test passes in all but one of ten thousand checks: 5% and 3.8 of its
    standard deviations."""
    return ALARMS + 3.8 * (ALARMS * (1 - ALARMS) / draws) ** 0.5


def _judge(case: Case, inputs: Inputs, value: dict[str, list[Any]]) -> Difference | None:
    for said in (said for verdicts in value.values() for said in verdicts):
        if said not in ("noise", "bug"):
            found = repr(said) if isinstance(said, str | int | float | None) else f"a {type(said).__name__}"
            return Difference("form", f"the result is {found}, expected 'noise' or 'bug'")
    shares = {name: sum(said == "bug" for said in verdicts) / len(verdicts) for name, verdicts in value.items()}
    wrong, kinds = [], []
    if shares["honest"] > (limit := allowed(case["draws"])):
        wrong.append(
            f"{shares['honest']:.1%} of {case['draws']} honest ports were called a bug; 5% may be, by chance up to "
            f"{limit:.1%}"
        )
        kinds.append("many alarms" if shares["honest"] > 0.25 else "alarms")
    for name in ("higher", "lower", "much higher"):
        if shares[name] < POWER:
            wrong.append(f"{shares[name]:.0%} of {FEW} bugs that make the loss {name} were found, expected 75% or more")
            kinds.append(f"{name} missed")
    if shares["diverged"] < 1:
        wrong.append("a run became NaN in its last steps, and that was called noise")
        kinds.append("nan")
    return Difference(", ".join(kinds), "; ".join(wrong)) if wrong else None


def _fresh(rng: random.Random) -> Case:
    return Case(
        "noise of a size and a length that nobody chose",
        draws=200,
        size=10 ** rng.uniform(-3.5, -1),
        rho=rng.uniform(0.5, 0.95),
        white=rng.uniform(0.3, 1.5),
        between=rng.uniform(3, 12),
    )


EXERCISE = Exercise(
    id="09.convergence",
    title="Two sets of loss curves: noise or a bug?",
    parameters=("reference", "port", "tail"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=_call,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Case(
            "seeds differ by ten times what two right runs of one seed do",
            draws=200,
            size=3e-3,
            rho=0.9,
            white=0.5,
            between=10.0,
        ),
        Case("loud steps: one step says little", draws=200, size=1e-2, rho=0.7, white=2.0, between=1.0),
        Case("noise that stays for many steps", draws=200, size=2e-2, rho=0.95, white=0.2, between=1.0),
        Case("small noise: the shift is a thousandth of a nat", draws=200, size=5e-4, rho=0.8, white=1.0, between=4.0),
        Case("large noise, and nothing that a seed does", draws=200, size=5e-2, rho=0.5, white=1.0, between=0.0),
        Case("many honest pairs: 5% are told from 10%", draws=1500, size=1e-2, rho=0.8, white=0.5, between=3.0),
    ),
    fresh=_fresh,
    trivial={
        "noise": slips.always("noise"),
        "bug": slips.always("bug"),
        "zero": lambda reference, port, tail: 0.0,
        "nan": lambda reference, port, tail: float("nan"),
    },
    misconceptions=(
        Misconception(
            "one_seed",
            slips.one_seed,
            "One pair of runs was looked at. How far two right runs lie apart with another seed cannot be seen in it; "
            "steps of one run are no substitute.",
        ),
        Misconception(
            "unpaired",
            slips.unpaired,
            "The two sets were compared as if their seeds had nothing to do with each other. What a seed does to a "
            "curve is in both runs of a pair: take the difference of each pair first.",
        ),
        Misconception(
            "last_step",
            slips.last_step,
            "Only the last step was compared. A single step is loud: take the mean over the last `tail` steps.",
        ),
        Misconception(
            "whole_curve",
            slips.whole_curve,
            "The whole curve was averaged. Its beginning holds the largest noise and, here, nothing of the bug: take "
            "the last `tail` steps.",
        ),
        Misconception(
            "any_step",
            slips.any_step,
            "Each step was tested, and one alarm was enough. Twenty tests at 5% alarm far more often than one: make "
            "one number of each pair, and test once.",
        ),
        Misconception(
            "steps_as_samples",
            slips.steps_as_samples,
            "Every step of every seed was taken as a sample of its own. What separates two runs stays for many steps, "
            "so these hold little more than one number for each seed.",
        ),
        Misconception(
            "deviation_for_error",
            slips.deviation,
            "The mean was compared with the standard deviation of one pair. The mean of n pairs has the standard error "
            "s / sqrt(n).",
        ),
        Misconception(
            "one_sided",
            slips.one_sided,
            "Only a loss that is higher was called a bug. A lower one is as suspicious: a mask that lets tokens see "
            "the next one lowers it.",
        ),
        Misconception(
            "normal_quantile",
            slips.normal_quantile,
            "1.96 holds for a standard deviation that is known. Six differences tell it badly: Student's t for 5 "
            "degrees of freedom is 2.571.",
        ),
        Misconception(
            "fixed_gap",
            slips.fixed_gap,
            "A gap of 0.01 nats was the limit for all. What is large follows from the spread of the "
            "pairs' differences.",
        ),
        Misconception(
            "nan_is_noise",
            slips.nan_is_noise,
            "A comparison with NaN is False. Ask whether the mean is within its bound, not whether it is beyond.",
        ),
    ),
    hints=(
        "The two runs of a pair share seed and batches. Which number for each pair holds what may be the bug, and "
        "little else?",
        "d = the mean of port - reference over the last `tail` steps, one number for each seed. Six numbers that are "
        "independent: is their mean further from 0 than their own spread explains?",
        't = d.mean() / (d.std() / sqrt(6)), with n - 1 in the standard deviation; "noise" if abs(t) <= 2.571, the '
        'two-sided 5% point of Student\'s t for 5 degrees of freedom, else "bug".',
    ),
    explanation=(
        "A difference of pairs takes out what the seed and the batches do, the mean over the tail takes out the noise "
        "of single steps, and one number for each seed keeps the samples independent. Student's t says how far a mean "
        "of six may be from 0; flipping the signs of the six in all 64 ways says nearly the same without a normal "
        "distribution. One of twenty honest ports is accused: who tests ten quantities has to share these 5%."
    ),
)
