"""The two halves of a ring on ranks, for the lesson's pictures and for wrong answers that are right in part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Seen = Callable[[Tensor], Any]


def passed_on(chunk: Tensor, got: Tensor, ring: Sequence[int], at: int, blocking: bool = False) -> None:
    """Send to the next rank of a ring, receive from the one before. blocking: each sends before it receives."""
    to, source = ring[(at + 1) % len(ring)], ring[at - 1]
    chunk = chunk.clone()
    if blocking:
        dist.send(chunk, to)
        dist.recv(got, source)
    else:
        work = dist.isend(chunk, to)
        dist.recv(got, source)
        assert work is not None
        work.wait()


def reduce_scattered(
    chunks: Tensor, ring: Sequence[int], at: int, blocking: bool = False, seen: Seen = lambda chunks: None
) -> None:
    """Chunks (ranks, size) summed in place over a ring; number at + 1 is complete afterwards. seen: after each step."""
    n, got = len(ring), torch.empty_like(chunks[0])
    for step in range(n - 1):
        passed_on(chunks[(at - step) % n], got, ring, at, blocking)
        chunks[(at - step - 1) % n] += got
        seen(chunks)


def all_gathered(chunks: Tensor, ring: Sequence[int], at: int, seen: Seen = lambda chunks: None) -> None:
    """The complete chunks handed on until every rank has all of them."""
    n, got = len(ring), torch.empty_like(chunks[0])
    for step in range(n - 1):
        passed_on(chunks[(at + 1 - step) % n], got, ring, at)
        chunks[(at - step) % n] = got
        seen(chunks)


def all_reduced(flat: Tensor, ring: Sequence[int], at: int, seen: Seen = lambda chunks: None) -> Tensor:
    """The sum of a 1-d tensor of any length over a ring of ranks, at whose place `at` the caller is."""
    size = -(-len(flat) // len(ring))
    chunks = flat.new_zeros(len(ring), size)
    chunks.view(-1)[: len(flat)] = flat
    reduce_scattered(chunks, ring, at, seen=seen)
    all_gathered(chunks, ring, at, seen=seen)
    return chunks.view(-1)[: len(flat)].clone()
