"""12.dualpipe: two copies of a model, one in each direction, whose forwards and backwards run together.

Many orders are right, so an answer is judged: whether it can run, how much is alive, how long ranks are idle, how many
steps are pairs. DualPipe of DeepSeek-V3 (arXiv 2412.19437, section 3.2.1) is one of them.
"""

from __future__ import annotations

import random
from typing import Any

from gpu_utils.analytic.schedules import BUBBLES, Costs, Schedule, actions_of
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u12_pipeline_schedules import dualpipe_slips as slips
from gpu_utils.exercises.u12_pipeline_schedules.judged_orders import (
    TRIVIAL,
    Look,
    alive_at_most,
    idle_at_most,
    judged,
    sizes,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

COSTS = (Costs(2, 2, 2), Costs(4, 5, 3), Costs(4, 6, 2), Costs(8, 8, 4, together=0.75))
"""With I at least F, and W at most F: beyond, the formula does not hold for DualPipe itself."""


def _pairs(least: int) -> Look:
    """Each rank has so many steps in which a forward and a backward run together."""

    def look(own: Schedule) -> Difference | None:
        counts = [sum(len(actions_of(step)) > 1 for step in steps) for steps in own.order]
        if min(counts) >= least:
            return None
        rank = counts.index(min(counts))
        detail = f"rank {rank} runs a forward and a backward together in {min(counts)} steps; expected {least} or more"
        return Difference(f"pairs:{min(counts)}", detail)

    return look


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    p, m = inputs["p"], inputs["m"]
    looks = (
        alive_at_most(p + 1, "p + 1"),
        idle_at_most(COSTS, lambda costs: BUBBLES["DualPipe"](p, costs)),
        _pairs(m - 3 * p // 2),
    )
    return judged(value, p, m, "two ways", looks)


def _fresh(rng: random.Random) -> Case:
    p = 2 * rng.randrange(1, 5)
    return Case("a pipeline nobody chose", p=p, m=2 * p + 2 * rng.randrange(p))


EXERCISE = Exercise(
    id="12.dualpipe",
    title="Two directions at once",
    parameters=("p", "m"),
    kind="host",
    inputs=sizes,
    reference=slips.reference,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the statement", p=2, m=4),
        Case("four ranks, and the fewest micro-batches", p=4, m=8),
        Case("six ranks: three kinds of them", p=6, m=14),
        Case("the figure of the report: eight ranks and twenty micro-batches", p=8, m=20),
        Case("a long steady state", p=4, m=24),
    ),
    fresh=_fresh,
    trivial=TRIVIAL,
    misconceptions=(
        Misconception(
            "one_after_the_other",
            slips.one_after_the_other,
            "The first copy runs to its end before the second begins, so every rank waits twice. Both ends of the "
            "pipeline start at once, and where the two streams meet, one's forward goes with the other's backward.",
        ),
        Misconception(
            "in_turns",
            slips.in_turns,
            "A step of one copy, then one of the other, from the beginning on: a rank far from an end waits for its "
            "first micro-batch from there, while others of the near end are there already. The near stage goes first.",
        ),
        Misconception(
            "apart",
            slips.apart,
            "The order is good, but nothing runs together. In the steady state a forward of one copy and a backward of "
            "the other are one step: a tuple of both actions.",
        ),
        Misconception(
            "same_direction",
            slips.phases(same_direction=True),
            "The pairs are of one copy: the backward waits for what the next rank makes of this very stage, and the "
            "next rank does likewise. A pair takes its forward from one copy and its backward from the other.",
        ),
        Misconception(
            "second_copy_same_way",
            slips.second_copy_same_way,
            "Both copies lie in the same direction. Stage p is on the last rank: the second copy runs up.",
        ),
        Misconception(
            "one_copy_for_all",
            slips.second_copy_same_stages,
            "The second half of the micro-batches runs on the stages of the first copy. Theirs are p to 2p - 1.",
        ),
        Misconception(
            "both_from_micro_0",
            slips.both_from_micro_0,
            "The second copy counts its micro-batches from 0. They are the other half of the batch: from m / 2 on.",
        ),
        Misconception(
            "near_everywhere_down",
            slips.phases(near_everywhere_down=True),
            "All ranks begin with the first copy. For the lower half of the ranks the near stage is of the second one: "
            "mirror the order, rank r as rank p - 1 - r.",
        ),
        Misconception(
            "half_a_warm_up",
            slips.phases(warm=lambda away: away),
            "Too few forwards in the first phase: one for each rank on the way to the turning point, where the micro-"
            "batch has to come back from there, too. Compare with the counts of p = 8: 6, 4, 2, 0.",
        ),
        Misconception(
            "warm_up_one_longer",
            slips.phases(warm=lambda away: 2 * away + 1),
            "One forward more than needed in the first phase: p + 2 are alive. At the turning point the count is 0.",
        ),
        Misconception(
            "warm_up_one_shorter",
            slips.phases(warm=lambda away: max(2 * away - 1, 0)),
            "One forward fewer than needed in the first phase: the ranks wait for their first backward.",
        ),
        Misconception(
            "second_phase_longer",
            slips.phases(both=lambda p, depth: depth + 1),
            "The second phase is one round too long: both stages give a forward in it, and more than p + 1 are alive.",
        ),
        Misconception(
            "second_phase_shorter",
            slips.phases(both=lambda p, depth: depth - 1),
            "The second phase is one round too short: a rank needs the far stage's forward before its backward.",
        ),
        Misconception(
            "second_phase_alike",
            slips.phases(both=lambda p, depth: p // 2),
            "The second phase is as long on all ranks. It grows with the distance from the end: 1, 2, 3, 4 for p = 8.",
        ),
        Misconception(
            "whole_in_the_third",
            slips.phases(whole_in_third=True),
            "In the third phase the backward is whole: others wait for its W, too. Give I first.",
        ),
        Misconception(
            "w_at_once",
            slips.w_at_once,
            "All backwards are whole. Before the steady state and at the end there are gaps: I first, and a W where a "
            "rank would wait.",
        ),
        Misconception(
            "no_w_for_the_end",
            slips.phases(split_from=lambda depth: 10**6),
            "The last backwards are whole, so that nothing is left to fill the gaps of the cool-down. From the middle "
            "of the sixth phase on I and W are apart.",
        ),
        Misconception(
            "all_in_two_at_the_end",
            slips.phases(split_from=lambda depth: 0),
            "All backwards of the sixth phase are in two, and more W than there are gaps come last. The first half of "
            "them is whole.",
        ),
        Misconception(
            "cool_down_apart",
            slips.phases(in_fifth=False),
            "The pairs end with the steady state. In the fifth phase the far stage still has forwards, and the near "
            "one backwards: they run together.",
        ),
        Misconception(
            "w_forgotten",
            slips.w_forgotten,
            "Where I stands alone its W has to follow, on the same rank and for the same stage and micro-batch.",
        ),
    ),
    hints=(
        "Write down a rank at the turning point first, p / 2 - 1: phases 1, 3, 5 and 7 are empty there. Then one step "
        "away from it, and read off what each step of distance adds.",
        "With t ranks between a rank and the turning point and e between it and its end: 2t, e + 1, t, ?, t, e + 1, t, "
        "e + 1 rounds. The fourth number follows from the near stage: in all m / 2 forwards.",
        "One function take(kind, stage) that counts micro-batches: F for itself, B and I together, from 0 or from m / "
        "2. I puts its stage and micro-batch into a list, W takes the oldest from it. The fourth phase has m / 2 - 2t "
        "- e - 1 rounds of the two pairs. Ranks of the lower half: the same with near and far exchanged.",
    ),
    explanation=(
        "With a copy of the model in each direction both ends of the pipeline begin at once, and the streams meet half "
        "way. In the steady state each rank has a forward of one copy and a backward of the other to do, which do not "
        "need each other: so they run together, and on a real machine one computes while the other's tokens are on "
        "their way to experts and back. Before and after, while there is one stream only, the gaps are filled with "
        "forwards and with I and W apart. The bubble is (p/2 - 1)(F&B + B - 3W) by "
        "DeepSeek-V3's report; parameters are there twice, and p + 1 activations. With I = F and W up to F the order "
        "is idle exactly so long where pairs gain nothing, and never longer where they do. DualPipeV folds the "
        "pipeline at its turning point: one copy, half the ranks."
    ),
)
