"""10.gate: which experts a token goes to, and with which weights: a sigmoid gate with a bias for the choice."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT, Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.u10_mla_moe import gate_slips as slips
from gpu_utils.exercises.u10_mla_moe.choices import clear, sorted_pairs
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _scores(x: Tensor, weight: Tensor) -> Tensor:
    return torch.sigmoid(x.double() @ weight.double().T)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    T, D, E = case["T"], case["D"], case["E"]
    dtype = case.get("dtype", torch.float32)
    many = 3 * T + 50  # enough of them have a clear choice
    weight = signed((E, D), generator) / math.sqrt(D)
    x = signed((many, 2 * D), generator)[:, ::2]
    bias = 0.5 * torch.rand(E, generator=generator) - 0.3 + case.get("lifted", 0.0)
    if case.get("tiny"):  # sigmoids near 1e-7, beside a bias near 12
        x[:, 0] = -16.0
        weight[:, 0] = 1.0
        bias = 12 + torch.randperm(E, generator=generator) / 8
    x, weight = x.to(dtype), weight.to(dtype)
    kept = x[clear(_scores(x, weight) + bias, case["k"])][:T]
    assert len(kept) == T
    apart = torch.empty(T, 2 * D, dtype=dtype)  # a part of wider rows, as x often is
    apart[:, ::2] = kept
    return {"x": apart[:, ::2], "weight": weight, "bias": bias, "k": case["k"], "scale": case["scale"]}


def gate_reference(x: Tensor, weight: Tensor, bias: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor]:
    scores = _scores(x, weight)
    experts = (scores + bias).topk(k).indices.sort(dim=1).values
    weights = scores.gather(1, experts)
    return weights / weights.sum(1, keepdim=True) * scale, experts


def _tolerance(case: Case, inputs: Inputs) -> dict[int, Tolerance]:
    # A logit is off by its roundings, and a weight by that share of itself at most, twice: in the score and in the sum.
    # No weight is above scale, and no product of a logit above 2.25 / sqrt(D) or, in the case of tiny scores, 16.
    x, weight = inputs["x"], inputs["weight"]
    largest = float(x.abs().max() * weight.abs().max())
    return {0: tolerance(torch.float32, k=x.shape[1], magnitude=2 * largest * inputs["scale"]), 1: EXACT}


def _fresh(rng: random.Random) -> Case:
    E = rng.randrange(9, 40)
    return Case(
        "sizes nobody chose",
        T=rng.randrange(20, 60),
        D=rng.randrange(17, 90),
        E=E,
        k=rng.randrange(2, 7),
        scale=round(rng.uniform(1.2, 3.0), 2),
    )


EXERCISE = Exercise(
    id="10.gate",
    title="A sigmoid gate with a bias for the choice",
    parameters=("x", "weight", "bias", "k", "scale"),
    kind="torch",
    inputs=_inputs,
    reference=gate_reference,
    call=sorted_pairs,
    parts=("weights", "experts"),
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    cases=(
        Example(
            "the example of the docstring",
            x=lambda: torch.tensor([[1.0]]),
            weight=lambda: torch.tensor([[0.0], [0.0], [99.0], [-99.0]]),
            bias=lambda: torch.tensor([0.0, 0.2, 0.0, 0.0]),
            k=2,
            scale=3.0,
        ),
        Case("the bias decides about some of the experts", T=37, D=24, E=10, k=3, scale=2.5),
        Case(
            "bfloat16 comes in; the bias, sums and sigmoids are float32",
            **{"T": 33, "D": 64, "E": 16, "k": 4, "scale": 1.5, "dtype": torch.bfloat16, "lifted": 3.0},
        ),
        Case("one expert for each token: its weight is the scale", T=19, D=40, E=12, k=1, scale=2.5),
        Case("all experts are chosen", T=11, D=31, E=6, k=6, scale=1.0),
        Case("scores near 1e-7 beside a bias near 12", T=13, D=16, E=20, k=4, scale=2.5, tiny=True),
        Case("DeepSeek-V3's number of experts", T=21, D=128, E=256, k=8, scale=2.5),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "weights_with_bias",
            slips.answer(weighs=slips.with_bias),
            "The experts are right; the bias is in the weights as well. It only decides who is chosen: the weights "
            "come from the scores as they were.",
        ),
        Misconception(
            "score_by_subtraction",
            slips.answer(weighs=slips.less_bias),
            "The scores of the chosen were won back as (score + bias) - bias. Where the score is tiny beside the bias, "
            "float32 has lost it by then. Keep the scores, and take the chosen ones from there.",
        ),
        Misconception(
            "chosen_without_bias",
            slips.answer(choice=slips.scores_alone),
            "The bias changes nothing here. It is added to the scores before the k largest are chosen.",
        ),
        Misconception(
            "bias_before_sigmoid",
            slips.bias_before_sigmoid,
            "The bias is added to the logits, before the sigmoid. It belongs behind it: score + bias, for the choice "
            "alone.",
        ),
        Misconception(
            "softmax_gate",
            slips.answer(scores=slips.softmax),
            "Scores are a softmax over the experts. Here each expert has a sigmoid of its own, which does not ask what "
            "the others have.",
        ),
        Misconception(
            "softmax_of_the_chosen",
            slips.softmax_of_chosen,
            "The chosen scores went through a softmax. To normalise is to divide by their sum.",
        ),
        Misconception(
            "not_normalised",
            slips.answer(ends=slips.not_normalised),
            "The weights of a row do not add up to scale: divide them by the sum over the chosen first.",
        ),
        Misconception(
            "normalised_over_all",
            slips.answer(ends=slips.over_all),
            "The scores were divided by the sum over all experts. Those that are not chosen do not count: the sum is "
            "over the k chosen.",
        ),
        Misconception(
            "scale_is_lost",
            slips.answer(ends=slips.without_scale),
            "The weights of a row add up to 1, and not to scale: it is missing, or came before the division and was "
            "divided away.",
        ),
        Misconception(
            "divided_by_scale",
            slips.answer(ends=slips.scaled_down),
            "The weights of a row add up to 1 / scale. Multiply by it.",
        ),
        Misconception(
            "something_added_to_the_sum",
            slips.answer(ends=slips.with_epsilon),
            "A small number was added to the sum before dividing. Scores may be near 1e-7 themselves, so that it "
            "counts; a sum of sigmoids is not 0 here.",
        ),
        Misconception(
            "in_bfloat16",
            slips.answer(wide=False),
            "With bfloat16 tokens the logits are bfloat16: two or three digits, so that neighbours change places. "
            "Convert x and weight to float32 before the product.",
        ),
        Misconception(
            "weights_in_the_dtype_of_x",
            slips.in_dtype_of_x,
            "The weights are in the dtype of x. They stay float32 until the outputs of the experts are added.",
        ),
        Misconception(
            "the_smallest",
            slips.answer(largest=False),
            "The k smallest were chosen. topk takes the largest unless it is told otherwise.",
        ),
        Misconception(
            "pairs_taken_apart",
            slips.answer(ordered=True),
            "The right experts and the right weights, not side by side: the experts of a row were sorted, and their "
            "weights were not.",
        ),
    ),
    hints=(
        "Two things come out of a row of scores: who is chosen, and how loud. Which of the two knows the bias?",
        "Sigmoid of a float32 product; topk of score + bias gives numbers of experts; gather takes their scores out of "
        "the scores without bias; then a sum over the row, a division and a factor.",
        "scores = torch.sigmoid(x.float() @ weight.float().T); experts = (scores + bias).topk(k, dim=1).indices; "
        "weights = scores.gather(1, experts); weights / weights.sum(1, keepdim=True) * scale.",
    ),
    explanation=(
        "The bias is there to move tokens from one expert to another, and for nothing else. If it were in the weights, "
        "an expert that is asked for more tokens would also speak louder, and the model would have to learn around "
        "it. A sigmoid gives each expert a score that does not depend on the others; the division by the sum over the "
        "chosen makes k scores into weights of a mean, and scale sets how much the routed experts add beside the "
        "shared one. All of it is float32, because neighbours among 256 scores are closer than bfloat16 can tell."
    ),
)
