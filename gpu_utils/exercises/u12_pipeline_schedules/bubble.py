"""12.bubble: a simulator of orders: when each step of each rank starts and ends, and what share of the time is idle."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u12_pipeline_schedules import bubble_slips as slips
from gpu_utils.exercises.u12_pipeline_schedules import validate_slips as needs
from gpu_utils.exercises.u12_pipeline_schedules.given_orders import NAMES, given, size_of
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

EVEN = (1.0, 1.0, 1.0)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    found = given(case["schedule"], case["p"], case["m"])
    del found["micros"]
    draws = torch.randint(0, 33, (len(found["places"]), 3), generator=generator).tolist()
    uneven = case.get("uneven", False)
    base = case.get("costs", EVEN)
    costs = [tuple(one + uneven * draw / 16 for one, draw in zip(base, stage, strict=True)) for stage in draws]
    return {**found, "costs": costs, "link": case.get("link", 0.0), "together": case.get("together", 1.0)}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # a time is a sum of one sign along a path of steps and links; idle time is a difference of two such sums
    steps = sum(len(steps) for steps in inputs["order"])
    longest = float(sum(sum(stage) for stage in inputs["costs"])) * len(inputs["order"][0])
    return tolerance(torch.float64, k=steps, magnitude=longest / 4, roundings=4 * steps + 4)


def _fresh(rng: random.Random) -> Case:
    name = rng.choice(NAMES)
    p, m = size_of(name, rng)
    return Case(
        "an order and times nobody chose",
        schedule=name,
        p=p,
        m=m,
        costs=tuple(rng.randrange(8, 33) / 8 for _ in range(3)),
        uneven=rng.random() < 0.7,
        link=rng.choice((0.0, 0.25, 0.625, 1.5)),
        together=rng.choice((0.75, 0.875, 1.0)),
    )


_WRONG: tuple[tuple[str, Any, str], ...] = (
    (
        "no_link",
        slips.simulated(arrives=slips.at_once),
        "What comes from another rank is there at once. It arrives `link` seconds after the step that made it has "
        "ended.",
    ),
    (
        "link_on_the_rank_itself",
        slips.simulated(arrives=slips.always_by_link),
        "The link is counted where both stages are on one rank, or for a rank's own forward. What stays on the rank is "
        "there at once.",
    ),
    (
        "link_by_distance",
        slips.simulated(arrives=slips.link_for_each_hop),
        "The delay grows with the distance of the ranks' numbers. It is `link` between any two ranks.",
    ),
    (
        "the_sender_waits",
        slips.simulated(sender_waits=True),
        "A rank that sends is taken to be busy until the message has arrived. A transfer costs the ranks nothing: only "
        "what it carries comes later.",
    ),
    (
        "no_wait_for_the_gradient",
        slips.simulated(needs=needs.own_forward_only),
        "A backward starts without the gradient of the stage behind it in the chain. It needs that and its own "
        "forward.",
    ),
    (
        "waits_for_the_weights_too",
        slips.simulated(needs=needs.whole_backward_of_the_next),
        "A backward waits until the stage behind has done W. The gradient of the input leaves at the end of I; of a B, "
        "at the end of B.",
    ),
    (
        "neighbours_by_number",
        slips.simulated(needs=needs.neighbours_by_number),
        "The stage before s is taken to be s - 1. With two chains the first stage of the second one waits for nobody: "
        "take the neighbours from the chains.",
    ),
    (
        "a_pair_one_after_the_other",
        slips.simulated(lasts=slips.one_after_the_other),
        "A pair takes the sum of its two actions. It takes `together` times that sum.",
    ),
    (
        "a_pair_as_long_as_its_longest",
        slips.simulated(lasts=slips.longest_of_the_pair),
        "A pair takes as long as the longer of its two actions: the other one would be free. It takes `together` times "
        "the sum.",
    ),
    (
        "together_for_single_steps",
        slips.simulated(lasts=slips.together_always),
        "`together` is applied to every step. It is for pairs only.",
    ),
    (
        "a_pair_gives_its_forward_early",
        slips.simulated(apart=True),
        "The first action of a pair is handed on before the pair has ended. Both start and end together: what either "
        "makes is there at the end of the step.",
    ),
    (
        "backward_of_the_input_alone",
        slips.simulated(lasts=slips.backward_is_the_input_alone),
        "B takes the time of I alone. A full backward is I and W.",
    ),
    (
        "costs_of_stage_0",
        slips.simulated(lasts=slips.first_stage_of_all),
        "Every stage takes the time of stage 0. Stages are uneven: costs[stage].",
    ),
    (
        "costs_by_rank",
        slips.simulated(lasts=slips.together_of, cost_by_rank=True),
        "The costs of a step are looked up by its rank. They are those of its stage: with two stages on a rank that is "
        "another number.",
    ),
    (
        "all_in_step",
        slips.in_ticks,
        "All ranks take one step at a time and wait for the slowest of them. There is no common clock: a rank goes on "
        "as soon as it is free and what it needs is there.",
    ),
    (
        "ends_with_the_last_rank",
        slips.simulated(seconds=slips.end_of_the_last_rank),
        "`seconds` is when the last rank ends. Backwards run towards rank 0, and W come last of all: take the latest "
        "end of any rank.",
    ),
    (
        "ends_with_rank_0",
        slips.simulated(seconds=slips.end_of_the_first_rank),
        "`seconds` is when rank 0 ends. Another rank may end later: take the latest end of any rank.",
    ),
    (
        "idle_between_steps_only",
        slips.simulated(idle=slips.gaps),
        "Only the gaps between steps are counted as idle. A rank also waits for its first step, and after its last one "
        "until the slowest rank has ended.",
    ),
    (
        "idle_from_its_first_step",
        slips.simulated(idle=slips.until_the_end),
        "The wait for a rank's first step is left out. Idle is counted from 0.",
    ),
    (
        "idle_until_its_last_step",
        slips.simulated(idle=slips.until_its_own_end),
        "The time after a rank's last step is left out. Until all ranks have ended, the next step of training cannot "
        "begin: it is idle too.",
    ),
    (
        "bubble_of_the_work",
        slips.simulated(share=slips.share_of_the_work),
        "bubble is idle time over busy time. Papers print that as well; here it is the share of all ranks' time, busy "
        "and idle.",
    ),
    (
        "bubble_of_one_rank",
        slips.simulated(share=slips.share_of_one_rank),
        "The idle time of all ranks is divided by the seconds of one. There are as many seconds as ranks: divide by "
        "their number too.",
    ),
    (
        "bubble_of_the_worst_rank",
        slips.simulated(share=slips.share_of_the_worst),
        "bubble is that of the rank that is idle longest. It is the idle share of all ranks together.",
    ),
)

EXERCISE = Exercise(
    id="12.bubble",
    title="A simulator of pipelines",
    parameters=("order", "places", "chains", "costs", "link", "together"),
    kind="host",
    inputs=_inputs,
    reference=slips.simulated(),
    parts=("times", "seconds", "idle", "bubble"),
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring",
            order=[[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0), ("B", 1, 0)]],
            places=[0, 1],
            chains=[[0, 1]],
            costs=[(2.0, 1.0, 1.0), (3.0, 2.0, 1.0)],
            link=0.5,
            together=1.0,
        ),
        Case("GPipe, even stages, no delay", schedule="GPipe", p=3, m=4),
        Case("1F1B with uneven stages", schedule="1F1B", p=4, m=6, uneven=True),
        Case("1F1B with a delay", schedule="1F1B", p=4, m=6, costs=(2.0, 2.0, 1.5), link=0.75),
        Case("ZB-H1: I and W apart", schedule="ZB-H1", p=4, m=6, costs=(1.0, 1.5, 0.75), uneven=True, link=0.25),
        Case(
            "interleaved: a rank's two stages, and messages round the ring",
            **{"schedule": "interleaved 1F1B"} | {"p": 3, "m": 6, "uneven": True, "link": 0.5},
        ),
        Case(
            "ZBV: the chain turns on one rank, where no message goes",
            schedule="ZBV",
            p=3,
            m=6,
            costs=(1.0, 1.0, 2.0),
            link=1.0,
        ),
        Case("DualPipe: two chains, and pairs", schedule="DualPipe", p=4, m=8, together=0.875),
        Case(
            "DualPipeV: pairs of uneven stages, with a delay",
            **{"schedule": "DualPipeV", "p": 3, "m": 6, "uneven": True, "link": 0.25, "together": 0.75},
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Take the executor of 12.validate and give it a clock: in place of a set of what is done, a dict of when it "
        "was done, and for each rank the time from which it is free.",
        "start = max(the rank is free, for each need: its end, plus link if it was made on another rank); end = start "
        "+ the time of the step. A step whose needs have no end yet waits for another round.",
        "ended[part, stage, micro] = end for each part of each action, with B as I and W. seconds = the largest end of "
        "all; idle = seconds - the sum of (end - start) of the rank; bubble = sum(idle) / (ranks * seconds).",
    ),
    explanation=(
        "Time needs no order of visits either: a step's start depends on ends that are known or not yet known, so the "
        "executor of 12.validate with a clock is the simulator. A closed formula is this sum along one path, the "
        "longest, for stages that are all alike and links that take nothing. With a delay each of the 2 (p - 1) hops "
        "of the first micro-batch counts, and in 1F1B every later round trip that was not covered by a forward; with "
        "uneven stages the slowest one sets the pace of all."
    ),
)
