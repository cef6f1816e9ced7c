"""12.validate: what is broken in an order, found by an executor that waits; judged by the waits, where ranks hang."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.schedules import actions_of
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u12_pipeline_schedules import validate_slips as slips
from gpu_utils.exercises.u12_pipeline_schedules.given_orders import NAMES, Change, broken, given, size_of
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

REASONS = ("stray", "twice", "missing", "deadlock", "memory")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    found = given(case["schedule"], case["p"], case["m"], case.get("changes", ()))
    most = max(max(slips.held_after([actions_of(step) for step in steps]), default=0) for steps in found["order"])
    return {**found, "limit": most - case.get("short", 0)}


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected = slips.validated()(**inputs)
    if value is None:
        return expected and Difference("value", f"the result is None, but {_said(inputs, expected)}")
    if not _is_finding(value):
        said = "expected None, or a pair of a reason and a list of pairs (rank, step)"
        return Difference("form", f"the result is {value!r:.80}; {said}")
    reason, places = value[0], [(rank, step) for rank, step in value[1]]
    if reason not in REASONS:
        return Difference("reason", f"the reason is {reason!r:.40}; expected one of {', '.join(REASONS)}")
    if expected is None:
        return Difference("value", f"the result is {(reason, places)}, and nothing is broken: expected None")
    if reason != expected[0]:
        return Difference("value", f"the result is {(reason, places)}, but {_said(inputs, expected)}")
    if reason == "deadlock":
        return _ring(inputs, places)
    if places != expected[1]:
        return Difference("value", f"the result is {(reason, places)}, but {_said(inputs, expected)}")
    return None


def _is_finding(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not isinstance(value[1], (list, tuple)):
        return False
    pairs = [isinstance(one, (list, tuple)) and len(one) == 2 for one in value[1]]
    return bool(pairs) and all(pairs) and all(type(number) is int for one in value[1] for number in one)


def _said(inputs: Inputs, found: slips.Found) -> str:
    """What is broken, for a reader."""
    assert found is not None
    reason, places = found
    rank, step = places[0]
    if reason == "missing":
        return f"an action of rank {rank} is missing: ('missing', [({rank}, {step})])"
    if reason == "deadlock":
        ranks = sorted(rank for rank, _ in places)
        who = f"ranks {', '.join(map(str, ranks))} wait" if len(ranks) > 1 else f"rank {ranks[0]} waits"
        return f"{who} for ever: a deadlock"
    return f"step {step} of rank {rank}, {inputs['order'][rank][step]}, is broken: {reason}"


def _ring(inputs: Inputs, places: list[tuple[int, int]]) -> Difference | None:
    """Whether each of the places is where its rank hangs, and waits for the next."""
    order = [[actions_of(step) for step in steps] for steps in inputs["order"]]
    work = slips.Work(order, inputs["places"], inputs["chains"], inputs["micros"])
    at, done = slips.executed(work, slips.needs, in_turn=False, once=False)
    given = f"the result is {('deadlock', places)}"
    for rank, step in places:
        if not 0 <= rank < len(order):
            return Difference("value", f"{given}; there is no rank {rank}: ranks are 0 to {len(order) - 1}")
        if at[rank] == len(order[rank]):
            return Difference("value", f"{given}; rank {rank} does not hang: its list comes to an end")
        if at[rank] != step:
            return Difference("value", f"{given}; rank {rank} hangs at step {at[rank]}, not at step {step}")
    if len({rank for rank, _ in places}) < len(places):
        return Difference("value", f"{given}; a rank stands in it twice")
    for (rank, step), (other, _) in zip(places, [*places[1:], places[0]], strict=True):
        wanted = [need for action in order[rank][step] for need in work.needs(*action) if need not in done]
        waits = sorted({work.places[stage] for _, stage, _ in wanted})
        if other not in waits:
            detail = f"{given}; rank {rank} waits for rank {' and '.join(map(str, waits))}, not for rank {other}"
            return Difference("value", f"{detail}: each of a ring waits for the next, and the last one for the first")
    return None


def _fresh(rng: random.Random) -> Case:
    name = rng.choice(NAMES)
    p, m = size_of(name, rng)
    return Case(
        "an order nobody chose, maybe broken",
        schedule=name,
        p=p,
        m=m,
        changes=broken(rng, name, p, m) if rng.random() < 0.8 else [],
        short=int(rng.random() < 0.15),
    )


def _case(why: str, name: str, p: int, m: int, *changes: Change, short: int = 0) -> Case:
    return Case(why, schedule=name, p=p, m=m, changes=list(changes), short=short)


_WRONG: tuple[tuple[str, Any, str], ...] = (
    (
        "nothing_is_ever_broken",
        slips.never_anything,
        "Every order passes. Begin with what can be seen in the lists: an action that has no place there, is done "
        "twice, or is missing.",
    ),
    (
        "waits_on_its_own_rank_only",
        slips.validated(needs=slips.on_this_rank_only),
        "Only what a step needs of its own rank is looked at. Each rank's list can be in order and two ranks still "
        "wait for each other: the needs on other ranks count as much.",
    ),
    (
        "ranks_one_after_the_other",
        slips.validated(once=True),
        "Each rank is visited once, and what it needs from a later rank is called a deadlock. A rank that cannot go on "
        "waits: come back to it when others have moved, until nobody moves any more.",
    ),
    (
        "first_that_hangs",
        slips.validated(named=slips.first_stuck),
        "The rank with the lowest number that hangs is named. It may be a victim: follow what it waits for, from rank "
        "to rank, until you come to a rank that you have seen.",
    ),
    (
        "all_that_hang",
        slips.validated(named=slips.all_stuck),
        "All ranks that hang are named. Some only wait for the ring and would go on if it did: name those that wait "
        "for each other in a circle, each before the one it waits for.",
    ),
    (
        "with_the_way_into_the_ring",
        slips.validated(named=slips.way_into_the_ring),
        "The way into the ring is part of the result. Follow the waits until a rank comes up again; the ring begins "
        "there, and what came before it is a victim.",
    ),
    (
        "ring_in_the_order_of_ranks",
        slips.validated(named=slips.sorted_ring),
        "The ring is sorted by rank. Each of it stands before the one that it waits for, whatever their numbers are.",
    ),
    (
        "what_is_waited_for",
        slips.validated(named=slips.awaited_steps),
        "The steps that others wait for are named. Name where each rank hangs: the step it cannot begin.",
    ),
    (
        "against_the_waits",
        slips.validated(named=slips.against_the_waiting),
        "The ring is turned round: each place stands before the one that it waits for.",
    ),
    (
        "no_wait_for_the_gradient",
        slips.validated(needs=slips.own_forward_only),
        "A backward begins without the gradient from the stage behind it in the chain. It needs two things: its own "
        "forward and that gradient.",
    ),
    (
        "no_look_for_its_own_forward",
        slips.validated(needs=slips.gradient_only),
        "A backward is let through before its own forward. On the last stage nothing else would hold it back.",
    ),
    (
        "waits_for_the_weights_too",
        slips.validated(needs=slips.whole_backward_of_the_next),
        "A backward waits until the stage behind has done W as well. The gradient of the input leaves with I; W may "
        "come much later, and that is the point of cutting the backward in two.",
    ),
    (
        "weights_at_any_time",
        slips.validated(needs=slips.weights_at_any_time),
        "W is done whenever it stands in the list. It needs the I of its stage and micro-batch.",
    ),
    (
        "a_pair_in_turn",
        slips.validated(in_turn=True),
        "The backward of a pair uses the forward of the same pair. They run at the same time: what either needs must "
        "be done before the step begins.",
    ),
    (
        "neighbours_by_number",
        slips.validated(needs=slips.neighbours_by_number),
        "The stage before s is taken to be s - 1. With two chains the first stage of the second one has nobody before "
        "it: take the neighbours from the chains.",
    ),
    (
        "weights_are_not_missed",
        slips.validated(needed="FI"),
        "An order without some of its W passes. Three parts must be done for each stage and micro-batch: F, I and W. B "
        "does two of them.",
    ),
    (
        "nothing_is_missed",
        slips.validated(missing=False),
        "An order that leaves an action out passes, or ends in a deadlock that has no ring. First see whether all that "
        "must be done stands in the lists.",
    ),
    (
        "missing_at_the_last_step",
        slips.validated(end=-1),
        "What is missing has no step. Its place is the end of the list: the number of steps, which is one more than "
        "the number of the last.",
    ),
    (
        "both_kinds_of_backward",
        slips.validated(parts={kind: kind for kind in "FBIW"}, needed=""),
        "A whole backward and a half of it for the same micro-batch pass, or are not seen to be the same work. B does "
        "what I and W do: count those parts, not the letters.",
    ),
    (
        "done_twice_passes",
        slips.validated(twice=False),
        "An action that is done twice passes. Gradients of weights are summed: one done twice counts double.",
    ),
    (
        "any_rank",
        slips.validated(stray=slips.anywhere),
        "An action passes on a rank that does not have its stage. places[stage] says who has it.",
    ),
    (
        "any_micro_batch_of_the_step",
        slips.validated(stray=slips.only_the_rank),
        "A micro-batch passes on a stage of the other chain. micros says, for each chain, which micro-batches pass it.",
    ),
    (
        "freed_with_the_input_gradient",
        slips.validated(held=lambda steps: slips.held_after(steps, freed="BI")),
        "An activation is freed at I. W still needs it: it is alive until the end of B, or of W.",
    ),
    (
        "freed_before_the_pair",
        slips.validated(held=lambda steps: slips.held_after(steps, after_the_step=True)),
        "Activations are counted when a step is over. While a pair runs, the forward's are there already and the "
        "backward's still: count during the step.",
    ),
    (
        "one_stage_of_the_rank",
        slips.validated(held=slips.of_one_stage),
        "Only one stage of a rank is counted. A rank with two stages holds the activations of both.",
    ),
    (
        "the_limit_itself_is_too_much",
        slips.validated(room=-1),
        "An order that comes to the limit exactly is refused. As many as `limit` may be alive.",
    ),
    (
        "no_limit",
        slips.validated(room=10**9),
        "`limit` is never looked at. An order that runs to its end may still hold too much: on each rank count what is "
        "alive during each step.",
    ),
    (
        "memory_before_deadlock",
        slips.validated(memory_first=True),
        "Memory is looked at before deadlock. The order of the reasons is that of the statement: an order that hangs "
        "is told so first.",
    ),
)

_STOPS = [[("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1)], [("F", 1, 0), ("F", 1, 1), ("B", 1, 0), ("B", 1, 1)]]
_ONE_CHAIN: dict[str, Any] = {"places": [0, 1], "chains": [[0, 1]], "micros": [[0, 1]]}

EXERCISE = Exercise(
    id="12.validate",
    title="Would ranks hang?",
    parameters=("order", "places", "chains", "micros", "limit"),
    kind="host",
    inputs=_inputs,
    reference=slips.validated(),
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the docstring", order=_STOPS, limit=2, **_ONE_CHAIN),
        Case("1F1B, whole, with a limit that it just keeps", schedule="1F1B", p=4, m=6),
        Case("ZB-H1, whole", schedule="ZB-H1", p=4, m=6),
        Case("ZBV, whole: two stages on a rank, and a chain that turns round", schedule="ZBV", p=3, m=6),
        Case("DualPipe, whole: two chains", schedule="DualPipe", p=4, m=8),
        _case("two ranks wait for each other, and two for them", "1F1B", 4, 6, ("shift", 1, 2, 3), ("shift", 2, 3, 2)),
        _case("a rank waits for itself, two wait for it: one before, one behind", "GPipe", 3, 2, ("shift", 1, 0, 3)),
        _case("three ranks in a ring", "interleaved 1F1B", 3, 3, ("shift", 1, 11, 8)),
        _case("four ranks in a ring, not in the order of their numbers", "interleaved 1F1B", 4, 4, ("shift", 1, 1, 5)),
        _case("an input gradient too early, on the way back through a V", "ZBV", 2, 2, ("shift", 1, 10, 7)),
        _case("a backward before its own forward, on the last stage", "1F1B", 3, 4, ("shift", 2, 3, 2)),
        _case("one rank, a backward before its forward", "GPipe", 1, 2, ("shift", 0, 2, 0)),
        _case("the same in the middle, before the forward could even come", "1F1B", 3, 6, ("shift", 1, 10, 2)),
        _case("the last rank alone hangs, at its end", "DualPipe", 2, 4, ("shift", 1, 7, 6)),
        _case("W before I, on the last rank", "ZB-H1", 3, 5, ("shift", 2, 6, 1)),
        _case(
            "a pair of the forward and the backward of one micro-batch",
            *("1F1B", 3, 3, ("lose", 2, 0), ("be", 2, 0, (("F", 2, 0), ("B", 2, 0)))),
        ),
        _case("a forward is missing in the middle", "1F1B", 3, 4, ("lose", 1, 3)),
        _case("three are missing, on two ranks", "1F1B", 3, 4, ("lose", 1, 3), ("lose", 2, 6), ("lose", 2, 1)),
        _case("a W is missing", "ZB-H1", 3, 4, ("lose", 1, 11)),
        _case("an input gradient without its W, among full backwards", "1F1B", 2, 3, ("be", 1, 5, ("I", 1, 2))),
        _case("a backward is done twice", "1F1B", 3, 4, ("double", 1, 2, 6)),
        _case("W behind a full backward, which has done it", "1F1B", 3, 4, ("add", 1, 8, ("W", 1, 3))),
        _case("twice on rank 0, stray on rank 1", "1F1B", 3, 4, ("double", 0, 0, 3), ("add", 1, 0, ("F", 2, 0))),
        _case("stray on rank 0, twice on rank 1", "1F1B", 3, 4, ("add", 0, 0, ("F", 1, 0)), ("double", 1, 2, 6)),
        _case("missing: of stage 3 on rank 0, of stage 1 on rank 1", "DualPipe", 2, 4, ("lose", 0, 1), ("lose", 1, 1)),
        _case("missing: a backward on rank 0, a forward on rank 1", "1F1B", 3, 4, ("lose", 0, 7), ("lose", 1, 0)),
        _case("an action on a rank that has another stage", "1F1B", 3, 4, ("move", 1, 7, 2)),
        _case("a micro-batch of the other chain", "DualPipe", 2, 4, ("be", 0, 0, ("F", 0, 2))),
        _case("a stage that nobody has", "GPipe", 2, 3, ("be", 1, 1, ("F", 2, 1))),
        _case("one activation more than the limit", "1F1B", 4, 6, short=1),
        _case("a W comes late: its activations are alive", "ZB-H1", 2, 4, ("shift", 1, 4, 11), short=1),
        _case("over the limit before its peak", "1F1B", 4, 6, short=2),
        _case("two ranks over the limit, the second by more", "ZB-H1", 2, 4, ("shift", 1, 4, 11), short=2),
        _case("a pair holds both of its micro-batches", "DualPipe", 4, 8, short=1),
        _case("two stages on a rank hold activations", "ZBV", 2, 4, short=1),
        _case("a deadlock, and too many activations", "1F1B", 3, 4, ("shift", 0, 3, 1), ("shift", 2, 2, 1), short=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda order, places, chains, micros, limit: ("deadlock", [(0, 0)]),
        "ones": lambda order, places, chains, micros, limit: ("deadlock", [(1, 1)]),
        "nan": lambda order, places, chains, micros, limit: float("nan"),
        "the input": lambda order, places, chains, micros, limit: order,
        "nothing": slips.never_anything,
    },
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "A pointer for each rank, at its next step, and a set of what is done. A rank goes on while all that its next "
        "step needs is in the set. When nobody can, are the pointers at the ends of the lists?",
        "Let B do two parts, I and W, and put parts into the set: (part, stage, micro). Then 'twice' is a part seen "
        "before, 'missing' is a part never seen, and a backward waits for ('I', next stage, micro), whoever did it.",
        "Every rank that hangs waits for a part that is not done; places[stage] of it is the rank to go to. path = "
        "[rank]; while the next rank is not in path: append it; the ring is path[path.index(next):], each with its "
        "pointer. Memory is a running sum on each rank: plus its F, look, minus its B and W.",
    ),
    explanation=(
        "An executor that only waits has no choices that matter: whatever rank it looks at first, the same steps get "
        "done, since a step that can run can still run later. So where nobody moves, the order is broken, and the "
        "pointers say where. Each rank that hangs waits for an action that stands at or behind another pointer, so a "
        "walk along the waits must come back to a rank: a ring. Real ranks do the same, except that they say nothing: "
        "a receive that no send answers hangs until a watchdog ends the job, and the log names the victims too."
    ),
)
