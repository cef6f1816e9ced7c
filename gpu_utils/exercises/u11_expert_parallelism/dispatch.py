"""11.dispatch: tokens to their experts, by an all-to-all with uneven splits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.exercises.u11_expert_parallelism import dispatch_slips as slips
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


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    each = [
        {"x": numbers(case, len(one["experts"]), generator), "experts": one["experts"]}
        for one in drawn(case, generator)
    ]
    return given(each, case, num_experts=case["num_experts"])


def rows_of(inputs: Inputs, group: list[int], copies: list[Copy]) -> Tensor:
    """The rows of x that these copies are."""
    x = inputs["each"][group[0]]["x"]
    rows = [inputs["each"][group[copy.source]]["x"][copy.token] for copy in copies]
    return torch.stack(rows) if rows else x.new_empty(0, x.shape[1])


def arrived(inputs: Inputs, key: Callable[[Copy], Any] | None = None) -> Ranks:
    """(rows, counts) of each rank, with the rows in the order of `key`."""
    E = inputs["shared"]["num_experts"]

    def of_rank(group: list[int], number: int, copies: list[Copy]) -> tuple[Tensor, Tensor]:
        counts = counts_of(copies, len(group), E // len(group))
        return rows_of(inputs, group, sorted(copies, key=key)), counts

    return by_rank(inputs, E, of_rank)


def reference(each: Any, shared: Any, groups: Any) -> dict[str, Ranks]:
    """What each rank returns."""
    return {"ranks": arrived({"each": each, "shared": shared, "groups": groups})}


# --- what a wrong result is ----------------------------------------------------------------------------------------


def _rows(ranks: Ranks) -> Ranks:
    return [rows for rows, _ in ranks]


def _counts(ranks: Ranks) -> Ranks:
    return [counts for _, counts in ranks]


def _owned_in_turn(inputs: Inputs) -> Ranks:
    """Expert e belongs to rank e modulo R."""
    E, world = inputs["shared"]["num_experts"], len(inputs["groups"][0])
    each = E // world
    turned = [{**one, "experts": one["experts"] % world * each + one["experts"] // world} for one in inputs["each"]]
    return arrived({**inputs, "each": turned})


def _once_for_a_rank(inputs: Inputs) -> Ranks:
    """A token travels once to each rank, however many of its experts live there."""

    def of_rank(group: list[int], number: int, copies: list[Copy]) -> Tensor:
        first = {(copy.source, copy.token): copy for copy in reversed(copies)}
        return rows_of(inputs, group, [first[key] for key in sorted(first)])

    return by_rank(inputs, inputs["shared"]["num_experts"], of_rank)


def _numbers_not_made_local(inputs: Inputs) -> Ranks:
    """Every rank takes itself for the owner of experts 0 to E/R - 1."""
    E = inputs["shared"]["num_experts"]

    def of_rank(group: list[int], number: int, _: list[Copy]) -> Tensor:
        return first[group[0]]

    first = _rows(arrived(inputs))
    return by_rank(inputs, E, of_rank)


def _whole_world(inputs: Inputs) -> Ranks:
    return _rows(arrived({**inputs, "groups": [list(range(len(inputs["each"])))]}))


def _sent_counts(inputs: Inputs) -> Ranks:
    E = inputs["shared"]["num_experts"]

    def of_rank(group: list[int], number: int, _: list[Copy]) -> Tensor:
        return torch.bincount(inputs["each"][group[number]]["experts"].flatten(), minlength=E).view(len(group), -1)

    return by_rank(inputs, E, of_rank)


_WRONG_ROWS: dict[str, tuple[str, Callable[[Inputs], Ranks]]] = {
    "order:source": (
        "they are there, by source first and by expert within a source",
        lambda inputs: _rows(arrived(inputs, lambda c: (c.source, c.local, c.token))),
    ),
    "order:none": (
        "they are there, in the order in which sources have their tokens, whatever their expert",
        lambda inputs: _rows(arrived(inputs, lambda c: (c.source, c.token, c.local))),
    ),
    "order:slot": (
        "they are there; within an expert and a source they go by the place in the k, and not by token",
        lambda inputs: _rows(arrived(inputs, lambda c: (c.local, c.source, c.slot, c.token))),
    ),
    "order:token": (
        "they are there; within an expert they go by token number first, and then by source",
        lambda inputs: _rows(arrived(inputs, lambda c: (c.local, c.token, c.source))),
    ),
    "owner:turn": ("they are those of experts r, r + R, r + 2R", lambda inputs: _rows(_owned_in_turn(inputs))),
    "owner:first": ("every rank has the rows of the first rank's experts", _numbers_not_made_local),
    "once": ("a token that two experts of a rank want came once", _once_for_a_rank),
    "world": ("they are those of a group of all ranks of the world", _whole_world),
}
"""Kind -> what the rows are instead, and those rows for each rank."""

_WRONG_COUNTS: dict[str, tuple[str, Callable[[Inputs], Ranks]]] = {
    "counts:sent": ("they say what this rank sent, to each owner", _sent_counts),
    "counts:turned": ("they are (E/R, R)", lambda inputs: [counts.T for counts in _counts(arrived(inputs))]),
}


def _within_experts(inputs: Inputs, ranks: Ranks) -> bool:
    """Whether each expert has its rows, in whatever order."""

    def by_expert(rows: Tensor, counts: Tensor) -> list[list[list[float]]]:
        return [sorted(part.tolist()) for part in rows.split(counts.sum(0).tolist())]

    return all(
        rows.shape == got.shape and by_expert(rows, counts) == by_expert(got, counts)
        for (rows, counts), got in zip(arrived(inputs), ranks, strict=True)
    )


def wrong_in(
    ranks: Ranks, expected: Ranks, what: str, dtype: torch.dtype | None, known: Any, inputs: Inputs
) -> Difference | None:
    """What is wrong with a part of all ranks' values; where it is a known mistake, its kind."""

    def differs(wanted: Ranks) -> Difference | None:
        found = (
            compare(w, r, EXACT, dtype, f"rank {n}'s {what}")
            for n, (w, r) in enumerate(zip(wanted, ranks, strict=True))
        )
        return next((one for one in found if one), None)

    found = differs(expected)
    if found is None:
        return None
    if found.kind == "dtype":
        return Difference(f"dtype:{what}", found.detail)
    for kind, (said, instead) in known.items():
        if differs(instead(inputs)) is None:
            return Difference(kind, f"{found.detail}. {what.capitalize()}: {said}")
    if what == "rows" and found.kind == "value" and _within_experts(inputs, ranks):
        return Difference("order:within", f"{found.detail}. Rows: each expert has its own, in another order")
    return found


def pairs_of(value: Any) -> Difference | None:
    """Whether every rank returned two things."""
    for number, one in enumerate(value["ranks"]):
        if not isinstance(one, (list, tuple)) or len(one) != 2:
            return compare((torch.zeros(0), torch.zeros(0)), one, EXACT, where=f"rank {number}'s result")
    return None


def wrong_counts(ranks: Ranks, inputs: Inputs) -> Difference | None:
    return wrong_in(_counts(ranks), _counts(arrived(inputs)), "counts", None, _WRONG_COUNTS, inputs)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if problem := pairs_of(value):
        return problem
    E, x = inputs["shared"]["num_experts"], inputs["each"][0]["x"]
    copies, tokens = copies_between(inputs, E), copies_between(inputs, E, once=True)
    return (
        wrong_in(_rows(value["ranks"]), _rows(arrived(inputs)), "rows", x.dtype, _WRONG_ROWS, inputs)
        or wrong_counts(value["ranks"], inputs)
        or too_many_or_few(value["sent"], copies, x.shape[1] * x.element_size(), E, "copies", tokens)
    )


def _fresh(rng: random.Random) -> Case:
    world = rng.choice([2, 3, 4])
    return Case(
        "ranks, tokens and experts that nobody chose",
        tokens=tuple(rng.randrange(0, 6) for _ in range(world)),
        num_experts=world * rng.choice([2, 3]),
        k=rng.choice([2, 3]),
        width=rng.randrange(3, 40),
        dtype=rng.choice(["float32", "bfloat16"]),
    )


CASES = (
    Case(
        "the statement's example",
        tokens=(2, 1),
        num_experts=4,
        k=2,
        width=3,
        dtype="float32",
        chosen=(((2, 0), (0, 3)), ((3, 0),)),
    ),
    Case("as many tokens on each rank", tokens=(6, 6, 6, 6), num_experts=12, k=3, width=32, dtype="bfloat16"),
    Case(
        "each rank sends as many copies to each: even splits are right here",
        tokens=(4, 4),
        num_experts=4,
        k=2,
        width=16,
        dtype="float32",
        chosen=(((0, 2), (3, 0), (2, 1), (1, 3)), ((3, 1), (0, 3), (1, 2), (2, 0))),
    ),
    Case("ranks without tokens", tokens=(0, 7, 0), num_experts=6, k=2, width=33, dtype="bfloat16"),
    Case(
        "a rank whose experts nobody wants",
        tokens=(5, 3, 4),
        num_experts=6,
        k=2,
        width=24,
        dtype="float32",
        idle=(2, 3),
    ),
    Case(
        "two groups in a world of four: ranks 0 and 2, and ranks 1 and 3",
        tokens=(5, 4, 2, 3),
        num_experts=8,
        k=2,
        width=24,
        dtype="float32",
        groups=((0, 2), (1, 3)),
    ),
)

EXERCISE = Exercise(
    id="11.dispatch",
    title="Tokens to their experts, an uneven all-to-all",
    parameters=("x", "experts", "num_experts", "group"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=on_ranks(),
    ranks=True,
    judge=_judge,
    cases=CASES,
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
            "equal_splits",
            slips.equal_splits,
            "It works where every rank gets as many copies from each source, and only there. Nobody knows how many "
            "come before the sources have said so: exchange the counts first, then the rows with split sizes on both "
            "sides.",
        ),
        Misconception(
            "by_source_first",
            slips.arranged(lambda c: (c.source, c.local, c.token)),
            "An all-to-all puts the pieces together by source. The rows of one expert must lie together: sort what "
            "came by local expert, stably, so that source and token stay in their order.",
        ),
        Misconception(
            "not_sorted_by_expert",
            slips.arranged(lambda c: (c.source, c.token, c.local)),
            "The copies are sorted by owner alone. Nothing says then which row is for which expert. Sort the copies by "
            "expert before they leave (that sorts them by owner too), and what came by local expert.",
        ),
        Misconception(
            "by_place_in_k",
            slips.arranged(lambda c: (c.local, c.source, c.slot, c.token)),
            "For one expert and one source the tokens are out of order: those that chose it first come first. Were the "
            "columns of experts sorted one after the other? Flatten (T, k) by rows, and sort stably.",
        ),
        Misconception(
            "by_token_before_source",
            slips.arranged(lambda c: (c.local, c.token, c.source)),
            "Within an expert the rows go by token number and then by source. First all of source 0, then all of "
            "source 1: token numbers of different ranks have nothing to do with each other.",
        ),
        Misconception(
            "unstable_sort",
            slips.unstable,
            "Each expert has its rows, and not in the order of source and token. A sort without stable=True may swap "
            "what is equal, and does so where there are more than some rows.",
        ),
        Misconception(
            "experts_dealt_in_turn",
            slips.arranged(owner=lambda e, each, world: (e % world, e // world)),
            "The copies went to rank expert % R. Experts are dealt out in blocks: rank 0 owns the first E/R of them, "
            "so the owner is expert // (E/R).",
        ),
        Misconception(
            "local_numbers_for_all",
            slips.first_experts_everywhere,
            "Every rank has the rows of experts 0 up to E/R. `experts` holds numbers among all E: on rank r the local "
            "expert e is expert r * E/R + e.",
        ),
        Misconception(
            "once_for_a_rank",
            slips.once_for_a_rank,
            "A token with two experts on one rank has come once. It must be there twice, once in the stretch of each "
            "expert. (To send it once and to copy it there saves bytes; then counts and order still are those of two.)",
        ),
        Misconception(
            "the_default_group",
            slips.whole_world,
            "Right for the whole world, wrong in a group of some ranks: group= is missing, so all ranks of the world "
            "took part. Give it to every call, get_world_size too.",
        ),
        Misconception(
            "numbers_of_the_world",
            slips.numbers_of_the_world,
            "It fails in a group of some ranks. Numbers of ranks and the size must be those of the group, "
            "dist.get_rank(group) and dist.get_world_size(group); only send and recv want the world's number "
            "(dist.get_global_rank(group, r), or group_dst=r).",
        ),
        Misconception(
            "skips_the_call_without_tokens",
            slips.skips_without_tokens,
            "It fails where a rank has no tokens. Does it return before it has called all_to_all? Every rank of the "
            "group makes every call, and with nothing to send its pieces are empty. (Or does a max of nothing, or a "
            "view with -1, raise an error there?)",
        ),
        Misconception(
            "counts_of_what_was_sent",
            slips.sent_counts,
            "The rows are right. counts are those of the copies that this rank sent; expected are those that came to "
            "it, (source, local expert). They are what the exchange of counts gives.",
        ),
        Misconception(
            "counts_turned",
            slips.turned_counts,
            "The rows are right. counts has an expert for each row; expected is a source for each row: (R, E/R).",
        ),
        Misconception(
            "gathers_everything",
            slips.gathered,
            "All tokens went to all ranks, and each took what it needed. The result is right, and every rank received "
            "R times the tokens. Send each copy to its owner alone: all_to_all_single with split sizes.",
        ),
        Misconception(
            "pads_to_the_longest",
            slips.padded,
            "Pieces were filled up to the longest one, so that all are alike. The filling travels too: give split "
            "sizes instead.",
        ),
        Misconception(
            "widened_rows",
            slips.widened,
            "The rows came as float32, and x was bfloat16. A copy is moved bit by bit: rows have the dtype of x.",
        ),
    ),
    hints=(
        "Three steps: how many copies go to which expert; tell the owners; then move the rows. On paper, with the "
        "statement's example: what does rank 1 know before rank 0 has told it anything?",
        "Sort the T * k copies by expert, stably: that sorts them by owner, too. bincount gives the counts to send, "
        "and viewed as (R, E/R) its row r is for rank r. all_to_all_single of this matrix gives the counts that come. "
        "Their sums over local experts are the split sizes.",
        "order = experts.flatten().argsort(stable=True); copies = x[order // k]; after the second all_to_all_single "
        "the rows lie by source, then by local expert. Make the local expert of each row, by repeat_interleave with "
        "counts.flatten(), and sort by it, stably.",
    ),
    explanation=(
        "One stable sort by expert does two things: pieces for one owner lie together, since owners have consecutive "
        "experts, and within a piece the copies go by expert and token. The counts travel first, 8 bytes for each "
        "expert: with them a rank knows how much room to make, and where one source's rows end. After the exchange "
        "the rows are sorted by source, then expert; a second stable sort by expert alone turns that round. Nothing "
        "depends on which message comes first, so the result is the same each time."
    ),
)
