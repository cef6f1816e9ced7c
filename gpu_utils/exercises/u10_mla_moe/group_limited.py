"""10.group_limited: the best experts within the best groups of experts."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u10_mla_moe import group_limited_slips as slips
from gpu_utils.exercises.u10_mla_moe.choices import clear, sorted_rows
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _steps(scores: Tensor, bias: Tensor, groups: int, keep: int) -> tuple[Tensor, Tensor]:
    """In float64: values of the groups (T, groups), and of the experts (T, E), -inf outside the groups kept."""
    choice = scores.double() + bias.double()
    parts = choice.view(len(scores), groups, -1)
    values = parts.sort(dim=2, descending=True).values[..., :2].sum(2)
    kept = values.topk(keep, dim=1).indices
    mask = torch.zeros_like(values, dtype=torch.bool).scatter_(1, kept, True)
    return values, choice.masked_fill(~mask.repeat_interleave(parts.shape[2], 1), -torch.inf)


def group_limited_reference(scores: Tensor, bias: Tensor, groups: int, keep: int, k: int) -> Tensor:
    _, allowed = _steps(scores, bias, groups, keep)
    return allowed.topk(k, dim=1).indices.sort(dim=1).values


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    T, E, groups, keep, k = (case[name] for name in ("T", "E", "groups", "keep", "k"))
    scores = torch.sigmoid(2 * torch.randn((6 * T + 50, E), generator=generator))
    bias = 0.8 * torch.rand(E, generator=generator) - case.get("lower", 0.4)
    values, allowed = _steps(scores, bias, groups, keep)
    scores = scores[clear(values, keep) & clear(allowed, k)][:T]
    assert len(scores) == T
    return {"scores": scores, "bias": bias, "groups": groups, "keep": keep, "k": k}


def _fresh(rng: random.Random) -> Case:
    groups, size = rng.randrange(3, 8), rng.randrange(3, 9)
    keep = rng.randrange(2, groups)
    k = rng.randrange(2, keep * size)
    return Case("sizes nobody chose", T=40, E=groups * size, groups=groups, keep=keep, k=k, lower=rng.uniform(0.2, 1.2))


EXERCISE = Exercise(
    id="10.group_limited",
    title="The best experts of the best groups",
    parameters=("scores", "bias", "groups", "keep", "k"),
    kind="torch",
    inputs=_inputs,
    reference=group_limited_reference,
    call=sorted_rows,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring: the best expert of all is alone in its group",
            scores=lambda: torch.tensor([[0.9, 0.1, 0.1, 0.6, 0.5, 0.3]]),
            bias=lambda: torch.zeros(6),
            groups=2,
            keep=1,
            k=2,
        ),
        Case("some groups, some of them kept", T=40, E=16, groups=4, keep=2, k=4),
        Case("all of score + bias is far below zero", T=40, E=18, groups=3, keep=2, k=5, lower=120.0),
        Case("groups of two experts", T=40, E=12, groups=6, keep=3, k=5),
        Case("one group is kept, and nearly all of it", T=40, E=30, groups=5, keep=1, k=5),
        Case("DeepSeek-V3: 8 groups of 32, 4 kept, 8 chosen", T=30, E=256, groups=8, keep=4, k=8),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "no_groups",
            slips.no_groups,
            "These are the k best of all experts, wherever they are. Groups come first: only the best `keep` of them "
            "may be chosen from.",
        ),
        Misconception(
            "value_of_the_best",
            slips.answer(value=slips.of_best),
            "A group's value is its single best expert here. It is the sum of its two best.",
        ),
        Misconception(
            "value_of_all",
            slips.answer(value=slips.of_all),
            "A group's value is the sum, or the mean, of all its experts here. The two best count.",
        ),
        Misconception(
            "value_of_the_second",
            slips.answer(value=slips.of_second),
            "A group's value is its second best expert here. topk(2) gives two values: add them.",
        ),
        Misconception(
            "value_of_the_worst",
            slips.answer(value=slips.of_two_worst),
            "A group's value is the sum of its two smallest here; the two largest count. (sort begins with the "
            "smallest unless it is told otherwise.)",
        ),
        Misconception(
            "groups_without_bias",
            slips.answer(groups_by_scores=True),
            "The groups were valued by the scores without bias. Groups and experts are both chosen by score + bias.",
        ),
        Misconception(
            "experts_without_bias",
            slips.answer(chosen_by_scores=True),
            "The groups are right; within them the experts were chosen by the scores without bias.",
        ),
        Misconception(
            "masked_with_zero",
            slips.answer(forbidden=0.0),
            "Experts of other groups got the value 0, by a product with a mask or by masked_fill. Where score + bias "
            "is negative, 0 is the largest of all, and they are chosen. What must not be chosen is -inf.",
        ),
        Misconception(
            "masked_with_minus_one",
            slips.answer(forbidden=-1.0),
            "Experts of other groups got a fixed value, such as -1 or -10. A bias has no lower end, and score + bias "
            "may lie below it: what must not be chosen is -inf.",
        ),
        Misconception(
            "every_nth_expert",
            slips.answer(strided=True),
            "Expert e was put into group e % groups. Groups are stretches of neighbours: e // (E // groups).",
        ),
        Misconception(
            "one_group_more",
            slips.answer(spared=1),
            "One group more than `keep` is chosen from. Is it a comparison, >= or >?",
        ),
        Misconception(
            "one_group_less",
            slips.answer(spared=-1),
            "One group less than `keep` is chosen from. Is it a comparison, >= or >?",
        ),
        Misconception(
            "numbers_within_the_groups_kept",
            slips.answer(local=True),
            "The experts count from 0 within what was kept. Their numbers are those among all E: add where their group "
            "begins, or mask the others and leave all in place.",
        ),
        Misconception(
            "as_many_of_each_group",
            slips.answer(as_many=True),
            "Each kept group gives the same number of experts here. The k best of all kept groups together are asked "
            "for: one may give many and another none.",
        ),
        Misconception(
            "groups_by_how_many_are_best",
            slips.best_are_cut,
            "Groups were kept by how many of the k best experts they hold. A group's value is the sum of its two best, "
            "whoever else is good.",
        ),
    ),
    hints=(
        "Give the experts two axes: (T, groups, E // groups). What must become of the last one before groups compete?",
        "(scores + bias).view(T, groups, -1), topk(2) along the last axis and a sum: values of groups. topk(keep) of "
        "them: numbers of groups. A mask of experts from these, -inf for the others, topk(k).",
        "kept = values.topk(keep, dim=1).indices; allowed = torch.zeros(T, groups, dtype=torch.bool).scatter_(1, kept, "
        "True); choice.masked_fill(~allowed.repeat_interleave(E // groups, dim=1), -torch.inf).topk(k, dim=1).indices. "
        "Mind the device.",
    ),
    explanation=(
        "A group is what one node holds, and a token is sent at most once to each node that has one of its experts: "
        "the rule bounds what it sends, whatever the gate likes. Two best, because DeepSeek-V3 wants k / keep = 8 / 4 "
        "experts of a node. Zero as a mask works as long as score + bias is positive, which is nearly always; several "
        "well-known programs had it so until somebody's bias was negative enough."
    ),
)
