"""Wrong answers to 11.hierarchical: one phase done otherwise, and sums that cross between nodes more than they need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_utils.exercises.u11_expert_parallelism.rings import all_gathered, all_reduced, reduce_scattered


@dataclass(frozen=True)
class Hierarchy:
    """The solution, with what a slip changes.

    longer    pieces so long that all elements fit; without, what is left over is not touched
    crosses   whether phase 2 is done
    gathers   whether phase 3 is done
    own       which chunk a rank takes to its rail, counted from its local number
    sums      whether phase 3 sums where it should gather
    blocking  whether every rank sends before it receives
    """

    longer: bool = True
    crosses: bool = True
    gathers: bool = True
    own: int = 1
    sums: bool = False
    blocking: bool = False

    def __call__(self, x: Tensor, node_size: int) -> Tensor:
        world, me = dist.get_world_size(), dist.get_rank()
        node, local = divmod(me, node_size)
        neighbours = list(range(node * node_size, (node + 1) * node_size))
        rail = list(range(local, world, node_size))
        piece = -(-x.numel() // world) if self.longer else x.numel() // world
        flat = torch.zeros(max(world * piece, x.numel()))
        flat[: x.numel()] = x.flatten()
        chunks = flat[: world * piece].view(node_size, len(rail) * piece)
        reduce_scattered(chunks, neighbours, local, self.blocking)
        if self.crosses:
            pieces = chunks[(local + self.own) % node_size].view(len(rail), piece)
            reduce_scattered(pieces, rail, node)
            all_gathered(pieces, rail, node)
        if self.sums:
            reduce_scattered(chunks, neighbours, local)
        if self.gathers:
            all_gathered(chunks, neighbours, local)
        return flat[: x.numel()].view(x.shape).clone()


def mixed_nodes(x: Tensor, node_size: int) -> Tensor:
    """Ranks dealt out to the nodes in turn: what should stay inside of a node crosses."""
    world, me = dist.get_world_size(), dist.get_rank()
    nodes = world // node_size
    local, node = divmod(me, nodes)
    neighbours = list(range(node, world, nodes))
    rail = list(range(local * nodes, (local + 1) * nodes))
    piece = -(-x.numel() // world)
    chunks = torch.zeros(node_size, nodes * piece)
    chunks.view(-1)[: x.numel()] = x.flatten()
    reduce_scattered(chunks, neighbours, local)
    pieces = chunks[(local + 1) % node_size].view(nodes, piece)
    reduce_scattered(pieces, rail, node)
    all_gathered(pieces, rail, node)
    all_gathered(chunks, neighbours, local)
    return chunks.view(-1)[: x.numel()].view(x.shape)


def flat_ring(x: Tensor, node_size: int) -> Tensor:
    """One ring over all ranks."""
    return all_reduced(x.flatten(), list(range(dist.get_world_size())), dist.get_rank()).view(x.shape)


def whole_on_each_rail(x: Tensor, node_size: int) -> Tensor:
    """An all-reduce inside of the node, then one of the whole tensor on every rail."""
    world, me = dist.get_world_size(), dist.get_rank()
    node, local = divmod(me, node_size)
    neighbours = list(range(node * node_size, (node + 1) * node_size))
    of_node = all_reduced(x.flatten(), neighbours, local)
    return all_reduced(of_node, list(range(local, world, node_size)), node).view(x.shape)


def one_leader(x: Tensor, node_size: int) -> Tensor:
    """The first rank of a node collects, talks to the other nodes, and tells its neighbours."""
    world, me = dist.get_world_size(), dist.get_rank()
    node, local = divmod(me, node_size)
    leader = node * node_size
    total = x.flatten().clone()
    if local:
        dist.send(total, leader)
        dist.recv(total, leader)
        return total.view(x.shape)
    got = torch.empty_like(total)
    for rank in range(leader + 1, leader + node_size):
        dist.recv(got, rank)
        total += got
    total = all_reduced(total, list(range(0, world, node_size)), node)
    for rank in range(leader + 1, leader + node_size):
        dist.send(total, rank)
    return total.view(x.shape)


def uses_a_collective(x: Tensor, node_size: int) -> Tensor:
    total = x.clone()
    dist.all_reduce(total)
    return total
