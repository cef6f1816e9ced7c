"""Wrong answers to 11.dispatch, as learners write them; and right results that took the wrong way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Came:
    """A copy that came to this rank."""

    local: int
    source: int
    token: int
    slot: int


def by_local_expert(rows: Tensor, counts: Tensor, stable: bool = True) -> Tensor:
    """What came, source after source, in the order of 11.dispatch where the sort is stable."""
    world, each = counts.shape
    local = torch.arange(each, device=counts.device).repeat(world).repeat_interleave(counts.flatten())
    return rows[local.argsort(stable=stable)]


def right(x: Tensor, experts: Tensor, num_experts: int, group: Any, stable: bool = True) -> tuple[Tensor, Tensor]:
    """Rows and counts as they should be, where sorts are stable."""
    world = dist.get_world_size(group)
    flat = experts.flatten()
    order = flat.argsort(stable=stable)
    sent = flat.bincount(minlength=num_experts).view(world, -1)
    counts = torch.empty_like(sent)
    dist.all_to_all_single(counts, sent, group=group)
    came = x.new_empty(int(counts.sum()), x.shape[1])
    dist.all_to_all_single(
        came, x[order // experts.shape[1]], counts.sum(1).tolist(), sent.sum(1).tolist(), group=group
    )
    return by_local_expert(came, counts, stable), counts


def unstable(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    return right(x, experts, num_experts, group, stable=False)


def arranged(
    key: Callable[[Came], Any] = lambda c: (c.local, c.source, c.token),
    owner: Callable[[int, int, int], tuple[int, int]] = lambda e, each, world: (e // each, e % each),
) -> Callable[..., Any]:
    """Copies go to owner(expert, E/R, R), which is (rank, local expert); what came is put into the order of `key`."""

    def wrong(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
        world = dist.get_world_size(group)
        each = num_experts // world
        copies = sorted(
            (*owner(e, each, world), token, slot)
            for token, row in enumerate(experts.tolist())
            for slot, e in enumerate(row)
        )
        sent = torch.zeros(world, each, dtype=torch.int64)
        for rank, local, _, _ in copies:
            sent[rank, local] += 1
        counts = torch.empty_like(sent)
        dist.all_to_all_single(counts, sent, group=group)
        splits = counts.sum(1).tolist(), sent.sum(1).tolist()
        about = torch.tensor([copy[1:] for copy in copies], dtype=torch.int64).view(-1, 3)
        rows, told = x.new_empty(sum(splits[0]), x.shape[1]), about.new_empty(sum(splits[0]), 3)
        dist.all_to_all_single(rows, x[about[:, 1]], *splits, group=group)
        dist.all_to_all_single(told, about, *splits, group=group)
        sources = [source for source, n in enumerate(splits[0]) for _ in range(n)]
        came = [Came(local, source, t, slot) for source, (local, t, slot) in zip(sources, told.tolist(), strict=True)]
        place = sorted(range(len(came)), key=lambda i: key(came[i]))
        return rows[torch.tensor(place, dtype=torch.int64)], counts

    return wrong


def equal_splits(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """As many copies are expected as are sent, and as many from each."""
    world = dist.get_world_size(group)
    flat = experts.flatten()
    copies = x[flat.argsort(stable=True) // experts.shape[1]]
    sent = flat.bincount(minlength=num_experts).view(world, -1)
    came, counts = torch.empty_like(copies), torch.empty_like(sent)
    dist.all_to_all_single(came, copies, group=group)
    dist.all_to_all_single(counts, sent, group=group)
    return by_local_expert(came, counts), counts


def first_experts_everywhere(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """Every rank asks for experts 0 to E/R - 1."""
    world = dist.get_world_size(group)
    each = num_experts // world
    mine = [(experts == e).any(1).nonzero()[:, 0] for e in range(each)]
    tokens = torch.cat(mine)
    sent = torch.tensor([len(t) for t in mine]).repeat(world, 1)
    counts = torch.empty_like(sent)
    dist.all_to_all_single(counts, sent, group=group)
    came = x.new_empty(int(counts.sum()), x.shape[1])
    copies = x[tokens].repeat(world, 1)
    dist.all_to_all_single(came, copies, counts.sum(1).tolist(), sent.sum(1).tolist(), group=group)
    return by_local_expert(came, counts), counts


def once_for_a_rank(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    world = dist.get_world_size(group)
    owners = experts // (num_experts // world)
    tokens = [(owners == rank).any(1).nonzero()[:, 0] for rank in range(world)]
    sizes = torch.tensor([len(t) for t in tokens])
    coming = torch.empty_like(sizes)
    dist.all_to_all_single(coming, sizes, group=group)
    came = x.new_empty(int(coming.sum()), x.shape[1])
    dist.all_to_all_single(came, x[torch.cat(tokens)], coming.tolist(), sizes.tolist(), group=group)
    sent = experts.flatten().bincount(minlength=num_experts).view(world, -1)
    counts = torch.empty_like(sent)
    dist.all_to_all_single(counts, sent, group=group)
    return came, counts


def whole_world(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    return right(x, experts, num_experts, None)


def numbers_of_the_world(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """Pieces for all ranks of the world, to be exchanged in the group."""
    world = dist.get_world_size()
    sent = experts.flatten().bincount(minlength=num_experts)
    splits = [len(part) for part in sent.tensor_split(world)]
    counts = torch.empty_like(sent)
    dist.all_to_all_single(counts, sent, splits, splits, group=group)
    return right(x, experts, num_experts, group)


def skips_without_tokens(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    if not len(x):
        world = dist.get_world_size(group)
        return x, torch.zeros(world, num_experts // world, dtype=torch.int64)
    return right(x, experts, num_experts, group)


def sent_counts(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    rows, counts = right(x, experts, num_experts, group)
    return rows, experts.flatten().bincount(minlength=num_experts).view(counts.shape)


def turned_counts(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    rows, counts = right(x, experts, num_experts, group)
    return rows, counts.T


def gathered(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """Everything goes everywhere, and each rank takes what it wants."""
    everything: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everything, (x, experts), group=group)
    each, rank = num_experts // len(everything), dist.get_rank(group)
    rows, counts = [], torch.zeros(len(everything), each, dtype=torch.int64)
    for local in range(each):
        for source, (tokens, chosen) in enumerate(everything):
            mine = tokens[(chosen == rank * each + local).any(1)]
            counts[source, local] = len(mine)
            rows.append(mine)
    return torch.cat(rows), counts


def padded(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """All pieces are as long as the longest piece of any rank."""
    world = dist.get_world_size(group)
    flat = experts.flatten()
    copies = x[flat.argsort(stable=True) // experts.shape[1]]
    sent = flat.bincount(minlength=num_experts).view(world, -1)
    counts = torch.empty_like(sent)
    dist.all_to_all_single(counts, sent, group=group)
    longest = sent.sum(1).max()
    dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=group)
    pieces = copies.split(sent.sum(1).tolist())
    full = x.new_zeros(world, int(longest), x.shape[1])
    for piece, room in zip(pieces, full, strict=True):
        room[: len(piece)] = piece
    came = torch.empty_like(full)
    dist.all_to_all_single(came, full, group=group)
    rows = torch.cat([room[:n] for room, n in zip(came, counts.sum(1).tolist(), strict=True)])
    return by_local_expert(rows, counts), counts


def widened(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    return right(x.float(), experts, num_experts, group)


# --- no answers at all ---------------------------------------------------------------------------------------------


def filled(value: float) -> Callable[..., Any]:
    def answer(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
        rows, counts = right(x, experts, num_experts, group)
        return torch.full_like(rows, value), counts

    return answer


def the_input(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    return x, right(x, experts, num_experts, group)[1]
