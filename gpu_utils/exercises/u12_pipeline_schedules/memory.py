"""12.memory: bytes at the peak of each rank, and the fewest stages to compute again so that all ranks fit."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.schedules import actions_of
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u12_pipeline_schedules import memory_slips as slips
from gpu_utils.exercises.u12_pipeline_schedules.given_orders import NAMES, given, size_of
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

MIB = 2**20


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    found = given(case["schedule"], case["p"], case["m"])
    order, places = found["order"], found["places"]

    def sizes(low: int, high: int) -> list[int]:
        return [MIB * int(one) for one in torch.randint(low, high, (len(places),), generator=generator)]

    alive, entry, weights = sizes(400, 900), sizes(20, 60), sizes(2000, 4000)
    left = [one * case.get("kept", 40) // 100 for one in alive]
    given_sizes = slips.Sizes(alive, left, entry, weights)
    ends = [_ends(steps, rank, places, given_sizes) for rank, steps in enumerate(order)]
    low, high = (max(end[at] for end in ends) for at in range(2))
    budget = low + int((high - low) * case["room"])
    return {
        "order": order,
        "places": places,
        "alive": alive,
        "left": left,
        "entry": entry,
        "weights": weights,
        "budget": budget,
    }


def _ends(steps: list[Any], rank: int, places: list[int], sizes: slips.Sizes) -> tuple[int, int]:
    """Bytes of a rank that computes all again, and of one that computes nothing again."""
    read = [actions_of(step) for step in steps]
    stages = [stage for stage, where in enumerate(places) if where == rank]
    fixed = sum(sizes.weights[stage] for stage in stages)
    return fixed + slips.peak(read, sizes, stages), fixed + slips.peak(read, sizes, ())


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected = slips.measured()(**inputs)
    if not isinstance(value, dict) or set(value) != {"peak", "recompute"}:
        return compare(expected, value, EXACT)
    if problem := compare(expected["peak"], value["peak"], EXACT, where="peak"):
        return problem
    stages, right = value["recompute"], expected["recompute"]
    if right is None or stages is None:
        if right is stages:
            return None
        said = "no choice makes all ranks fit: expected None" if right is None else "there are stages that make it fit"
        return Difference("value", f"peak is right; recompute is {stages!r:.60}, but {said}")
    named = isinstance(stages, (list, tuple)) and all(
        type(stage) is int and 0 <= stage < len(inputs["places"]) for stage in stages
    )
    if not named or len(set(stages)) < len(stages):
        detail = f"recompute is {stages!r:.60}; expected a list of stages, each once, or None"
        return Difference("form", detail)
    return _fits(inputs, stages, len(right))


def _fits(inputs: Inputs, stages: list[int], fewest: int) -> Difference | None:
    sizes = slips.Sizes(*(inputs[name] for name in ("alive", "left", "entry", "weights")))
    for rank, steps in enumerate(inputs["order"]):
        own = [stage for stage, where in enumerate(inputs["places"]) if where == rank]
        most = sum(sizes.weights[stage] for stage in own)
        most += slips.peak([actions_of(step) for step in steps], sizes, stages)
        if most > inputs["budget"]:
            detail = (
                f"peak is right; with {list(stages)} computed again rank {rank} needs {most:,} bytes, and the budget "
                f"is {inputs['budget']:,}"
            )
            return Difference("value", detail)
    if len(stages) > fewest:
        detail = f"peak is right; recompute names {len(stages)} stages, and {fewest} would do"
        return Difference("value", detail)
    return None


def _fresh(rng: random.Random) -> Case:
    name = rng.choice(NAMES)
    p, m = size_of(name, rng)
    return Case(
        "an order and sizes nobody chose",
        schedule=name,
        p=p,
        m=m,
        room=rng.choice((-0.1, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        kept=rng.choice((30, 50, 70)),
    )


_WRONG: tuple[tuple[str, Any, str], ...] = (
    (
        "freed_with_the_input_gradient",
        slips.measured(slips.always(slips.with_flags(left=lambda sizes, stage: 0))),
        "All of an activation is freed at I. `left` bytes of it stay for W, until W has ended.",
    ),
    (
        "kept_whole_until_the_weights",
        slips.measured(slips.always(slips.with_flags(left=lambda sizes, stage: sizes.alive[stage]))),
        "All of an activation stays until W. After I only `left` bytes of it do.",
    ),
    (
        "all_micro_batches",
        slips.measured(slips.always(slips.all_micro_batches)),
        "Every micro-batch of the step is counted. A backward frees what its forward has kept: follow the order.",
    ),
    (
        "p_minus_rank_for_every_order",
        slips.measured(slips.by_a_formula(lambda ranks, rank, micros: min(ranks - rank, micros))),
        "min(p - rank, m) micro-batches are counted. That is 1F1B's: other orders hold more or fewer, so count along "
        "the order.",
    ),
    (
        "p_on_every_rank",
        slips.measured(slips.by_a_formula(lambda ranks, rank, micros: min(ranks, micros))),
        "min(p, m) micro-batches are counted on every rank. How many are alive depends on the order and on the rank.",
    ),
    (
        "one_stage_of_the_rank",
        slips.measured(slips.always(slips.first_stage_only)),
        "Activations of one stage of each rank are counted. A rank with two stages holds those of both.",
    ),
    (
        "stages_apart",
        slips.measured(slips.always(slips.stages_apart)),
        "The peaks of a rank's stages are added up. They are not at the same moment: one running sum for the rank.",
    ),
    (
        "weights_of_one_stage",
        slips.measured(fixed=lambda sizes, stages: sizes.weights[stages[0]]),
        "The weights of one stage of each rank are counted. A rank with two stages has the weights of both; of "
        "DualPipe's two copies, too.",
    ),
    (
        "no_weights",
        slips.measured(fixed=lambda sizes, stages: 0),
        "Only activations are counted. The weights of a rank's stages are there all the time.",
    ),
    (
        "after_each_step",
        slips.measured(slips.always(slips.with_flags(after_the_step=True))),
        "Memory is looked at when a step is over, or what it frees is taken away first. During a pair the forward's "
        "activations are there already, and the backward's still.",
    ),
    (
        "sizes_by_rank",
        slips.measured(slips.always(slips.with_flags(first=True))),
        "Each activation has the size of the rank's first stage. Sizes are by stage.",
    ),
    (
        "all_stages_of_a_full_rank",
        slips.measured(choose=slips.all_or_none),
        "All stages of a rank over the budget are computed again. One of them may be enough: try the fewest first.",
    ),
    (
        "every_stage_of_the_model",
        slips.measured(everywhere=True),
        "Where one rank is over the budget, all stages of the model are computed again. Only that rank's need it.",
    ),
    (
        "stages_in_their_order",
        slips.measured(choose=slips.in_order),
        "Stages of a rank are tried in the order of their numbers, each added to the ones before. The second alone may "
        "be enough: try every choice of one before any choice of two.",
    ),
    (
        "the_largest_stage_first",
        slips.measured(choose=slips.largest_first),
        "The stage that saves most for one micro-batch is taken first. What counts is the peak, and how many of it are "
        "alive then: try each choice and measure its peak.",
    ),
    (
        "nothing_comes_back",
        slips.measured(slips.always(slips.with_flags(rises=False))),
        "A stage that is computed again never holds its activations. They come back at the start of the backward, for "
        "that one micro-batch.",
    ),
    (
        "nothing_is_kept",
        slips.measured(slips.always(slips.with_flags(entry_kept=False))),
        "A stage that is computed again keeps nothing of a micro-batch. It keeps its input, `entry` bytes, to compute "
        "from.",
    ),
    (
        "the_budget_itself_is_too_much",
        slips.measured(room=1),
        "A rank that comes to the budget exactly is over it. It fits.",
    ),
    (
        "an_answer_where_there_is_none",
        slips.measured(choose=slips.without_a_look_back),
        "A list is returned although a rank does not fit with all of its stages computed again: then the answer is "
        "None.",
    ),
)


def _one_rank(why: str, letters: str, alive: list[int], budget: int) -> Example:
    """Two stages on one rank; letters: "F0" is a forward of stage 0, of its next micro-batch."""
    counted: dict[str, int] = {}
    order = []
    for letter in letters.split():
        order.append((letter[0], int(letter[1]), counted.setdefault(letter, 0)))
        counted[letter] += 1
    sizes = {"alive": alive, "left": [2, 5], "entry": [1, 1], "weights": [10, 10]}
    return Example(why, order=[order], places=[0, 0], **sizes, budget=budget)


_EACH = "F0 F1 F0 F1 B1 B0 B1 B0"
_THREE = "F0 F0 F0 F1 B1 F1 B1 F1 B1 B0 B0 B0"

EXERCISE = Exercise(
    id="12.memory",
    title="What is alive, and what to compute again",
    parameters=("order", "places", "alive", "left", "entry", "weights", "budget"),
    kind="host",
    inputs=_inputs,
    reference=slips.measured(),
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring",
            order=[
                [("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)],
                [("F", 1, 0), ("I", 1, 0), ("F", 1, 1), ("W", 1, 0), ("I", 1, 1), ("W", 1, 1)],
            ],
            places=[0, 1],
            alive=[10, 8],
            left=[4, 3],
            entry=[2, 2],
            weights=[30, 40],
            budget=50,
        ),
        _one_rank("the second stage saves more than the first", _EACH, [5, 20], 55),
        _one_rank("both stages, since the second comes back for its backward", _EACH, [5, 20], 50),
        _one_rank("a small stage of which three are alive, a large one of which one is", _THREE, [8, 12], 40),
        _one_rank("computed again, `left` still stays for W", "F0 I0 F0 I0 W0 W0 F1 B1", [8, 3], 29),
        _one_rank("computed again, `entry` is part of `alive` during I", "F0 F0 I0 W0 I0 W0 F1 B1", [8, 3], 29),
        _one_rank("computed again, W brings nothing back", "F0 F0 I0 I0 F1 W0 W0 B1", [8, 9], 34),
        _one_rank("the inputs that are kept are too much", _THREE, [8, 12], 34),
        Case("GPipe", schedule="GPipe", p=3, m=5, room=0.5),
        Case("1F1B: ranks near the start hold most", schedule="1F1B", p=4, m=8, room=0.4),
        Case("ZB-H1: parts of activations stay for W", schedule="ZB-H1", p=4, m=8, room=0.5),
        Case("interleaved: two stages on a rank", schedule="interleaved 1F1B", p=3, m=6, room=0.6),
        Case("ZBV: one of a rank's two stages is enough", schedule="ZBV", p=4, m=8, room=0.5, kept=60),
        Case("DualPipe: two copies, and pairs", schedule="DualPipe", p=4, m=8, room=0.7),
        Case("DualPipeV", schedule="DualPipeV", p=3, m=6, room=0.3),
        Case("all fits, to the byte", schedule="1F1B", p=3, m=4, room=1.0),
        Case("all must be computed again, and fits to the byte", schedule="ZBV", p=2, m=6, room=0.0),
        Case("nothing helps", schedule="DualPipeV", p=2, m=4, room=-0.1),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda **inputs: {"peak": [], "recompute": []},
        "zeros": lambda **inputs: {"peak": [0] * len(inputs["order"]), "recompute": []},
        "ones": lambda **inputs: {"peak": [1] * len(inputs["order"]), "recompute": [1]},
        "nan": lambda **inputs: {"peak": [float("nan")] * len(inputs["order"]), "recompute": None},
        "the input": lambda **inputs: {"peak": list(inputs["weights"]), "recompute": None},
    },
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "One number for each rank: bytes now. Walk along its list; what does each kind of action add when it begins, "
        "and what does it free when it ends? The peak is looked at in between.",
        "F adds alive; B frees alive; I frees alive - left; W frees left. Of a stage that is computed again F adds "
        "entry, and the backward (B or I) first adds alive - entry. Let a function give the peak of one rank for a "
        "set of such stages.",
        "Ranks do not depend on each other: for each rank, for count in 0, 1, ...: for some in "
        "itertools.combinations(its stages, count): the first whose peak plus weights is within the budget. If there "
        "is none on one rank, the answer is None.",
    ),
    explanation=(
        "Memory needs no clock: what a rank holds depends on its own list. 1F1B holds p - rank micro-batches, "
        "zero-bubble orders pay for late W with what those need, and a V or DualPipe evens the ranks out: each has one "
        "stage near the start and one near the end. Computing a stage again trades a forward for all but the input of "
        "each micro-batch that waits; it saves most where most wait, so the choice falls on stages near the start, and "
        "rarely on all."
    ),
)
