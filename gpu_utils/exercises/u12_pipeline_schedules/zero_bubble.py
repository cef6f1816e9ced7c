"""12.zero_bubble: 1F1B with its backward in two, and the gradients of the weights where a rank would be idle.

Many orders are right, so an answer is judged: whether it can run, how much is alive, how long ranks are idle. ZB-H1 of
arXiv 2401.10241 is one of them. Its authors call the gradient of the input B; here it is I.
"""

from __future__ import annotations

import random
from typing import Any

from gpu_utils.analytic.schedules import Costs, Schedule, actions_of
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u12_pipeline_schedules import zero_bubble_slips as slips
from gpu_utils.exercises.u12_pipeline_schedules.judged_orders import TRIVIAL, alive_at_most, idle_at_most, judged, sizes
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

COSTS = (Costs(2, 2, 2), Costs(4, 5, 3), Costs(6, 4, 1))
"""Of F, I and W, with W at most F and at most I: a longer W fits into no gap."""


def allowed(p: int, m: int, costs: Costs) -> float:
    """(p-1)(F + I - W) where there are p micro-batches or more; with fewer, there are only m - 1 W to fill with.

    >>> allowed(4, 8, Costs(1, 1, 1)), allowed(4, 2, Costs(1, 1, 1))
    (3, 5)
    """
    return (p - 1) * (costs.F + costs.I) - (min(p, m) - 1) * costs.W


def _in_two(own: Schedule) -> Difference | None:
    for rank, steps in enumerate(own.order):
        for at, step in enumerate(steps):
            if any(kind == "B" for kind, _, _ in actions_of(step)):
                detail = f"step {at} of rank {rank} is a whole backward, B; expected its two halves, I and W"
                return Difference("whole", detail)
    return None


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    p, m = inputs["p"], inputs["m"]
    looks = (
        _in_two,
        alive_at_most(min(p, m), "as 1F1B on its fullest rank"),
        idle_at_most(COSTS, lambda costs: allowed(p, m, costs)),
    )
    return judged(value, p, m, "line", looks)


def _fresh(rng: random.Random) -> Case:
    p = rng.randrange(2, 9)
    return Case("a pipeline nobody chose", p=p, m=rng.randrange(1, 3 * p))


EXERCISE = Exercise(
    id="12.zero_bubble",
    title="The backward in two",
    parameters=("p", "m"),
    kind="host",
    inputs=sizes,
    reference=slips.reference,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the statement", p=2, m=2),
        Case("four ranks in their steady state", p=4, m=8),
        Case("an odd number of ranks, and of micro-batches", p=5, m=11),
        Case("as many micro-batches as ranks", p=4, m=4),
        Case("fewer micro-batches than ranks", p=6, m=3),
        Case("one rank has nobody to wait for", p=1, m=3),
    ),
    fresh=_fresh,
    trivial=TRIVIAL,
    misconceptions=(
        Misconception(
            "whole_backward",
            slips.whole_backward,
            "This is 1F1B: each backward is one piece, and the rank before waits for all of it. It needs the gradient "
            "of the input only: I, and W later.",
        ),
        Misconception(
            "w_at_once",
            slips.putting_off(lambda p, rank: 0),
            "Each W stands right behind its I, so nothing has changed but the rank before is served a little earlier. "
            "The last ranks should give their I first and put W off.",
        ),
        Misconception(
            "w_at_the_end",
            slips.putting_off(lambda p, rank: 10**6),
            "All W stand at the end. Ranks are busy, but W needs what its forward kept, so every micro-batch stays "
            "alive. How many may be alive on a rank, and so how many W may wait?",
        ),
        Misconception(
            "as_many_on_each_rank",
            slips.putting_off(lambda p, rank: p - 1),
            "Every rank puts off equally many W. The first rank has p micro-batches on their way already and room for "
            "no more; the last has one. What is left of p differs by rank.",
        ),
        Misconception(
            "from_the_wrong_end",
            slips.putting_off(lambda p, rank: p - 1 - rank),
            "The first rank puts off most and the last rank nothing: it is the other way about. The last rank has the "
            "fewest micro-batches alive, and everybody waits for its I.",
        ),
        Misconception(
            "one_too_few",
            slips.putting_off(lambda p, rank: max(rank - 1, 0)),
            "One W more could wait on each rank: count what is alive at its peak, and compare with p.",
        ),
        Misconception(
            "one_too_many",
            slips.putting_off(lambda p, rank: rank + 1),
            "One W too many waits on each rank: p micro-batches may be alive, with the one whose forward has begun.",
        ),
        Misconception(
            "no_w_between_the_last_i",
            slips.putting_off(in_the_end=False),
            "Once the forwards are over, the ranks do all I first and then all W. But between two I of the cool-down "
            "a rank waits for the next one: that is the gap that a W fits into.",
        ),
        Misconception(
            "one_forward_fewer",
            slips.putting_off(warm=lambda p, rank: max(p - 2 - rank, 0)),
            "The ranks start their first backward one forward too early, and wait there. As in 1F1B: p - 1 - rank "
            "forwards, then one more before each I.",
        ),
        Misconception(
            "warm_up_of_the_first_rank",
            slips.putting_off(warm=lambda p, rank: p - 1),
            "All ranks run as many forwards at first as rank 0. One that is nearer to the end gets its first gradient "
            "sooner and needs fewer.",
        ),
        Misconception(
            "all_forwards_first",
            slips.all_forwards_first,
            "All forwards, then all backwards: all micro-batches are alive at once. Begin with 1F1B.",
        ),
        Misconception(
            "w_before_i",
            slips.w_before_i,
            "W came before its I. W uses the gradient of the stage's output that I has walked back through the "
            "layers: first I, then W.",
        ),
        Misconception(
            "forgets_what_is_left",
            slips.forgets_what_is_left,
            "Some W were put off for ever. When the last I is done, a rank still has W to do.",
        ),
    ),
    hints=(
        "Take 1F1B and write I for B. Draw four ranks: who waits for whom, and which rank has the fewest micro-batches "
        "alive? Those are where W can wait.",
        "Rank r of 1F1B has p - r alive at its peak. If p may be alive, r more may be kept: those whose I is done and "
        "whose W is not. A W that waits is done once more than so many wait.",
        "For each rank: p - 1 - r forwards (at most m). Then for each micro-batch: F while there are any left, I, and, "
        "if more than r W are owed, the oldest W. At the end the W that are left.",
    ),
    explanation=(
        "The chain of gradients runs through I alone, so a W may wait. The last rank is first to have an I to give: it "
        "owes p - 1 W in the meantime, and each rank before it one fewer, so that p micro-batches are alive on every "
        "rank: what 1F1B needs on its first. In the cool-down the gaps between two I are filled with these W. What is "
        "left is idle for (p-1)(F + I - W), or (p-1)(F + B - 2W) in the letters of DeepSeek-V3's report, in place of "
        "(p-1)(F + B). The formula holds while a W fits into a gap, that is up to F and up to I. More memory buys "
        "more: ZB-H2 starts with 2p - 1 alive and leaves no gap but the start."
    ),
)
