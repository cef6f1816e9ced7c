"""What the exercises on dispatch and combine share: tokens of ranks, who owns which expert, what must travel.

A copy is a token on its way to one of its experts. Everything here is on the grader's side and knows all ranks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Inputs

MORE_FOR_A_COPY = 16
"""Bytes that may go along with each copy: two whole numbers, such as its expert and its token."""

Ranks = list[Any]
"""A value for each rank of the world."""


@dataclass(frozen=True, order=True)
class Copy:
    """A token on its way. local: of the expert, in its owner; source and owner: numbers in the group; slot: of k."""

    local: int
    source: int
    token: int
    slot: int
    owner: int


def drawn(case: Case, generator: torch.Generator) -> list[dict[str, Tensor]]:
    """For each rank its `experts` and `weights`.

    Of the case: tokens (of each rank), num_experts, k; `chosen` gives experts themselves, by rank, token and slot;
    `idle` are experts that no token chose.
    """
    if case.get("chosen"):
        experts = [torch.tensor(rows, dtype=torch.int64).reshape(len(rows), case["k"]) for rows in case["chosen"]]
    else:
        busy = [e for e in range(case["num_experts"]) if e not in case.get("idle", ())]
        numbers = torch.tensor(busy, dtype=torch.int64)
        orders = [torch.rand(tokens, len(busy), generator=generator).argsort(1) for tokens in case["tokens"]]
        experts = [numbers[order][:, : case["k"]] for order in orders]
    return [{"experts": own, "weights": 0.2 + torch.rand(own.shape, generator=generator)} for own in experts]


def numbers(case: Case, rows: int, generator: torch.Generator) -> Tensor:
    """(rows, width) of the case's dtype, of both signs."""
    return torch.randn(rows, case["width"], generator=generator).to(getattr(torch, case["dtype"]))


def given(each: Sequence[Mapping[str, Any]], case: Case, **shared: Any) -> Inputs:
    """The inputs of an exercise on ranks."""
    groups = case.get("groups") or [range(len(each))]
    return {"each": [dict(one) for one in each], "shared": shared, "groups": [list(group) for group in groups]}


def copies_to(experts: Sequence[Tensor], num_experts: int, owner: int) -> list[Copy]:
    """The copies for one rank of a group, in the order of its rows. experts: of each source of the group.

    >>> experts = [torch.tensor([[2, 0], [0, 3]]), torch.tensor([[3, 0]])]
    >>> [(c.local, c.source, c.token) for c in copies_to(experts, 4, 0)]
    [(0, 0, 0), (0, 0, 1), (0, 1, 0)]
    """
    each = num_experts // len(experts)
    return sorted(
        Copy(expert - owner * each, source, token, slot, owner)
        for source, chosen in enumerate(experts)
        for token, row in enumerate(chosen.tolist())
        for slot, expert in enumerate(row)
        if expert // each == owner
    )


def counts_of(copies: Sequence[Copy], sources: int, each: int) -> Tensor:
    """int64 (sources, each): copies by source and local expert."""
    counts = torch.zeros(sources, each, dtype=torch.int64)
    for copy in copies:
        counts[copy.source, copy.local] += 1
    return counts


def by_rank(inputs: Inputs, num_experts: int, value: Callable[[list[int], int, list[Copy]], Any]) -> Ranks:
    """For each rank of the world, value(ranks of its group, its number there, copies that come to it)."""
    found: dict[int, Any] = {}
    for group in inputs["groups"]:
        experts = [inputs["each"][rank]["experts"] for rank in group]
        for number, rank in enumerate(group):
            found[rank] = value(group, number, copies_to(experts, num_experts, number))
    return [found[rank] for rank in range(len(inputs["each"]))]


def copies_between(inputs: Inputs, num_experts: int, once: bool = False) -> list[list[int]]:
    """[source][owner] -> copies, by numbers in the world; none within a rank, since nothing travels.

    once: copies of one token for experts of one rank are counted once: it may travel once and be copied there
    """
    world = len(inputs["each"])
    found = [[0] * world for _ in range(world)]

    def note(group: list[int], number: int, copies: list[Copy]) -> None:
        travel = [(copy.source, copy.token) for copy in copies if copy.source != number]
        for source, _ in set(travel) if once else travel:
            found[group[source]][group[number]] += 1

    by_rank(inputs, num_experts, note)
    return found


def too_many_or_few(
    sent: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int]],
    row_bytes: int,
    num_experts: int,
    what: str,
    fewest: Sequence[Sequence[int]] | None = None,
) -> Difference | None:
    """What is wrong with the bytes between ranks. rows: [from][to] that travel, of row_bytes bytes each.

    fewest: [from][to] rows that must travel at least, where they are fewer
    """
    for source, line in enumerate(rows):
        for to, count in enumerate(line):
            full, found = count * row_bytes, sent[source][to]
            least = full if fewest is None else fewest[source][to] * row_bytes
            most = full + count * MORE_FOR_A_COPY + 16 * num_experts + 64
            where = (
                f"rank {source} sent {found:,} bytes to rank {to}, where {count} {what} of {row_bytes} bytes had to go"
            )
            if found < least:
                return Difference("bytes:few", f"{where}: the rest went by a collective that gives everything to all")
            if found > most:
                times = f", {found / full:.2f} times as much" if full else ""
                return Difference("bytes:many", f"{where}{times}; at most {most:,} are allowed")
    return None
