"""12.one_f_one_b: the order of forwards and backwards on each rank, judged by what it does, not by a list of steps."""

from __future__ import annotations

import random
from typing import Any

from gpu_utils.analytic.schedules import Costs, Schedule, arranged
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u12_pipeline_schedules import one_f_one_b_slips as slips
from gpu_utils.exercises.u12_pipeline_schedules.checker import faults
from gpu_utils.exercises.u12_pipeline_schedules.judged_orders import sizes
from gpu_utils.exercises.u12_pipeline_schedules.simulator import alive, simulate
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

COSTS = ((1, 2), (3, 3), (5, 2))
"""Seconds of a forward and of a backward for which an order is timed: whole numbers, so that sums are exact."""


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    p, m = inputs["p"], inputs["m"]
    try:
        own = arranged(value, p, m)
    except BadArgument as wrong:
        return Difference(f"form:{wrong}", str(wrong))
    halves = next((step for steps in own.order for step in steps if step[0] not in ("F", "B")), None)
    if halves is not None:
        return Difference("kinds", f"{halves} is a step of the order; expected one action each, of kind F or B")
    if broken := faults(own):
        return Difference(f"{broken[0].kind}:{broken[0].sentence}", f"{broken[0].sentence} (counted from 0)")
    return _small(own, p, m) or _quick(own, p, m)


def _small(own: Schedule, p: int, m: int) -> Difference | None:
    peaks = alive(own)
    for rank, peak in enumerate(peaks):
        if peak > min(p - rank, m):
            detail = (
                f"rank {rank} holds activations of {peak} micro-batches at once, expected at most {min(p - rank, m)}, "
                f"which is min(p - rank, m)"
            )
            return Difference(f"memory:{peaks}", detail)
    return None


def _quick(own: Schedule, p: int, m: int) -> Difference | None:
    for forward, backward in COSTS:
        found, fewest = simulate(own, Costs(forward, backward, 0)).seconds, (m + p - 1) * (forward + backward)
        if found > fewest:
            detail = (
                f"with F = {forward} and B = {backward} seconds the step takes {found} seconds; "
                f"{fewest} = (m + p - 1) (F + B) will do, with the same memory"
            )
            return Difference(f"seconds:{found}", detail)
    return None


def _fresh(rng: random.Random) -> Case:
    p = rng.randrange(2, 8)
    return Case("a pipeline nobody chose", p=p, m=rng.randrange(1, 3 * p))


EXERCISE = Exercise(
    id="12.one_f_one_b",
    title="One forward, one backward",
    parameters=("p", "m"),
    kind="host",
    inputs=sizes,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the docstring", p=2, m=3),
        Case("four ranks, eight micro-batches", p=4, m=8),
        Case("as many micro-batches as ranks", p=5, m=5),
        Case("fewer micro-batches than ranks", p=6, m=3),
        Case("one micro-batch: a forward and a backward on each rank", p=3, m=1),
        Case("one rank: there is nobody to wait for", p=1, m=4),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda p, m: [],
        "empty ranks": lambda p, m: [[] for _ in range(p)],
        "zeros": lambda p, m: [[("F", 0, 0)] * (2 * m) for _ in range(p)],
        "ones": lambda p, m: [[1] * (2 * m) for _ in range(p)],
        "nan": lambda p, m: float("nan"),
        "the input": lambda p, m: [p, m],
    },
    misconceptions=(
        Misconception(
            "all_forwards_first",
            slips.ordered(warm_up=lambda p, rank: 10**9),
            "All forwards come first: that is GPipe. It takes the same time, and every rank holds all micro-batches. A "
            "rank needs only as many ahead as it takes for the first gradient to come back to it.",
        ),
        Misconception(
            "one_warm_up_too_few",
            slips.ordered(warm_up=lambda p, rank: max(p - 2 - rank, 0)),
            "The warm-up is one forward too short on every rank but the last: each waits for a gradient while it "
            "could do a forward. Count the ranks behind this one.",
        ),
        Misconception(
            "one_warm_up_too_many",
            slips.ordered(warm_up=lambda p, rank: p - rank),
            "The warm-up is one forward too long: the forward of the first pair is done on top of it. So a rank holds "
            "one micro-batch more than it must. Look at the last rank: how many may it do before its first backward?",
        ),
        Misconception(
            "the_same_warm_up_everywhere",
            slips.ordered(warm_up=lambda p, rank: p - 1),
            "Every rank has the warm-up of rank 0. The last rank can turn round at once: the nearer to the end, the "
            "sooner the first gradient comes.",
        ),
        Misconception(
            "warm_up_from_the_wrong_end",
            slips.ordered(warm_up=lambda p, rank: rank),
            "The warm-up grows with the rank. Rank 0 waits longest for its first gradient, so it has most forwards "
            "ahead; the last rank has none.",
        ),
        Misconception(
            "no_warm_up",
            slips.ordered(warm_up=lambda p, rank: 0),
            "Every rank does a forward and then waits for its gradient: one micro-batch at a time is in the whole "
            "pipeline. Ranks before the last need forwards ahead.",
        ),
        Misconception(
            "backward_before_forward",
            slips.ordered(backward_first=True),
            "After the warm-up the backward stands before the forward. The last rank has no warm-up, so it would begin "
            "with a backward of nothing. The name says the order: one forward, one backward.",
        ),
        Misconception(
            "no_cool_down",
            slips.ordered(cool_down=False),
            "The backwards of the warm-up's micro-batches are missing at the end. As many backwards are left as there "
            "were forwards ahead.",
        ),
        Misconception(
            "warm_up_longer_than_the_step",
            slips.ordered(short_steps=False),
            "With fewer micro-batches than ranks the warm-up names micro-batches that are not there. It has at most m "
            "forwards.",
        ),
        Misconception(
            "newest_backward_first",
            slips.ordered(last_in_first_out=True),
            "The newest micro-batch goes backward first. The gradient of the oldest one comes first, and the ranks "
            "before wait for it: first in, first out.",
        ),
        Misconception(
            "stage_and_micro_batch_swapped",
            slips.ordered(action=lambda kind, rank, micro: (kind, micro, rank)),
            "Stage and micro-batch are swapped: an action is (kind, stage, micro), and the stage is the rank.",
        ),
        Misconception(
            "counted_from_one",
            slips.ordered(action=lambda kind, rank, micro: (kind, rank, micro + 1)),
            "Micro-batches are counted from 1. They are 0 to m - 1.",
        ),
        Misconception(
            "stage_zero_everywhere",
            slips.ordered(action=lambda kind, rank, micro: (kind, 0, micro)),
            "Every rank runs stage 0. Rank r has stage r.",
        ),
        Misconception(
            "a_list_for_each_micro_batch",
            slips.by_micro_batches,
            "There is a list for each micro-batch. The order has one for each rank: what that rank does, in turn.",
        ),
        Misconception(
            "one_list",
            slips.one_list,
            "The steps of all ranks stand in one list. The order has a list for each rank.",
        ),
        Misconception(
            "in_words",
            slips.in_words,
            'A step is a text, as in a figure: "F3". Here it is a tuple: (kind, stage, micro).',
        ),
    ),
    hints=(
        "Draw p = 3 and m = 5 on squared paper: time to the right, a line for each rank, F one square and B two. When "
        "can rank 2 begin its first B? What can rank 0 do until the gradient of micro-batch 0 comes back?",
        "Three phases on each rank: forwards ahead (none on the last rank, one more on each rank before it, at most "
        "m); then one forward and one backward in turn, until no forward is left; then the backwards that are left. "
        "Micro-batches go both ways in their order.",
        "ahead = min(p - 1 - rank, m); forwards 0 .. ahead - 1; for i in range(m - ahead): F of micro-batch ahead + i, "
        "B of micro-batch i; then B of m - ahead .. m - 1.",
    ),
    explanation=(
        "The gradient of micro-batch 0 comes back to rank r after p - 1 - r further stages, so that many forwards "
        "besides its own keep the rank busy until then. From there on each backward makes room for one forward: p - r "
        "micro-batches are held, however large m is. The time is GPipe's, (m + p - 1) (F + B): the same triangle is "
        "idle. What 1F1B wins is memory, and memory is what lets m grow, and a larger m is what makes the triangle a "
        "small share."
    ),
)
