"""11.combine: the experts' results back to their tokens, summed in the order of k."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT, Tolerance, tolerance
from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.exercises.u11_expert_parallelism import combine_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.exchange import (
    Copy,
    Ranks,
    by_rank,
    copies_between,
    counts_of,
    drawn,
    given,
    numbers,
    too_many_or_few,
)
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

_LARGE = 2.0**26
"""Beside it a float32 has no place for 1: (large + 1) - large is 0, and (large - large) + 1 is 1."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    inputs = given(drawn(case, generator), case)
    E = case["num_experts"]

    def of_rank(group: list[int], number: int, copies: list[Copy]) -> tuple[Tensor, Tensor]:
        return numbers(case, len(copies), generator), counts_of(copies, len(group), E // len(group))

    for one, (y, counts) in zip(inputs["each"], by_rank(inputs, E, of_rank), strict=True):
        one["y"], one["counts"] = y, counts
    if case.get("cancels"):
        _cancel(inputs, E, generator)
    return {
        **inputs,
        "each": [{name: one[name] for name in ("y", "counts", "experts", "weights")} for one in inputs["each"]],
    }


def _cancel(inputs: Inputs, E: int, generator: torch.Generator) -> None:
    """Results of each token: 1, a large number, its negative and 1, shuffled anew in each column; weights 0.5 or 2."""
    for one in inputs["each"]:
        one["weights"] = torch.exp2(2.0 * torch.randint(0, 2, one["weights"].shape, generator=generator) - 1)
    width = inputs["each"][0]["y"].shape[1]
    terms = torch.tensor([1.0, _LARGE, -_LARGE, 1.0])
    sums = [terms[torch.rand(len(one["experts"]), width, 4, generator=generator).argsort(2)] for one in inputs["each"]]

    def fill(group: list[int], number: int, copies: list[Copy]) -> None:
        for row, copy in zip(inputs["each"][group[number]]["y"], copies, strict=True):
            source = group[copy.source]
            weight = inputs["each"][source]["weights"][copy.token, copy.slot]
            row.copy_(sums[source][copy.token, :, copy.slot] / weight)

    by_rank(inputs, E, fill)


def _experts_in_all(inputs: Inputs) -> int:
    return inputs["each"][0]["counts"].numel()


def results_of(inputs: Inputs, sent: Callable[[list[Copy]], list[Copy]] = lambda copies: copies) -> list[Tensor]:
    """(T, k, D) for each rank: row t, j is what expert experts[t, j] made of token t.

    sent: the copies whose results lie in a rank's rows -> those that they are taken for at home
    """
    found = [torch.zeros(*one["experts"].shape, one["y"].shape[1]).to(one["y"].dtype) for one in inputs["each"]]

    def note(group: list[int], number: int, copies: list[Copy]) -> None:
        for row, copy in zip(inputs["each"][group[number]]["y"], sent(copies), strict=True):
            found[group[copy.source]][copy.token, copy.slot] = row

    by_rank(inputs, _experts_in_all(inputs), note)
    return found


def _unsorted(copies: list[Copy]) -> list[Copy]:
    """Rows are cut into pieces as they lie, by expert; each source takes its piece for its own copies."""
    return sorted(copies, key=lambda c: (c.source, c.local, c.token))


def _by_expert(results: Tensor, experts: Tensor) -> Tensor:
    """The results of a rank as they come home: by expert, then token."""
    return results.flatten(0, 1)[experts.flatten().argsort(stable=True)]


def _summed(total: slips.Sum, sent: Any = None, placed: Any = None, weights: Any = None) -> Callable[[Inputs], Ranks]:
    """The value of each rank where results are summed by `total`, sent or placed or weighted otherwise."""

    def ranks(inputs: Inputs) -> Ranks:
        results = results_of(inputs, sent) if sent else results_of(inputs)
        values = []
        for one, own in zip(inputs["each"], results, strict=True):
            here = placed(_by_expert(own, one["experts"]), one["experts"]) if placed else own
            values.append(total(here, weights(one) if weights else one["weights"]))
        return values

    return ranks


def _exact(results: Tensor, weights: Tensor) -> Tensor:
    return (results.double() * weights.double()[:, :, None]).sum(1)


def reference(each: Any, shared: Any, groups: Any) -> dict[str, Ranks]:
    """What each rank returns, in float64."""
    return {"ranks": _summed(_exact)({"each": each, "shared": shared, "groups": groups})}


_WRONG: dict[str, tuple[str, Callable[[Inputs], Ranks]]] = {
    "unweighted": ("the sum without weights", _summed(slips.unweighted)),
    "normalised": ("the sum with weights that were made to add up to 1", _summed(slips.normalised)),
    "place:none": (
        "the sum of results in the order in which they came home, k by k",
        _summed(slips.in_order, placed=slips.as_it_came),
    ),
    "place:again": (
        "the sum after the permutation of dispatch was applied once more",
        _summed(slips.in_order, placed=slips.permuted_again),
    ),
    "sent:expert": (
        "the sum where each owner cut its rows into pieces as they lie, by expert",
        _summed(slips.in_order, sent=_unsorted),
    ),
    "weights:expert": (
        "the sum with the weights of each token in the order of expert numbers",
        _summed(slips.in_order, weights=lambda one: one["weights"].gather(1, one["experts"].argsort(1))),
    ),
    "narrow:sum": ("the sum with each addition rounded to the dtype of y", _summed(slips.narrow_sum)),
    "narrow:weights": ("the sum with weights rounded to the dtype of y", _summed(slips.narrow_weights)),
    "narrow:products": ("the sum of products rounded to the dtype of y", _summed(slips.narrow_products)),
}
"""Kind -> what the values are instead, and those values for each rank."""


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(inputs["each"][0]["y"].dtype, k=case["k"], magnitude=3.0, roundings=1)


def _first(expected: Ranks, ranks: Ranks, tol: Tolerance, dtype: torch.dtype | None) -> Difference | None:
    found = (
        compare(w, r, tol, dtype, f"rank {n}'s result") for n, (w, r) in enumerate(zip(expected, ranks, strict=True))
    )
    return next((one for one in found if one), None)


def _wrong_value(case: Case, inputs: Inputs, ranks: Ranks) -> Difference | None:
    dtype = inputs["each"][0]["y"].dtype
    if case.get("cancels"):
        return _wrong_order(inputs, ranks)
    found = _first(_summed(_exact)(inputs), ranks, _tolerance(case, inputs), dtype)
    if found is None or found.kind in ("type", "shape"):
        return found
    if found.kind == "dtype":
        return Difference("dtype:result", found.detail)
    for kind, (said, instead) in _WRONG.items():
        if _first(instead(inputs), ranks, _tolerance(case, inputs), None) is None:
            return Difference(kind, f"{found.detail}. It is {said}")
    return found


def _by_expert_number(inputs: Inputs) -> Ranks:
    """The sums where results are added by expert number."""
    values = []
    for one, own in zip(inputs["each"], results_of(inputs), strict=True):
        order = one["experts"].argsort(1)
        values.append(slips.in_order(own.gather(1, order[:, :, None].expand_as(own)), one["weights"].gather(1, order)))
    return values


def _wrong_order(inputs: Inputs, ranks: Ranks) -> Difference | None:
    """Here products are exact, and each order of the sum has a result of its own."""
    found = _first(_summed(slips.in_order)(inputs), ranks, EXACT, inputs["each"][0]["y"].dtype)
    if found is None or found.kind != "value":
        return found
    if _first(_summed(_exact)(inputs), ranks, EXACT, None) is None:
        return Difference("order:wide", f"{found.detail}. It is the sum with more digits than float32 has")
    terms = [set(own.flatten().tolist()) - {0.0, 1.0, 2.0} for own in ranks if isinstance(own, Tensor)]
    if any(terms):
        return found
    if _first(_by_expert_number(inputs), ranks, EXACT, None) is None:
        return Difference("order:expert", f"{found.detail}. It is the float32 sum in the order of expert numbers")
    return Difference("order", f"{found.detail}. It is a float32 sum of the same terms in another order")


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if problem := _wrong_value(case, inputs, value["ranks"]):
        return problem
    E, y = _experts_in_all(inputs), inputs["each"][0]["y"]
    out = copies_between(inputs, E)
    home = [list(row) for row in zip(*out, strict=True)]
    return too_many_or_few(value["sent"], home, y.shape[1] * y.element_size(), E, "results")


def _fresh(rng: random.Random) -> Case:
    world = rng.choice([2, 3, 4])
    return Case(
        "ranks, tokens and experts that nobody chose",
        tokens=tuple(rng.randrange(0, 9) for _ in range(world)),
        num_experts=world * rng.choice([2, 3]),
        k=rng.choice([2, 3]),
        width=rng.randrange(30, 60),
        dtype=rng.choice(["float32", "bfloat16"]),
    )


EXERCISE = Exercise(
    id="11.combine",
    title="Results back to their tokens, summed in the order of k",
    parameters=("y", "counts", "experts", "weights", "group"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=on_ranks(),
    ranks=True,
    judge=_judge,
    tolerance=_tolerance,
    cases=(
        Case(
            "as many copies from rank 0 to rank 1 as back, others at home",
            tokens=(3, 2),
            num_experts=4,
            k=1,
            width=48,
            dtype="float32",
            chosen=(((1,), (2,), (0,)), ((3,), (0,))),
        ),
        Case("four ranks, k = 4", tokens=(6, 4, 7, 5), num_experts=12, k=4, width=48, dtype="bfloat16"),
        Case(
            "ranks without tokens, and one whose experts nobody wants",
            tokens=(0, 7, 0),
            num_experts=6,
            k=2,
            width=33,
            dtype="float32",
            idle=(4, 5),
        ),
        Case(
            "each rank has as many results for each: even splits are right here",
            tokens=(4, 4),
            num_experts=4,
            k=2,
            width=32,
            dtype="float32",
            chosen=(((0, 2), (3, 0), (2, 1), (1, 3)), ((3, 1), (0, 3), (1, 2), (2, 0))),
        ),
        Case(
            "two groups in a world of four: ranks 0 and 2, and ranks 1 and 3",
            tokens=(5, 4, 2, 3),
            num_experts=8,
            k=2,
            width=32,
            dtype="float32",
            groups=((0, 2), (1, 3)),
        ),
        Case(
            "1, a large number, its negative and 1: each order of the sum has its own result",
            tokens=(4, 5),
            num_experts=6,
            k=4,
            width=24,
            dtype="float32",
            cancels=True,
        ),
    ),
    fresh=_fresh,
    trivial={
        "zeros": slips.filled(0.0),
        "ones": slips.filled(1.0),
        "nan": slips.filled(math.nan),
        "the input": slips.the_input,
    },
    seconds=30.0,
    misconceptions=(
        Misconception(
            "no_weights",
            slips.answer(slips.unweighted),
            "The results were added without their weights. Where do weights[t, j] come in, and on which rank are they?",
        ),
        Misconception(
            "normalised_weights",
            slips.answer(slips.normalised),
            "The weights were divided by their sum. That is the router's affair: take them as they are.",
        ),
        Misconception(
            "as_they_came_home",
            slips.answer(placed=slips.as_it_came),
            "What came home lies by expert, then token, and was taken as if it lay by token. Each result must go where "
            "its expert stands in `experts`.",
        ),
        Misconception(
            "permuted_again",
            slips.answer(placed=slips.permuted_again),
            "The permutation of dispatch was applied again. What undoes it is its inverse: order.argsort(), or "
            "out[order] = rows.",
        ),
        Misconception(
            "not_sorted_by_source",
            slips.answer(sorted_by_source=False),
            "y lies by local expert, then source. An all-to-all cuts it into a piece for each source: sort the rows by "
            "source first, stably, so that each source's results stay by expert.",
        ),
        Misconception(
            "weights_by_expert",
            slips.weights_by_expert,
            "The results are in their places, and the weights are not: those of a token were sorted by expert. "
            "weights[t, j] belongs to experts[t, j].",
        ),
        Misconception(
            "sum_in_bfloat16",
            slips.answer(slips.narrow_sum),
            "Each addition was rounded to bfloat16. Keep the sum in float32, and round once at the end.",
        ),
        Misconception(
            "weights_in_bfloat16",
            slips.answer(slips.narrow_weights),
            "The weights were rounded to bfloat16. They are float32: make the rows float32 instead.",
        ),
        Misconception(
            "products_in_bfloat16",
            slips.answer(slips.narrow_products),
            "The products were rounded to bfloat16 before they were added. Convert the rows to float32 first, then "
            "multiply.",
        ),
        Misconception(
            "added_by_expert",
            slips.added_as_they_lie,
            "The sums are right to rounding, and in another order: by expert number, as the results lie. In the order "
            "of k the bits do not depend on who owns which expert. Place the results first, then add j = 0, 1, and so "
            "on.",
        ),
        Misconception(
            "added_backwards",
            slips.answer(slips.backwards),
            "The sums are right to rounding, and in another order than that of k. Begin with the product for j = 0, "
            "then add j = 1, and so on, one after the other: not the other way round, and not in pairs.",
        ),
        Misconception(
            "sum_in_float64",
            slips.answer(slips.wide_sum),
            "The sums have more digits than asked for. They are float32, rounded after each addition: then one rank "
            "and four give the same bits.",
        ),
        Misconception(
            "equal_splits",
            slips.equal_splits,
            "It works where every rank has as many results for each source, and only there. Give split sizes: counts "
            "say what goes to each source, your own experts what comes from each owner.",
        ),
        Misconception(
            "splits_of_dispatch",
            slips.splits_of_dispatch,
            "The split sizes are those of dispatch. On the way home they change places: what a rank received there, it "
            "sends here.",
        ),
        Misconception(
            "the_default_group",
            slips.the_default_group,
            "It fails in a group of some ranks: is group= missing in a call? Numbers and sizes must be those of the "
            "group.",
        ),
        Misconception(
            "skips_the_call_without_tokens",
            slips.skips_without_tokens,
            "It fails where a rank has no tokens. Does it return before it has called all_to_all? It still has results "
            "to send to others, and every rank of the group makes every call. (Or does a view with -1 raise an error "
            "there?)",
        ),
        Misconception(
            "gathers_everything",
            slips.gathered,
            "All results went to all ranks. The sums are right, and every rank received R times what it needed. Send "
            "each result to its source alone.",
        ),
        Misconception(
            "float32_on_the_wire",
            slips.answer(wire=torch.float32),
            "Rows of bfloat16 travelled as float32: twice the bytes. Convert them when they are home.",
        ),
        Misconception(
            "float32_result",
            slips.answer(out=torch.float32),
            "The sum is right, in float32. The result has the dtype of y: round once, at the end.",
        ),
    ),
    hints=(
        "It is dispatch backwards: its last permutation first, then its exchange with both lists of splits swapped, "
        "then its first permutation.",
        "The source of each row of y: arange(R) repeated for each local expert, then repeat_interleave with "
        "counts.T.flatten(). A stable sort by it makes one piece for each source. What comes home lies by expert, then "
        "token, as the copies did when they left.",
        "place = experts.flatten().argsort(stable=True).argsort().view(T, k); then out += weights[:, j, None] * "
        "back[place[:, j]].float() for j in range(k), and out.to(y.dtype).",
    ),
    explanation=(
        "Three permutations are undone in turn. Nothing has to be exchanged but the results, since counts say what "
        "each source wants back, and a rank's own experts what it gets from each owner. The inverse of the first sort "
        "says where each result lies, so the sum can go along k: float32, one term after the other, and the bits "
        "depend neither on the number of ranks nor on who was faster. Rows travel in bfloat16, and only the sum is "
        "wider."
    ),
)
