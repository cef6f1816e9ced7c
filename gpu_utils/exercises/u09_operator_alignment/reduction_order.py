"""09.reduction_order: sums in four orders to the bit, what each is off at most, and the cheapest that is enough."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT, Tolerance, tolerance
from gpu_utils.exercises.u09_operator_alignment.reduction_order_slips import slipped
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
ORDERS = ("sequential", "lanes", "pairwise", "kahan")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Terms of which a share is negative, so that sums cancel in part; `within` orders are good enough."""
    shape = case["rows"], case["K"]
    x = torch.rand(shape, generator=generator) + 0.5
    negative = torch.rand(shape, generator=generator) < case.get("negative", 0.0)
    x = torch.where(negative, -x, x)
    cancel = slice(*case.get("cancel", (0, 0)))
    x[cancel, 1::2] = x[cancel, : shape[1] // 2 * 2 : 2] * (-15 / 16)
    x = x * torch.exp2(torch.arange(shape[0]) % 4 - 2.0)[:, None]
    x[1::2] = -x[1::2]
    x = x.to(DTYPES[case["dtype"]])
    given = {"x": x, "lanes": case["lanes"], "costs": dict(zip(ORDERS, case["costs"], strict=True))}
    return given | {"allowed": _allowed(given, case["within"])}


def _allowed(given: Inputs, within: int) -> float:
    """Between the bound of the last order that is good enough and that of the next one; equal ones share a place."""
    bounds = reduction_order_reference(**given, allowed=0.0)["bounds"].values()
    worst = sorted({float(bound.max()) for bound in bounds} - {math.inf})
    low, high = ([worst[0] / 4, *worst][within], [*worst, 4 * worst[-1]][within])
    return math.sqrt(low * high)


def reduction_order_reference(x: Tensor, lanes: int, costs: Mapping[str, float], allowed: float) -> dict[str, Any]:
    """Sums in the type of x, bounds in float64, the name of an order or "none".

    >>> costs = {"sequential": 3.0, "lanes": 1.0, "pairwise": 2.0, "kahan": 9.0}
    >>> x = torch.tensor([[2048.0, 1, 1, 1, 1]], dtype=torch.float16)
    >>> found = reduction_order_reference(x, 2, costs, 0.0015)
    >>> [total.item() for total in found["sums"].values()], found["choose"]
    ([2048.0, 2050.0, 2052.0, 2052.0], 'lanes')
    """
    return slipped()(x, lanes, costs, allowed)


def _tolerance(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    # in float64 the sums of these terms are exact; a few multiplications and divisions follow
    return {"sums": EXACT, "bounds": tolerance(torch.float64, magnitude=0.0, roundings=20), "choose": EXACT}


def _fresh(rng: random.Random) -> Case:
    costs = rng.sample([1.0, 1.5, 2.0, 4.0, 6.0], k=4)
    return Case(
        "terms that nobody chose",
        dtype=rng.choice(sorted(DTYPES)),
        rows=rng.randint(2, 9),
        K=rng.randint(30, 200),
        lanes=rng.choice([4, 16, 32, 64]),
        negative=rng.choice([0.0, 0.2, 0.3]),
        costs=tuple(costs),
        within=rng.randint(0, 2),
    )


def _case(why: str, dtype: str, rows: int, K: int, lanes: int, costs: tuple[float, ...], **more: Any) -> Case:
    """costs: of ORDERS; within: how many orders are good enough; negative: the share of negative terms;
    cancel: rows whose terms cancel but for a 31st."""
    return Case(why, dtype=dtype, rows=rows, K=K, lanes=lanes, costs=costs, **more)


_BOUND, _CHOICE = "The sums are right. ", "Sums and bounds are right. "

_WRONG: tuple[tuple[str, str], ...] = (
    (
        "torch_sum",
        "torch.sum has its own order, in several lanes, and its running sums of 16-bit types are wider. `sequential` "
        "is one addition after the other, each rounded to the type of x.",
    ),
    (
        "running_sum_of_torch",
        "torch.cumsum keeps a wider running sum inside. `sequential` rounds every addition to the type of x.",
    ),
    (
        "in_float32",
        "The additions are made in float32 and only the result is rounded. In these orders every addition is rounded "
        "to the type of x.",
    ),
    (
        "in_float64",
        "The additions are made in float64 and only the result is rounded: all orders give the same then. Every "
        "addition is rounded to the type of x.",
    ),
    (
        "consecutive_pieces",
        "`lanes`: every lane has a piece of neighbouring terms here. Lane j takes terms j, j + lanes, j + 2 lanes, "
        "..., as lanes do that load side by side.",
    ),
    (
        "neighbouring_lanes",
        "`lanes`: neighbouring lanes are added at the end. Lane i adds what lane i + n / 2 has, as in a shuffle down "
        "by half.",
    ),
    (
        "lanes_one_by_one",
        "`lanes`: the sums of the lanes are added one after the other. They form a tree: half of the lanes add what "
        "the other half has.",
    ),
    (
        "rest_is_lost",
        "`lanes`: where K is no multiple of lanes, the terms behind the last full round are missing.",
    ),
    (
        "split_in_the_middle",
        "`pairwise`: the row is split in the middle, again and again. Asked are neighbours, 0 and 1, 2 and 3: both are "
        "trees, and where K is no power of two they are two.",
    ),
    (
        "odd_is_lost",
        "`pairwise`: where the number of terms is odd, the last one is lost. It waits for the next round.",
    ),
    (
        "odd_joins_the_last",
        "`pairwise`: an odd term is added to the last pair at once. It waits for the next round, as it is.",
    ),
    (
        "odd_in_front",
        "`pairwise`: the odd term is taken from the front. Pairs begin at 0, and the last term waits.",
    ),
    (
        "lost_is_added",
        "`kahan`: what was lost goes in with the wrong sign, so each correction doubles the error. (larger - total) - "
        "mended is what was added too much.",
    ),
    (
        "lost_of_the_term",
        "`kahan`: what is lost is measured from the term as it came. Measure it from the term that was added, from "
        "which the last loss had been taken.",
    ),
    (
        "lost_adds_up",
        "`kahan`: nothing is ever lost here, by algebra: larger - (total + mended) is 0. The order of the two "
        "subtractions is what finds the loss.",
    ),
    (
        "counts_terms",
        _BOUND + "`sequential`: K terms take K - 1 additions; the first term goes through all of them.",
    ),
    (
        "lanes_without_their_tree",
        _BOUND + "`lanes`: the additions between the lanes are not counted. How often are they halved?",
    ),
    (
        "lanes_without_their_steps",
        _BOUND + "`lanes`: only the tree at the end is counted. Before it, each lane adds the terms of its own.",
    ),
    (
        "steps_rounded_down",
        _BOUND + "`lanes`: where K is no multiple of lanes some lanes have a term more; the worst term is there.",
    ),
    (
        "steps_not_additions",
        _BOUND + "`lanes`: a lane with n terms makes n - 1 additions, not n.",
    ),
    (
        "tree_of_all_lanes",
        _BOUND + "`lanes`: the tree has lanes - 1 additions, but a term goes through one on each level only.",
    ),
    (
        "levels_rounded_down",
        _BOUND + "`pairwise`: where K is no power of two there is one more round than log2 rounded down.",
    ),
    ("levels_with_a_fraction", _BOUND + "`pairwise`: rounds are whole ones. How many are needed until one is left?"),
    (
        "all_additions",
        _BOUND + "The height is K - 1 for every order: that is how many additions there are. Count those that a "
        "single term goes through.",
    ),
    (
        "eps_for_u",
        _BOUND + "They are twice too large: u is half of eps, as a rounding to the nearest is off by half a step.",
    ),
    ("u_of_float32", _BOUND + "The unit roundoff is that of float32. The additions are rounded to the type of x."),
    ("first_order", _BOUND + "h u is only the first term of gamma: the bound divides by 1 - h u."),
    (
        "negative_bound",
        _BOUND + "Where h u is 1 or more gamma comes out negative, which is within everything. There is no bound: "
        "infinity.",
    ),
    ("kahan_first_order", _BOUND + "`kahan`: the term 8 K u^2 is missing. In 16 bits it counts."),
    ("kahan_everywhere", _BOUND + "`kahan`: the formula holds for K u up to 0.1. Beyond it there is no bound."),
    ("kahan_as_sequential", _BOUND + "`kahan`: the additions are corrected, so that the bound does not grow with K."),
    (
        "backward",
        _BOUND + "They are over the sizes of the terms. Asked is the error over the sum itself: where terms cancel it "
        "is larger, by the condition.",
    ),
    ("absolute", _BOUND + "They are absolute errors. Asked is the error over the size of the exact sum."),
    (
        "over_the_computed_sum",
        _BOUND + "The condition is taken with the computed sums. Divide by the exact one, in float64.",
    ),
    ("sign_of_the_sum", _BOUND + "Where a sum is negative its bound is, too. Divide by its size."),
    (
        "one_row",
        _CHOICE + "The choice is good for one row, not for all: every row must be within `allowed`.",
    ),
    ("mean_row", _CHOICE + "The choice looks at the mean of the rows: every row must be within `allowed`."),
    ("cheapest_of_all", _CHOICE + "The choice is the cheapest order, whatever its bound is."),
    (
        "most_exact",
        _CHOICE + "The choice is the order with the least bound. Of those that are enough, take the cheapest.",
    ),
    ("dearest", _CHOICE + "The choice is the dearest of those that are enough. Take the cheapest."),
    ("always_one", _CHOICE + "Where no bound is within `allowed`, the choice is `none`: a wider type is needed."),
    (
        "measured",
        _CHOICE + "The choice goes by the errors of these rows. The next rows have others: a bound is what holds for "
        "all.",
    ),
)

EXERCISE = Exercise(
    id="09.reduction_order",
    title="Four orders, their bounds, and the cheapest",
    parameters=("x", "lanes", "costs", "allowed"),
    kind="host",
    inputs=_inputs,
    reference=reduction_order_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: {"sums": inputs["x"].dtype, "bounds": torch.float64, "choose": None},
    parts=("sums", "bounds", "choose"),
    cases=(
        Example(
            "the example of the docstring",
            x=lambda: torch.tensor([[2048.0, 1, 1, 1, 1]], dtype=torch.float16),
            lanes=2,
            costs={"sequential": 3.0, "lanes": 1.0, "pairwise": 2.0, "kahan": 9.0},
            allowed=0.0015,
        ),
        _case(
            "a wave of 64, and a row that cancels: the other rows would allow a cheaper order",
            *("float32", 12, 231, 64, (1.0, 3.0, 2.0, 5.0)),
            cancel=(11, 12),
            within=3,
        ),
        _case(
            "a warp of 32: K is odd in several rounds, and of both signs",
            *("float32", 5, 107, 32, (1.0, 2.0, 3.0, 1.5)),
            negative=0.3,
            within=1,
        ),
        _case(
            "bfloat16 and 270 terms: two orders have no bound",
            *("bfloat16", 4, 270, 32, (1.0, 4.0, 3.0, 2.0)),
            within=2,
        ),
        _case(
            "float16, where the small term of Kahan's bound counts: nothing is good enough",
            *("float16", 16, 200, 16, (1.0, 2.0, 3.0, 4.0)),
            within=0,
        ),
        _case(
            "fewer terms than lanes, and K u of 0.16 with few bits",
            *("bfloat16", 3, 40, 64, (4.0, 3.0, 2.0, 1.0)),
            negative=0.2,
            within=1,
        ),
        _case(
            "a power of two, where every tree is full; only the first row does not cancel",
            *("float16", 4, 128, 8, (2.0, 4.0, 3.0, 5.0)),
            cancel=(1, 4),
            within=3,
        ),
        _case("bfloat16 where h u is exactly 1", *("bfloat16", 2, 257, 8, (1.0, 3.0, 2.0, 4.0)), within=1),
        _case("five terms for 64 lanes: most add zeros", *("float32", 3, 5, 64, (1.0, 3.0, 2.0, 4.0)), within=2),
        _case("one lane, two terms", *("float32", 3, 2, 1, (2.0, 3.0, 1.0, 4.0)), within=1),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(name, slipped(name), hint) for name, hint in _WRONG),
    hints=(
        "Loop over terms or rounds, never over rows: x[:, i] is a term of all rows, and one addition of two such "
        "columns rounds each row to the type of x. For each order draw its tree for K = 5: which term goes through "
        "most additions?",
        "lanes: pad with zeros to a multiple, view as (rows, steps, lanes), add over steps, then halve. pairwise: "
        "x[:, :-1:2] + x[:, 1::2], and what is left over behind it. Heights: K - 1; the steps of a lane less one, plus "
        "the halvings; the rounds. The condition is sum |x| / |sum x| in float64.",
        "kahan: mended = term - lost; larger = total + mended; lost = (larger - total) - mended; total = larger. "
        "lanes' height: ceil(K / lanes) - 1 + log2(lanes); pairwise: ceil(log2(K)). bound = h u / (1 - h u) x "
        "condition, math.inf where h u >= 1. choose: min over the names with (bounds[name] <= allowed).all(), by "
        "costs; `none` where there are none.",
    ),
    explanation=(
        "The worst case of a sum is decided by its tree alone: each addition multiplies what goes through it by a "
        "factor of 1 + d, so the term at the bottom of the tree is off most. A loop has the height K, a wave of lanes "
        "a 32nd or a 64th of it and some levels, a full tree the logarithm. Kahan's sum keeps what an addition lost "
        "and is nearly free of K, for four operations in place of one, and until K u is no longer small. None of them "
        "mends a sum whose terms cancel: the condition multiplies them all. So what is asked of a kernel is decided by "
        "K, the type and the data, and only then by the price."
    ),
)
