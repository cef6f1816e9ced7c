"""Wrong answers to 10.grouped_gemm. One kernel holds all mistakes, chosen while it runs: few versions are compiled."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 64
"""Rows and columns of a tile of the result; the statement says so."""

MOST = 16
"""Experts that the kernel below looks up in one vector."""

Answer = Callable[[Tensor, Tensor, Tensor, int], Tensor]

(
    FIRST_EXPERT,
    BOUNDARY,
    NEXT_EXPERT,
    EQUAL_STRETCHES,
    SKIPS_EMPTY,
    WEIGHTS_BY_N,
    ROWS_OF_THE_STRETCH,
    EVERY_EXPERT,
    PADDED_TO_LONGEST,
    TRANSPOSED,
    NO_RESET,
    STEP_OF_ONE,
    ALL_TO_THE_FIRST,
    FIRST_TILE_ONLY,
    LAST_ROUND_LOST,
    COLUMNS_ROUNDED_DOWN,
    K_ROUNDED_DOWN,
    NO_MASK_OF_K,
    NO_MASK_OF_COLUMNS,
    NARROW_SUM,
    K_GOES_ON,
    STORES_IN_EVERY_STEP,
) = map(tl.constexpr, range(22))


@triton.jit(do_not_specialize=["R", "N", "K", "E", "slip"])
def _kernel(
    rows_ptr,
    weights_ptr,
    offsets_ptr,
    out_ptr,
    R,
    N,
    K,
    E,
    slip,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
    MOST: tl.constexpr,
):
    units = tl.num_programs(0)
    one = tl.arange(0, MOST)
    begins = tl.load(offsets_ptr + one, mask=one < E, other=R)
    ends = tl.load(offsets_ptr + 1 + one, mask=one < E, other=R)
    longest = tl.max(ends - begins) // TILE
    tiles_m = tl.where(slip == PADDED_TO_LONGEST, longest * E, R // TILE)
    tiles_n = tl.where(slip == COLUMNS_ROUNDED_DOWN, tl.maximum(N // TILE, 1), tl.cdiv(N, TILE))
    tiles = tiles_m * tiles_n
    end = tl.where(slip == LAST_ROUND_LOST, tiles // units * units, tiles)
    end = tl.where(slip == FIRST_TILE_ONLY, tl.minimum(tiles, units), end)
    step = tl.where((slip == STEP_OF_ONE) | (slip == ALL_TO_THE_FIRST), 1, units)
    begin = tl.program_id(0) * tl.where(slip == ALL_TO_THE_FIRST, tiles, 1)
    inner = tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    gone = 0
    for tile in range(begin, end, step):
        first = tile // tiles_n * TILE
        expert = tl.sum(((ends <= first) & (one < E)).to(tl.int32))
        expert = tl.where(slip == BOUNDARY, tl.sum(((ends < first) & (one < E)).to(tl.int32)), expert)
        expert = tl.where(slip == NEXT_EXPERT, tl.minimum(expert + 1, E - 1), expert)
        expert = tl.where(slip == EQUAL_STRETCHES, first * E // R, expert)
        filled = tl.sum(((ends <= first) & (ends > begins) & (one < E)).to(tl.int32))
        expert = tl.where(slip == SKIPS_EMPTY, filled, expert)
        expert = tl.where(slip == FIRST_EXPERT, 0, expert)
        last_row = R
        if slip == PADDED_TO_LONGEST:
            expert = tile // tiles_n // longest
            first = tl.sum(tl.where(one == expert, begins, 0)) + tile // tiles_n % longest * TILE
            last_row = tl.sum(tl.where(one == expert, ends, 0))
        reads = first - tl.where(slip == ROWS_OF_THE_STRETCH, tl.sum(tl.where(one == expert, begins, 0)), 0)
        columns = tile % tiles_n * TILE + inner
        to = first + inner
        acc = tl.where(slip == NO_RESET, acc, 0.0)
        depth = tl.where(slip == K_ROUNDED_DOWN, K // STEP * STEP, K)
        out_at = out_ptr + to[:, None] * N + columns[None, :]
        out_mask = ((to < last_row)[:, None] & (columns < N)[None, :]) | (slip == NO_MASK_OF_COLUMNS)
        stride_n = tl.where(slip == TRANSPOSED, 1, K)
        stride_k = tl.where(slip == TRANSPOSED, N, 1)
        for again in range(0, tl.where(slip == EVERY_EXPERT, E, 1)):
            which = tl.where(slip == EVERY_EXPERT, again, expert)
            own = (which == expert) | (slip != EVERY_EXPERT)
            w_ptr = weights_ptr + which * tl.where(slip == WEIGHTS_BY_N, N, N * K)
            for start in range(0, depth, STEP):
                k = start + tl.arange(0, STEP)
                inside = (k < K) | (slip == NO_MASK_OF_K)
                a = tl.load(
                    rows_ptr + (reads + inner)[:, None] * K + (k + gone)[None, :],
                    mask=inside[None, :] & (to < last_row)[:, None] & own,
                    other=0.0,
                )
                b = tl.load(
                    w_ptr + columns[None, :] * stride_n + (k + gone)[:, None] * stride_k,
                    mask=inside[:, None] & (columns < N)[None, :],
                    other=0.0,
                )
                acc = tl.dot(a, b, acc)
                acc = tl.where(slip == NARROW_SUM, acc.to(out_ptr.dtype.element_ty).to(tl.float32), acc)
                if slip == STORES_IN_EVERY_STEP:
                    tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=out_mask)
        gone += tl.where(slip == K_GOES_ON, K, 0)
        tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=out_mask)


def tiles_of(rows: Tensor, weights: Tensor) -> int:
    """Tiles of the product."""
    return triton.cdiv(rows.shape[0], TILE) * triton.cdiv(weights.shape[1], TILE)


def _programs(rows: Tensor, weights: Tensor, programs: int) -> int:
    return min(programs, tiles_of(rows, weights))


def answer(
    slip: tl.constexpr | None = None,
    grid: Callable[[Tensor, Tensor, int], int] = _programs,
    dtype: torch.dtype | None = None,
) -> Answer:
    """The right answer with one mistake in it, with another grid, or with a result of another type."""

    def grouped_gemm(rows: Tensor, weights: Tensor, offsets: Tensor, programs: int) -> Tensor:
        (R, K), (E, N, _) = rows.shape, weights.shape
        out = torch.empty(R, N, dtype=dtype or rows.dtype, device=rows.device)
        number = -1 if slip is None else slip.value
        _kernel[(grid(rows, weights, programs),)](
            rows, weights, offsets, out, R, N, K, E, number, TILE=TILE, STEP=32, MOST=MOST
        )
        return out

    return grouped_gemm


def launch_for_each_expert(rows: Tensor, weights: Tensor, offsets: Tensor, programs: int) -> Tensor:
    """The host reads the offsets, and launches a product for each expert."""
    ends = offsets.tolist()
    out = torch.empty(rows.shape[0], weights.shape[1], dtype=rows.dtype, device=rows.device)
    for expert, (begin, end) in enumerate(itertools.pairwise(ends)):
        if end > begin:
            one = torch.tensor([0, end - begin], dtype=torch.int32, device=rows.device)
            out[begin:end] = answer()(rows[begin:end], weights[expert : expert + 1], one, programs)
    return out


def returns_nothing(rows: Tensor, weights: Tensor, offsets: Tensor, programs: int) -> None:
    answer()(rows, weights, offsets, programs)


def with_torch(rows: Tensor, weights: Tensor, offsets: Tensor, programs: int) -> Tensor:
    """A loop over the experts."""
    ends = offsets.tolist()
    pairs = enumerate(itertools.pairwise(ends))
    return torch.cat([rows[begin:end] @ weights[expert].T for expert, (begin, end) in pairs])
