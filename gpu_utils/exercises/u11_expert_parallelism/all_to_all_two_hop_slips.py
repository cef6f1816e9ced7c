"""Wrong answers to 11.all_to_all_two_hop: the solution with one thing done otherwise, and other ways to send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

Chunks = list[Tensor]


def exchanged(parts: dict[int, Tensor], sizes: dict[int, int], blocking: bool = False) -> dict[int, Tensor]:
    """Send parts to ranks, and receive from ranks so many elements each; one's own part stays."""
    me = dist.get_rank()
    got = {rank: torch.empty(size) for rank, size in sizes.items()}
    if blocking:
        for rank in parts.keys() - {me}:
            dist.send(parts[rank], rank)
    works = [] if blocking else [dist.isend(part, rank) for rank, part in parts.items() if rank != me]
    for rank in got.keys() - {me}:
        dist.recv(got[rank], rank)
    for work in works:
        assert work is not None
        work.wait()
    return got | {me: parts[me]}


def by_local_number(world: int, node_size: int, me: int) -> list[int]:
    """As chunks arrive: by local number, then by node."""
    return [rank for number in range(node_size) for rank in range(number, world, node_size)]


def last_first(world: int, node_size: int, me: int) -> range:
    return range(world - 1, -1, -1)


def own_first(world: int, node_size: int, me: int) -> list[int]:
    return [me, *(rank for rank in range(world) if rank != me)]


def own_node_first(world: int, node_size: int, me: int) -> list[int]:
    return sorted(range(world), key=lambda rank: (rank // node_size != me // node_size, rank))


def onwards(world: int, node_size: int, me: int) -> list[int]:
    """From the own number on, around."""
    return [(me + step) % world for step in range(world)]


@dataclass(frozen=True)
class TwoHops:
    """The solution, with what a slip changes.

    turned    counts are read as counts[destination][source]
    order     (world, node_size, own number) -> the sources in the order of the list
    own_lost  what a rank keeps for itself is left out
    all_parts every neighbour gets all that goes across, and takes what it needs
    together  whether what goes along the rail to one rank is one message; without, each chunk is one
    blocking  whether every rank sends before it receives
    """

    together: bool = True
    turned: bool = False
    order: Callable[[int, int, int], Sequence[int]] = lambda world, node_size, me: range(world)
    own_lost: bool = False
    all_parts: bool = False
    blocking: bool = False

    def __call__(self, chunks: Chunks, counts: Tensor, node_size: int) -> Chunks:
        counts = counts.T if self.turned else counts
        world, me = dist.get_world_size(), dist.get_rank()
        node, local = divmod(me, node_size)
        neighbours, rail = range(node * node_size, (node + 1) * node_size), range(local, world, node_size)

        def columns(number: int) -> range:
            """The ranks of this local number, one in each node."""
            return range(number, world, node_size)

        parts = {peer: torch.cat([chunks[to] for to in columns(peer % node_size)]) for peer in neighbours}
        if self.all_parts:
            first = self._everything(chunks, counts, neighbours, rail)
        else:
            sizes = {peer: int(sum(counts[peer][to] for to in rail)) for peer in neighbours}
            first = exchanged(parts, sizes, self.blocking)
        pieces = {peer: first[peer].split([int(counts[peer][to]) for to in rail]) for peer in neighbours}
        if not self.together:
            return self._one_by_one(pieces, counts, neighbours, rail)
        second = {to: torch.cat([pieces[peer][at] for peer in neighbours]) for at, to in enumerate(rail)}
        groups = {to: range(to - to % node_size, to - to % node_size + node_size) for to in rail}
        arrived = exchanged(second, {to: int(sum(counts[source][me] for source in groups[to])) for to in rail})
        out: dict[int, Tensor] = {}
        for to in rail:
            split = arrived[to].split([int(counts[source][me]) for source in groups[to]])
            out |= dict(zip(groups[to], split, strict=True))
        if self.own_lost:
            out[me] = torch.zeros(0)
        return [out[rank].clone() for rank in self.order(world, node_size, me)]

    def _one_by_one(self, pieces: dict, counts: Tensor, neighbours: range, rail: range) -> Chunks:
        """The second hop, a message for each source."""
        me = dist.get_rank()
        out: dict[int, Tensor] = {}
        for number, peer in enumerate(neighbours):
            sources = {to: to - to % len(neighbours) + number for to in rail}
            got = exchanged(
                dict(zip(rail, pieces[peer], strict=True)), {to: int(counts[sources[to]][me]) for to in rail}
            )
            out |= {sources[to]: got[to] for to in rail}
        return [out[rank].clone() for rank in sorted(out)]

    def _everything(self, chunks: Chunks, counts: Tensor, neighbours: range, rail: range) -> dict[int, Tensor]:
        """What the first hop brings, cut out of all that the neighbours have."""
        whole = torch.cat(chunks)
        got = exchanged(dict.fromkeys(neighbours, whole), {peer: int(counts[peer].sum()) for peer in neighbours})
        return {
            peer: torch.cat([got[peer].split([int(count) for count in counts[peer]])[to] for to in rail])
            for peer in neighbours
        }


def direct(chunks: Chunks, counts: Tensor, node_size: int) -> Chunks:
    world, me = dist.get_world_size(), dist.get_rank()
    got = exchanged(dict(enumerate(chunks)), {rank: int(counts[rank][me]) for rank in range(world)})
    return [got[rank].clone() for rank in range(world)]


def uses_a_collective(chunks: Chunks, counts: Tensor, node_size: int) -> Chunks:
    sizes = [int(count) for count in counts[:, dist.get_rank()]]
    got = torch.empty(sum(sizes))
    dist.all_to_all_single(got, torch.cat(chunks), sizes, [len(chunk) for chunk in chunks])
    return [part.clone() for part in got.split(sizes)]


def whole_nodes_across(chunks: Chunks, counts: Tensor, node_size: int) -> Chunks:
    """Everything goes along the rail to every node, and each node hands on what is for it."""
    world, me = dist.get_world_size(), dist.get_rank()
    node, local = divmod(me, node_size)
    neighbours, rail = range(node * node_size, (node + 1) * node_size), range(local, world, node_size)
    whole = torch.cat(chunks)
    got = exchanged(dict.fromkeys(rail, whole), {source: int(counts[source].sum()) for source in rail})
    split = {source: got[source].split([int(count) for count in counts[source]]) for source in rail}
    parts = {peer: torch.cat([split[source][peer] for source in rail]) for peer in neighbours}
    columns = {peer: range(peer % node_size, world, node_size) for peer in neighbours}
    arrived = exchanged(parts, {peer: int(sum(counts[source][me] for source in columns[peer])) for peer in neighbours})
    out: dict[int, Tensor] = {}
    for peer in neighbours:
        cut = arrived[peer].split([int(counts[source][me]) for source in columns[peer]])
        out |= dict(zip(columns[peer], cut, strict=True))
    return [out[rank].clone() for rank in range(world)]
