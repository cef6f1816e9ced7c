"""Orders of pipeline schedules: torch's own, closed formulas, and a checker that finds what is broken."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch.distributed.pipelining.schedules as theirs
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.analytic.schedules import BUBBLES, Costs, actions_of, arranged
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.exercises.u12_pipeline_schedules.checker import faults
from gpu_utils.exercises.u12_pipeline_schedules.lesson_runs import scheduled, simulated, timed
from gpu_utils.exercises.u12_pipeline_schedules.orders import WRITERS, schedule
from gpu_utils.exercises.u12_pipeline_schedules.simulator import simulate

SIZES = [(p, m) for p in range(1, 7) for m in (1, 2, 3, 4, 5, 6, 8, 12, 16, 20)]


def exist(name, sizes=SIZES):
    """(p, m) for which a schedule exists, with it."""
    for p, m in sizes:
        try:
            yield p, m, schedule(name, p, m)
        except BadArgument:
            continue


# --- torch.distributed.pipelining -----------------------------------------------------------------------------------


LETTERS = {theirs.FORWARD: "F", theirs.FULL_BACKWARD: "B", theirs.BACKWARD_INPUT: "I", theirs.BACKWARD_WEIGHT: "W"}


def of_torch(kind, p, m, v=1):
    """The order that a class of torch writes, without its idle slots and its reductions."""
    own = object.__new__(kind)
    own._num_stages = own.num_stages = p * v
    own._n_microbatches, own.pp_group_size, own.n_local_stages = m, p, v
    own.number_of_rounds = max(1, m // p)
    own.microbatches_per_round = m // own.number_of_rounds
    if hasattr(kind, "_calculate_single_rank_operations"):
        orders = [own._calculate_single_rank_operations(rank) for rank in range(p)]
    else:
        orders = [own._get_pipeline_order()[rank] for rank in range(p)]
    return tuple(tuple(filter(None, map(ours, steps))) for steps in orders)


def ours(action):
    if action is None or action.computation_type == theirs.REDUCE_GRAD:
        return None
    if action.sub_actions:
        return tuple(map(ours, action.sub_actions))
    return LETTERS[action.computation_type], action.stage_index, action.microbatch_index


def as_torch(step):
    actions = [
        theirs._Action(stage, theirs._ComputationType.from_str(kind), micro) for kind, stage, micro in actions_of(step)
    ]
    return actions[0] if len(actions) == 1 else theirs._Action(-1, theirs.OVERLAP_F_B, None, tuple(actions))


SAME = {
    "GPipe": (theirs.ScheduleGPipe, 1, lambda p, m: True),
    "interleaved 1F1B": (theirs.ScheduleInterleaved1F1B, 2, lambda p, m: True),
    "ZB-H1": (theirs.ScheduleInterleavedZeroBubble, 1, lambda p, m: m % max(1, m // p) == 0),
    "ZBV": (theirs.ScheduleZBVZeroBubble, 2, lambda p, m: True),
    "DualPipeV": (theirs.ScheduleDualPipeV, 2, lambda p, m: True),
}


@pytest.mark.parametrize("name", SAME)
def test_an_order_is_the_one_that_torch_writes(name):
    kind, v, holds = SAME[name]
    compared = [of_torch(kind, p, m, v) == own.order for p, m, own in exist(name) if holds(p, m)]
    assert len(compared) >= 20
    assert all(compared)


def test_1f1b_is_what_torch_writes():
    for p, m, own in exist("1F1B"):
        for rank, steps in enumerate(own.order):
            warm, same = min(p - 1 - rank, m), (lambda op, rank=rank: rank)
            found = theirs._get_1f1b_rank_ops(1, p, warm, m - warm, warm, rank, same, same)
            assert tuple(filter(None, map(ours, found))) == steps


def test_torchs_table_of_1f1b_differs_on_the_last_rank_and_for_fewer_micro_batches_than_ranks():
    for p, m, own in exist("1F1B"):
        if m >= p:  # below, its table has micro-batches that are not there
            found = of_torch(theirs.Schedule1F1B, p, m)
            assert found[:-1] == own.order[:-1]
            later = tuple((kind, stage, micro + (kind == "F")) for kind, stage, micro in own.order[-1])
            assert found[-1] == later  # torch 2.13 counts the forwards of the last rank from 1 in this table


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "DualPipe"])  # theirs knows one chain
def test_torch_finds_an_order_valid(name):
    for p, m, own in exist(name):
        orders = {rank: [as_torch(step) for step in steps] for rank, steps in enumerate(own.order)}
        theirs._validate_schedule(orders, p, len(own.places), m)


def test_the_two_directions_of_dualpipe_are_mirror_images():
    own = schedule("DualPipe", 6, 16)
    for rank in range(6):
        mirrored = [
            tuple((kind, (stage + 6) % 12, (micro + 8) % 16) for kind, stage, micro in actions_of(step))
            for step in own.order[rank]
        ]
        assert mirrored == [actions_of(step) for step in own.order[5 - rank]]


# --- what they cost -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_every_order_can_run(name):
    sizes = list(exist(name))
    assert len(sizes) >= 8
    assert [faults(own) for _, _, own in sizes] == [[]] * len(sizes)


EXACT = {
    "GPipe": lambda p, m, c: True,
    "1F1B": lambda p, m, c: True,
    "interleaved 1F1B": lambda p, m, c: m % p == 0,
    "ZB-H1": lambda p, m, c: m >= p and min(c.F, c.I) >= c.W,
    "DualPipe": lambda p, m, c: c.I == c.F and c.W <= c.F,
    "DualPipeV": lambda p, m, c: c.I == c.F and c.W <= c.F,
}
COSTS = [Costs(2, 2, 2), Costs(4, 4, 3), Costs(4, 5, 3), Costs(3, 2, 1), Costs(2, 4, 1), Costs(2, 3, 4)]


@pytest.mark.parametrize("name", EXACT)
def test_a_rank_is_idle_as_long_as_the_closed_formula_says(name):
    held = 0
    for p, m, own in exist(name):
        for costs in COSTS:
            if EXACT[name](p, m, costs):
                held += 1
                assert set(simulate(own, costs).idle) == {BUBBLES[name](p, costs)}, (p, m, costs)
    assert held >= 16


@pytest.mark.parametrize("name", ["DualPipe", "DualPipeV"])
@pytest.mark.parametrize("costs", [Costs(2, 2, 1, Fraction(3, 4)), Costs(4, 5, 3, Fraction(9, 10)), Costs(2, 3, 2)])
def test_dualpipe_is_never_idle_for_longer_than_its_formula_says(name, costs):
    for p, m, own in exist(name):
        assert max(simulate(own, costs).idle) <= BUBBLES[name](p, costs), (p, m)


@pytest.mark.parametrize(("costs", "seconds"), [(Costs(4, 5, 3), 9 * 5 - 3 * 3), (Costs(4, 4, 4), 8 * 5 - 4 * 3)])
def test_fewer_micro_batches_than_ranks_leave_fewer_weight_gradients_to_fill_with(costs, seconds):
    run = simulate(schedule("ZB-H1", 6, 4), costs)
    assert set(run.idle) == {seconds}  # (p - 1)(F + I) - (m - 1) W


def test_weight_gradients_that_take_longest_do_not_fit_into_the_gaps():
    costs = Costs(2, 2, 4)
    run = simulate(schedule("ZB-H1", 4, 12), costs)
    assert max(run.idle) == 3 * (2 + 2 - 2) > BUBBLES["ZB-H1"](4, costs)


PEAKS = {
    "GPipe": lambda p, m, r: m,
    "1F1B": lambda p, m, r: min(p - r, m),
    "ZB-H1": lambda p, m, r: min(p, m),
    "DualPipe": lambda p, m, r: p + 1,
    "DualPipeV": lambda p, m, r: 2 * p + 1,
}


@pytest.mark.parametrize("name", PEAKS)
def test_the_peak_of_alive_activations(name):
    for p, m, own in exist(name):
        assert simulate(own).memory == tuple(PEAKS[name](p, m, rank) for rank in range(p)), (p, m)


def test_zbv_is_idle_only_while_the_first_micro_batch_comes_and_keeps_what_1f1b_keeps():
    run = scheduled("ZBV", 4, 12)
    assert run.idle == (3.0,) * 4
    assert run.memory == (8,) * 4  # halves of 1F1B's stages
    for rank, spans in enumerate(run.spans):
        assert spans[0][0] == rank
        assert spans[-1][1] - spans[0][0] == run.busy[rank]  # nothing between its first step and its last


def test_a_delay_of_links_and_uneven_stages_are_in_no_formula():
    own = schedule("1F1B", 4, 8)
    even, late = simulate(own, Costs()), simulate(own, Costs(link=0.5))
    assert late.seconds - even.seconds > 2 * 3 * 0.5  # more than the way down and back
    uneven = simulate(own, Costs(scale=(1, 1, 1, 2)))
    assert uneven.seconds > even.seconds + 8 * 3 - 1
    assert uneven.idle[0] > uneven.idle[3]


def test_times_are_exact_where_costs_are():
    assert simulate(schedule("ZB-H1", 3, 4), Costs(1, 1, Fraction(1, 3), link=Fraction(1, 7))).seconds.denominator == 21


# --- the checker ----------------------------------------------------------------------------------------------------

WHOLE = [("1F1B", 3, 4), ("interleaved 1F1B", 2, 4), ("ZB-H1", 4, 5), ("ZBV", 2, 3), ("DualPipe", 4, 8)]


def flat(order):
    return [(rank, at) for rank, steps in enumerate(order) for at in range(len(steps))]


def runs(own):
    """Whether an order comes to its end, by a runner that knows nothing of the checker: one step, chosen at random."""
    needed = {
        (kind, stage, micro)
        for chain, micros in zip(own.chains, own.micros, strict=True)
        for stage in chain
        for micro in micros
        for kind in "FIW"
    }
    beside = {s: (chain[i - 1] if i else None, chain[i + 1] if i + 1 < len(chain) else None)
              for chain in own.chains for i, s in enumerate(chain)}  # fmt: skip
    done, at = set(), [0] * len(own.order)
    for _ in range(sum(map(len, own.order))):
        for rank, steps in enumerate(own.order):
            if at[rank] == len(steps):
                continue
            asked, gives = set(), set()
            for kind, stage, micro in actions_of(steps[at[rank]]):
                if stage not in beside or own.places[stage] != rank or micro not in own.micros[_chain(own, stage)]:
                    return False
                before, after = beside[stage]
                asked |= {("F", before, micro)} if kind == "F" and before is not None else set()
                asked |= {("F", stage, micro)} if kind in "BI" else set()
                asked |= {("I", after, micro)} if kind in "BI" and after is not None else set()
                asked |= {("I", stage, micro)} if kind == "W" else set()
                gives |= {(part, stage, micro) for part in ("IW" if kind == "B" else kind)}
            if gives & done:
                return False
            if asked <= done:
                done |= gives
                at[rank] += 1
                break
        else:
            return False
    return done == needed


def _chain(own, stage):
    return next(number for number, chain in enumerate(own.chains) if stage in chain)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_broken_order_is_found_and_a_changed_one_that_runs_is_not(data):
    name, p, m = data.draw(st.sampled_from(WHOLE))
    own = schedule(name, p, m)
    order = [list(steps) for steps in own.order]
    for _ in range(data.draw(st.integers(1, 2))):
        rank, at = data.draw(st.sampled_from(flat(order)))
        to, there = data.draw(st.sampled_from(flat(order)))
        match data.draw(st.sampled_from(["drop", "double", "swap", "move", "change"])):
            case "drop":
                del order[rank][at]
            case "double":
                order[to].insert(there, order[rank][at])
            case "swap":
                order[rank][at], order[to][there] = order[to][there], order[rank][at]
            case "move":
                order[rank].insert(there, order[rank].pop(at))
            case "change":
                _, stage, micro = actions_of(order[rank][at])[0]
                order[rank][at] = (data.draw(st.sampled_from("FBIW")), stage + data.draw(st.integers(0, 1)), micro)
    layout = WRITERS[name][1]
    broken = arranged(order, p, m, layout, 2 if name.startswith("inter") else 1)
    found = faults(broken)
    assert bool(found) == (not runs(broken))
    if found:
        with pytest.raises(BadArgument):
            simulate(broken)
        for fault in found:
            assert fault.step is None or 0 <= fault.step < len(order[fault.rank])


def faulty(*ranks, m=2, layout="line"):
    return [(f.rank, f.step, f.kind) for f in faults(arranged(list(ranks), len(ranks), m, layout))]


F, B, I, W = (lambda stage, micro, kind=kind: (kind, stage, micro) for kind in "FBIW")  # noqa: E741


def test_each_kind_of_fault_has_its_name():
    down = [F(0, 0), F(0, 1), B(0, 0), B(0, 1)]
    assert faulty(down, [F(1, 0), B(1, 0), F(1, 1), B(1, 1)]) == []
    assert faulty(down, [F(1, 0), B(1, 0), F(1, 1)]) == [(1, None, "missing")]
    assert faulty(down, [F(1, 0), B(1, 0), F(1, 1), I(1, 1)]) == [(1, None, "missing")]
    assert faulty(down, [F(1, 0), F(1, 0), B(1, 0), F(1, 1), B(1, 1)]) == [(1, 1, "twice")]
    assert faulty(down, [F(1, 0), B(1, 0), F(1, 1), I(1, 1), B(1, 1)]) == [(1, 3, "split")]
    assert faulty(down, [F(1, 0), B(1, 0), F(1, 1), B(1, 1), F(1, 2)]) == [(1, 4, "unknown")]
    assert faulty(down, [F(1, 0), B(1, 0), F(1, 1), B(1, 1), F(2, 0)]) == [(1, 4, "unknown")]
    assert faulty([*down[:3], B(1, 1)], [F(1, 0), B(1, 0), F(1, 1), B(0, 1)]) == [(0, 3, "rank"), (1, 3, "rank")]
    assert faulty(down, [F(1, 0), B(1, 0), (B(1, 1), F(1, 1))]) == [(0, 3, "deadlock"), (1, 2, "order")][::-1]
    assert faulty(down, [F(1, 0), (F(1, 1), I(1, 0)), W(1, 0), B(1, 1)]) == [(1, 1, "pair")]
    assert faulty(down, [B(1, 0), F(1, 0), F(1, 1), B(1, 1)])[0] == (1, 0, "order")
    assert faulty(down, [F(1, 1), B(1, 1), F(1, 0), B(1, 0)]) == []
    assert faulty([F(0, 0), B(0, 0), F(0, 1), B(0, 1)], [F(1, 1), B(1, 1), F(1, 0), B(1, 0)]) == [
        (0, 1, "deadlock"),
        (1, 0, "deadlock"),
    ]


def test_a_sentence_names_the_two_steps_that_wait_for_each_other():
    waits = faults(arranged([[F(0, 0), B(0, 0), F(0, 1), B(0, 1)], [F(1, 1), B(1, 1), F(1, 0), B(1, 0)]], 2, 2))
    assert waits[0].sentence == (
        "step 1 of rank 0, B(stage 0, micro 0), needs B(stage 1, micro 0), which is step 3 of rank 1, and that waits "
        "too, at its step 0, F(stage 1, micro 1)"
    )


# --- forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (None, "the order is None; expected a list"),
        ([[]], "the steps of 1 ranks; expected 2"),
        ([[], 3], "the steps of rank 1 are 3"),
        ([[], [("F", 0, 0), "F"]], "step 1 of rank 1 is 'F'"),
        ([[("X", 0, 0)], []], r"step 0 of rank 0 is \('X', 0, 0\)"),
        ([[("F", 0.5, 0)], []], "expected"),
        ([[("F", True, 0)], []], "expected"),
        ([[(("F", 0, 0), ("B", 0, 0), ("B", 0, 1))], []], "pair"),
    ],
)
def test_an_order_of_another_form_is_refused_in_a_sentence(order, words):
    with pytest.raises(BadArgument, match=words):
        arranged(order, p=2, m=1)


def test_names_and_sizes_that_do_not_exist_are_refused():
    with pytest.raises(UnknownName, match="1F1B"):
        schedule("1F1b", 2, 2)
    with pytest.raises(UnknownName, match="line"):
        arranged([[]], 1, 1, "ring")
    for name, p, m in (("DualPipe", 3, 8), ("DualPipe", 4, 6), ("DualPipeV", 2, 3), ("interleaved 1F1B", 4, 9)):
        with pytest.raises(BadArgument, match=r"expected|try"):
            schedule(name, p, m)
    with pytest.raises(BadArgument, match="expected 1 or more"):
        schedule("GPipe", 0, 1)


def test_an_order_of_ones_own_runs_and_may_bring_its_times():
    order = [[["F", 0, 0], ["B", 0, 0]]]
    assert simulated(order, 1, I=2).seconds == 4
    assert timed(order, [[(0.0, 0.5), (1.0, 2.0)]], 1).idle == (0.5,)
    with pytest.raises(BadArgument, match=r"\[1\] spans by rank; expected \[2\]"):
        timed(order, [[(0.0, 0.5)]], 1)
