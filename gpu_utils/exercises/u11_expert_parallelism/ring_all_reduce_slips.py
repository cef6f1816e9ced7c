"""Wrong answers to 11.ring_all_reduce: a ring with one thing done otherwise, and sums that are no ring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Ring:
    """The solution, with what a slip changes.

    longer   chunks so long that all elements fit; without, what is left over is not touched
    steps    of each half, fewer than the ranks
    second   the chunk that a rank sends first in the second half, counted from its own number
    adds     whether the second half adds what it should copy
    scale    what the result is multiplied by, from the number of ranks
    everyone whether the group is ignored
    as_world whether numbers in the group are given as dst and src, which are numbers of the world
    blocking whether every rank sends before it receives
    """

    longer: bool = True
    short: int = 0
    second: int = 1
    adds: bool = False
    scale: Callable[[int], float] = lambda n: 1.0
    everyone: bool = False
    as_world: bool = False
    blocking: bool = False

    def __call__(self, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        if self.everyone:
            group = dist.group.WORLD or group
        n, me = dist.get_world_size(group), dist.get_rank(group)
        size = -(-x.numel() // n) if self.longer else x.numel() // n
        flat = torch.zeros(max(n * size, x.numel()))
        flat[: x.numel()] = x.flatten()
        chunks, got = flat[: n * size].view(n, size), torch.empty(size)
        for step in range(n - 1 - self.short):
            self.passed_on(chunks[(me - step) % n], got, group)
            chunks[(me - step - 1) % n] += got
        for step in range(n - 1 - self.short):
            self.passed_on(chunks[(me + self.second - step) % n], got, group)
            chunk = chunks[(me + self.second - step - 1) % n]
            chunk.copy_(chunk + got if self.adds else got)
        return self.scale(n) * flat[: x.numel()].view(x.shape)

    def passed_on(self, chunk: Tensor, got: Tensor, group: dist.ProcessGroup) -> None:
        n, me = dist.get_world_size(group), dist.get_rank(group)
        chunk = chunk.clone()
        if self.as_world:
            work = dist.isend(chunk, dst=(me + 1) % n, group=group)
            dist.recv(got, src=(me - 1) % n, group=group)
            assert work is not None
            work.wait()
        elif self.blocking:
            dist.send(chunk, group=group, group_dst=(me + 1) % n)
            dist.recv(got, group=group, group_src=(me - 1) % n)
        else:
            work = dist.isend(chunk, group=group, group_dst=(me + 1) % n)
            dist.recv(got, group=group, group_src=(me - 1) % n)
            assert work is not None
            work.wait()


def in_place(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return x.copy_(Ring()(x, group))


def uses_all_reduce(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = x.clone()
    dist.all_reduce(total, group=group)
    return total


def exchanged(parts: list[Tensor], into: list[Tensor], group: dist.ProcessGroup) -> None:
    """Send a part to each other rank of the group, and receive one from each."""
    me = dist.get_rank(group)
    others = [rank for rank in range(dist.get_world_size(group)) if rank != me]
    works = [dist.irecv(into[rank], group=group, group_src=rank) for rank in others]
    works += [dist.isend(parts[rank], group=group, group_dst=rank) for rank in others]
    for work in works:
        assert work is not None
        work.wait()
    into[me].copy_(parts[me])


def to_everybody(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    n = dist.get_world_size(group)
    x = x.contiguous()
    into = [torch.empty_like(x) for _ in range(n)]
    exchanged([x] * n, into, group)
    total = into[0].clone()
    for one in into[1:]:
        total += one
    return total


def through_rank_0(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    n, total = dist.get_world_size(group), x.clone(memory_format=torch.contiguous_format)
    got = torch.empty_like(total)
    if dist.get_rank(group) > 0:
        dist.send(total, group=group, group_dst=0)
        dist.recv(total, group=group, group_src=0)
        return total
    for rank in range(1, n):
        dist.recv(got, group=group, group_src=rank)
        total += got
    for rank in range(1, n):
        dist.send(total, group=group, group_dst=rank)
    return total


def carries_the_whole(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Everybody's tensor goes once around, and each rank adds what passes."""
    n, me = dist.get_world_size(group), dist.get_rank(group)
    total, passing = x.clone(), x.contiguous()
    for _ in range(n - 1):
        got = torch.empty_like(passing)
        work = dist.isend(passing, group=group, group_dst=(me + 1) % n)
        dist.recv(got, group=group, group_src=(me - 1) % n)
        assert work is not None
        work.wait()
        total += got
        passing = got
    return total


def direct(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Reduce-scatter and all-gather, each in one step from everybody to everybody."""
    n, me = dist.get_world_size(group), dist.get_rank(group)
    size = -(-x.numel() // n)
    flat = torch.zeros(n * size)
    flat[: x.numel()] = x.flatten()
    into = [torch.empty(size) for _ in range(n)]
    exchanged(list(flat.view(n, size)), into, group)
    own = into[0].clone()
    for one in into[1:]:
        own += one
    exchanged([own] * n, into, group)
    assert into[me] is not own
    return torch.cat(into)[: x.numel()].view(x.shape)
