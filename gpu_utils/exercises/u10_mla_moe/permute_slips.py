"""Wrong answers to 10.permute, as learners write them: three kernels whose slips are numbers, and their launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
"""Entries of `experts` that a program looks at in one step."""

Permuted = tuple[Tensor, ...]
Answer = Callable[[Tensor, Tensor, int, int], Permuted]

(
    NOT_PADDED,
    ROUNDED_DOWN,
    ONE_MORE_TILE,
    NOT_CARRIED,
    FROM_ONE,
    OWN_END,
    BY_CHOICE,
    LAST_STEP_LOST,
    REVERSED,
    FIRST_CHOICE,
    SOURCE_IS_ENTRY,
    NO_MASK,
    GATHERED,
) = map(tl.constexpr, range(13))


@triton.jit
def _entry(at, n, k, slip):
    """Where the number of the expert stands that is looked at as number `at`."""
    tokens = n // k
    at = tl.where(slip == REVERSED, n - 1 - at, at)
    return tl.where(slip == BY_CHOICE, at % tokens * k + at // tokens, at)


@triton.jit(do_not_specialize=["n", "k", "slip"])
def _count_kernel(experts_ptr, counts_ptr, n, k, slip, BLOCK: tl.constexpr):
    expert = tl.program_id(0)
    total = 0
    for start in range(0, tl.where(slip == LAST_STEP_LOST, n // BLOCK * BLOCK, n), BLOCK):
        at = start + tl.arange(0, BLOCK)
        chosen = tl.load(experts_ptr + at, mask=at < n, other=-1)
        total += tl.sum((chosen == expert).to(tl.int32))
    tl.store(counts_ptr + expert, total)


@triton.jit(do_not_specialize=["n", "k", "E", "tile", "slip"])
def _place_kernel(
    experts_ptr, counts_ptr, offsets_ptr, position_ptr, n, k, E, tile, slip, BLOCK: tl.constexpr, MOST: tl.constexpr
):
    expert = tl.program_id(0)
    one = tl.arange(0, MOST)
    counts = tl.load(counts_ptr + one, mask=one < E, other=0)
    padded = tl.cdiv(counts, tile) * tile
    padded = tl.where(slip == NOT_PADDED, counts, padded)
    padded = tl.where(slip == ROUNDED_DOWN, counts // tile * tile, padded)
    padded = tl.where((slip == ONE_MORE_TILE) & (one < E), (counts // tile + 1) * tile, padded)
    before = one < tl.where(slip == OWN_END, expert + 1, expert)
    first = tl.sum(tl.where(before, padded, 0))
    tl.store(offsets_ptr + expert, first)
    tl.store(offsets_ptr + E, tl.sum(padded), mask=expert == E - 1)
    seen = 0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        entry = _entry(at, n, k, slip)
        chosen = tl.load(experts_ptr + entry, mask=at < n, other=-1)
        here = (chosen == expert).to(tl.int32)
        rank = tl.cumsum(here, 0) - tl.where(slip == FROM_ONE, 0, 1)
        tl.store(position_ptr + entry, first + seen + rank, mask=here > 0)
        seen += tl.where(slip == NOT_CARRIED, 0, tl.sum(here))


@triton.jit(do_not_specialize=["k"])
def _atomic_kernel(experts_ptr, offsets_ptr, filled_ptr, position_ptr, k):
    """A program for each token takes the next free row of each of its experts."""
    token = tl.program_id(0)
    for j in range(0, k):
        expert = tl.load(experts_ptr + token * k + j)
        slot = tl.atomic_add(filled_ptr + expert, 1)
        tl.store(position_ptr + token * k + j, tl.load(offsets_ptr + expert) + slot)


@triton.jit(do_not_specialize=["D", "k", "stride", "slip"])
def _scatter_kernel(x_ptr, position_ptr, rows_ptr, source_ptr, D, k, stride, slip, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    there = (d < D) | (slip == NO_MASK)
    x = tl.load(x_ptr + token * stride + d, mask=d < D, other=0.0)
    for j in range(0, tl.where(slip == FIRST_CHOICE, 1, k)):
        row = tl.load(position_ptr + token * k + j)
        if slip == GATHERED:
            x = tl.load(x_ptr + token * stride + d, mask=d < D, other=0.0, volatile=True)
        tl.store(rows_ptr + row.to(tl.int64) * D + d, x, mask=there)
        tl.store(source_ptr + row, tl.where(slip == SOURCE_IS_ENTRY, token * k + j, token))


def answer(
    slip: tl.constexpr | None = None,
    *,
    atomics: bool = False,
    rows: Callable[..., Tensor] = torch.zeros,
    nobody: int = -1,
    stride: Callable[[Tensor], int] = lambda x: x.stride(0),
    more: Callable[[Tensor, Tensor, int, int], int] = lambda x, experts, num_experts, tile: 0,
    returns: Callable[..., Permuted] = lambda *found: found,
) -> Answer:
    """The right answer, but for what is given."""
    number = -1 if slip is None else slip.value

    def permute(x: Tensor, experts: Tensor, num_experts: int, tile: int) -> Permuted:
        (T, D), k = x.shape, experts.shape[1]
        new: dict[str, Any] = {"dtype": torch.int32, "device": x.device}
        counts, offsets = torch.empty(num_experts, **new), torch.empty(num_experts + 1, **new)
        position = torch.zeros(T, k, **new)
        _count_kernel[(num_experts,)](experts, counts, T * k, k, number, BLOCK=BLOCK)
        _place_kernel[(num_experts,)](
            experts, counts, offsets, position, T * k, k, num_experts, tile, number, BLOCK=BLOCK, MOST=64
        )
        if atomics:
            _atomic_kernel[(T,)](experts, offsets, torch.zeros(num_experts, **new), position, k)
        size = int(offsets[-1]) + more(x, experts, num_experts, tile)
        out = rows(size, D, dtype=x.dtype, device=x.device)
        source = torch.full((size,), nobody, **new)
        _scatter_kernel[(T,)](
            x, position, out, source, D, k, stride(x), number, BLOCK=max(128, triton.next_power_of_2(D))
        )
        return returns(out, source, offsets, position)

    return permute


def of_a_copy(x: Tensor, experts: Tensor, num_experts: int, tile: int) -> Permuted:
    return answer()(x.clone(), experts, num_experts, tile)


def a_tile_more(x: Tensor, experts: Tensor, num_experts: int, tile: int) -> int:
    """Rows beyond those that were counted."""
    return tile


def sorted_by_torch(x: Tensor, experts: Tensor, num_experts: int, tile: int) -> Permuted:
    """All of it by torch's own sorting."""
    k = experts.shape[1]
    flat = experts.flatten()
    counts = torch.bincount(flat, minlength=num_experts)
    padded = (counts + tile - 1) // tile * tile
    offsets = torch.cat([padded.new_zeros(1), padded.cumsum(0)]).int()
    order = flat.argsort(stable=True)
    ordered = flat[order]
    rank = torch.arange(len(flat), device=x.device) - (counts.cumsum(0) - counts)[ordered]
    place = offsets[ordered].long() + rank
    rows = torch.zeros(int(offsets[-1]), x.shape[1], dtype=x.dtype, device=x.device)
    rows[place] = x[order // k]
    source = torch.full((len(rows),), -1, dtype=torch.int32, device=x.device)
    source[place] = (order // k).int()
    position = torch.empty_like(flat)
    position[order] = place
    return rows, source, offsets, position.view(-1, k).int()
