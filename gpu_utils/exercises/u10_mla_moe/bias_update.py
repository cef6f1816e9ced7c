"""10.bias_update: balance without an auxiliary loss: count the load of a step, then nudge each expert's bias."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT, Tolerance, tolerance
from gpu_utils.exercises.u10_mla_moe import bias_update_slips as slips
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

CLEAR = 2e-6
"""Between the last chosen and the first not, on the way of the right answer: more than float32 loses of a bias."""


def with_a_router(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """A `call`: the answer gets a router of the check, softmax scores and the k largest of score + bias."""
    weight, k = inputs["weight"], inputs["k"]

    def route(x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """(weights float32 (T, k), experts int64 (T, k)) of x (T, D), chosen with bias (E,)."""
        scores = torch.softmax(x @ weight.T, dim=1)
        experts = torch.topk(scores + bias, k, dim=1).indices
        return scores.gather(1, experts), experts

    return answer(route=route, bias=inputs["bias"], steps=inputs["steps"], speed=inputs["speed"])


def _simulated(
    weight: Tensor, k: int, bias: Tensor, steps: list[list[Tensor]], speed: float
) -> tuple[Tensor, Tensor, float]:
    """The bias, the loads, and the smallest distance between what was just chosen and what was just not; in float64."""
    bias, history, apart = bias.double(), [], torch.inf
    for step in steps:
        load = torch.zeros(len(bias), dtype=torch.int64)
        for x in step:
            choice = torch.softmax(x.double() @ weight.double().T, dim=1) + bias
            best = choice.topk(k + 1, dim=1)
            apart = min(apart, float((best.values[:, k - 1] - best.values[:, k]).min()))
            load += torch.bincount(best.indices[:, :k].flatten(), minlength=len(bias))
        history.append(load)
        # load against mean in whole numbers: E loads against their sum
        bias = bias + speed * torch.sign(load.sum() - len(bias) * load)
    return bias, torch.stack(history), apart


def bias_update_reference(
    weight: Tensor, k: int, bias: Tensor, steps: list[list[Tensor]], speed: float
) -> tuple[Tensor, Tensor]:
    found, history, _ = _simulated(weight, k, bias, steps, speed)
    return found, history


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    D, E, k = case["D"], case["E"], case["k"]
    while True:
        weight = torch.randn((E, D), generator=generator)
        middle = torch.randn(D, generator=generator)  # what tokens have in common favours some experts
        if case.get("idle"):
            weight[-1] = -3 * middle  # nobody's favourite
        steps = [
            [middle + torch.randn((tokens, D), generator=generator) for tokens in sizes] for sizes in case["tokens"]
        ]
        bias = 0.05 * torch.randn(E, generator=generator)
        if _simulated(weight, k, bias, steps, case["speed"])[2] > CLEAR:
            return {"weight": weight, "k": k, "bias": bias, "steps": steps, "speed": case["speed"]}


def _tolerance(case: Case, inputs: Inputs) -> dict[int, Tolerance]:
    largest = float(inputs["bias"].abs().max()) + len(inputs["steps"]) * inputs["speed"]
    return {0: tolerance(torch.float32, k=len(inputs["steps"]) + 1, magnitude=largest), 1: EXACT}


def _fresh(rng: random.Random) -> Case:
    E = rng.randrange(5, 14)
    sizes = [[rng.randrange(3, 25) for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(3, 7))]
    speed = round(rng.uniform(0.01, 0.05), 3)
    return Case("steps nobody chose", D=rng.randrange(4, 12), E=E, k=rng.randrange(1, 4), tokens=sizes, speed=speed)


EXERCISE = Exercise(
    id="10.bias_update",
    title="Balance without an auxiliary loss",
    parameters=("route", "bias", "steps", "speed"),
    kind="torch",
    inputs=_inputs,
    reference=bias_update_reference,
    call=with_a_router,
    parts=("bias", "loads"),
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    cases=(
        Case(
            "one batch for each step; the loads come out even at times",
            **{"D": 5, "E": 4, "k": 2, "tokens": [[6], [8], [10], [6], [12]], "speed": 0.05},
        ),
        Case(
            "two and three batches for each step",
            **{"D": 6, "E": 6, "k": 2, "tokens": [[20, 11], [9, 14, 7], [16, 16], [25, 4]], "speed": 0.04},
        ),
        Case(
            "the last expert has no token for a long time",
            **{"D": 8, "E": 7, "k": 1, "tokens": [[24], [15, 10], [33], [18, 9]], "speed": 0.02, "idle": True},
        ),
        Case("the speed of DeepSeek-V3", D=16, E=12, k=3, tokens=[[40, 31]] * 3, speed=0.001),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda route, bias, steps, speed: (0 * bias, torch.zeros((len(steps), len(bias)), dtype=torch.int64)),
        "ones": lambda route, bias, steps, speed: (
            0 * bias + 1,
            torch.ones((len(steps), len(bias)), dtype=torch.int64),
        ),
        "nan": lambda route, bias, steps, speed: (
            bias * torch.nan,
            torch.ones((len(steps), len(bias)), dtype=torch.int64),
        ),
        "the bias as it was, the right loads": lambda route, bias, steps, speed: (
            bias,
            torch.stack(
                [
                    sum(torch.bincount(route(x, bias)[1].flatten(), minlength=len(bias)) for x in step)  # type: ignore
                    for step in steps
                ]
            ),
        ),
    },
    misconceptions=(
        Misconception(
            "wrong_sign",
            slips.answer(move=slips.away),
            "An expert with a high load gets more bias, and so a higher load still. It is to be chosen less: its bias "
            "goes down.",
        ),
        Misconception(
            "by_how_much_it_is_off",
            slips.answer(move=slips.by_distance),
            "A bias moves further the further its load is from the mean. It moves by speed, up or down: the sign "
            "alone counts.",
        ),
        Misconception(
            "by_the_share_it_is_off",
            slips.answer(move=slips.by_share),
            "A bias moves by speed times its load's distance from the mean, over the mean. It moves by speed, up or "
            "down: the sign alone counts.",
        ),
        Misconception(
            "equal_goes_down",
            slips.answer(move=slips.no_rest),
            "An expert whose load is exactly the mean lost some bias. It stays where it is: neither over nor under.",
        ),
        Misconception(
            "equal_goes_up",
            slips.answer(move=slips.no_rest_upwards),
            "An expert whose load is exactly the mean got more bias. It stays where it is: neither over nor under.",
        ),
        Misconception(
            "only_downwards",
            slips.answer(move=slips.only_down),
            "Biases only fall here. An expert with less than the mean is to be chosen more: its bias goes up.",
        ),
        Misconception(
            "mean_rounded_down",
            slips.answer(move=slips.whole_mean),
            "The mean load was rounded to a whole number (//). A load between the two then stays, or moves the wrong "
            "way.",
        ),
        Misconception(
            "median",
            slips.answer(move=slips.of_median),
            "The loads are compared with their median. The mean is what each would have if all had the same.",
        ),
        Misconception(
            "mean_of_busy_experts",
            slips.answer(move=slips.of_busy),
            "Experts without a token were left out of the mean. They count too, with a load of 0.",
        ),
        Misconception(
            "weights_for_counts",
            slips.answer(weighted=True),
            "The loads are right, and the biases moved by sums of weights. What takes time is a token, however much "
            "weight its expert has: count.",
        ),
        Misconception(
            "within_the_step",
            slips.answer(each_batch=True),
            "The bias moved after each batch. All batches of a step are routed with the same bias; it moves once, "
            "behind the last of them, by the load of all.",
        ),
        Misconception(
            "last_batch_alone",
            slips.answer(last_batch=True),
            "A step's load is that of its last batch here. Add those of all its batches.",
        ),
        Misconception(
            "first_choice_alone",
            slips.answer(first_choice=True),
            "Only the first of the k experts of a token was counted. Each of them computes it.",
        ),
        Misconception(
            "routes_with_the_first_bias",
            slips.answer(old_bias=True),
            "All steps were routed with the bias of the beginning. The next step is routed with the bias that this "
            "one has left.",
        ),
        Misconception(
            "loads_of_all_steps",
            slips.answer(summed=True),
            "The bias moves by the loads of all steps so far. Old loads came from another bias: each step counts anew.",
        ),
        Misconception(
            "last_step_moves_nothing",
            slips.answer(skips_last=True),
            "The last step's load did not move the bias any more. It moves behind each step, the last one too.",
        ),
        Misconception(
            "loads_as_shares",
            slips.answer(shares=True),
            "The loads are shares of the whole. They are asked for as counts: int64.",
        ),
        Misconception(
            "no_load_no_place",
            slips.without_minlength,
            "Where the last experts have no token, bincount gives fewer than E counts. minlength says how many.",
        ),
        Misconception(
            "bias_centred",
            slips.answer(centred=True),
            "The mean was taken off the bias. It changes no choice, but it is not asked for: + speed, - speed, or "
            "nothing.",
        ),
        Misconception(
            "loads_of_the_first_step",
            slips.answer(of_first=True),
            "One row of loads came back. One row for each step is asked for: (steps, E).",
        ),
    ),
    hints=(
        "Play three steps by hand, with 4 experts: route, count, move. What must not have changed while a step is "
        "counted? Who stays where it is?",
        "Two loops: steps, and the batches of a step. A count of E numbers (torch.bincount with minlength), begun anew "
        "for each step. Behind the inner loop: compare with the mean, as a float, and move.",
        "load = sum of torch.bincount(route(x, bias)[1].flatten(), minlength=len(bias)) over the step's batches; then "
        "bias = bias + speed * torch.sign(load.float().mean() - load), and keep the load. Return (bias, "
        "torch.stack(loads)).",
    ),
    explanation=(
        "It is a controller: measure, compare with the mean, nudge. Because the bias has no gradient, the loss of the "
        "model never hears of balance. The sign makes the step independent of how many tokens a batch has, and of how "
        "bad it is: speed alone says how fast the router may change, 0.001 for nearly all of DeepSeek-V3's training. "
        "The load is that of the whole step, over all its batches (and in unit 11 over all ranks: one all-reduce of E "
        "numbers), and the bias rests while the step runs, so that the order of its batches does not matter."
    ),
)
