"""Wrong answers of 05.persistent. One kernel holds all mistakes, chosen while it runs: few versions are compiled."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 32
"""Rows and columns of a tile of the result; said in the statement."""

(
    NO_RESET,
    STEP_OF_ONE,
    FIRST_TILE_ONLY,
    LAST_ROUND_LOST,
    LAST_TILE_LOST,
    DIVIDES_BY_ROWS,
    ROUNDS_COLUMNS_DOWN,
    TILES_OF_ELEMENTS,
    K_GOES_ON,
    K_ROUNDED_DOWN,
    NO_MASK_OF_K,
    NO_MASK_OF_THE_STORE,
    STRIDES_OF_ROWS,
    STORES_IN_EVERY_STEP,
    STORES_AT_THE_END,
    ALL_TO_THE_FIRST,
) = map(tl.constexpr, range(16))


@triton.jit(do_not_specialize=[*range(3, 11)])
def _kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, slip, TILE: tl.constexpr):
    units = tl.num_programs(0)
    stride_ak = tl.where(slip == STRIDES_OF_ROWS, 1, stride_ak)
    stride_am = tl.where(slip == STRIDES_OF_ROWS, K, stride_am)
    stride_bn = tl.where(slip == STRIDES_OF_ROWS, 1, stride_bn)
    stride_bk = tl.where(slip == STRIDES_OF_ROWS, N, stride_bk)
    tiles_m = tl.cdiv(M, TILE)
    tiles_n = tl.cdiv(N, TILE)
    tiles = tiles_m * tiles_n
    tiles_n = tl.where(slip == ROUNDS_COLUMNS_DOWN, tl.maximum(N // TILE, 1), tiles_n)
    end = tl.where(slip == LAST_ROUND_LOST, tiles // units * units, tiles)
    end = tl.where(slip == LAST_TILE_LOST, tiles - 1, end)
    end = tl.where(slip == FIRST_TILE_ONLY, tl.minimum(tiles, units), end)
    end = tl.where(slip == TILES_OF_ELEMENTS, M // TILE * (N // TILE), end)
    step = tl.where((slip == STEP_OF_ONE) | (slip == ALL_TO_THE_FIRST), 1, units)
    begin = tl.program_id(0) * tl.where(slip == ALL_TO_THE_FIRST, tiles, 1)
    offsets = tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    gone = 0
    for tile in range(begin, end, step):
        wide = tl.where(slip == DIVIDES_BY_ROWS, tiles_m, tiles_n)
        rows = tile // wide * TILE + offsets
        columns = tile % wide * TILE + offsets
        kept = (slip == NO_RESET) | (slip == STORES_AT_THE_END)
        acc = tl.where(kept, acc, 0.0)
        depth = tl.where(slip == K_ROUNDED_DOWN, K // TILE * TILE, K)
        c_mask = (rows < M)[:, None] & (columns < N)[None, :]
        c_mask = c_mask | (slip == NO_MASK_OF_THE_STORE)
        c_at = c_ptr + rows[:, None] * N + columns[None, :]
        for k in range(0, depth, TILE):
            ks = k + offsets
            inside = (ks < K) | (slip == NO_MASK_OF_K)
            at = ks + gone
            a = tl.load(
                a_ptr + rows[:, None] * stride_am + at[None, :] * stride_ak,
                mask=(rows < M)[:, None] & inside[None, :],
                other=0.0,
            )
            b = tl.load(
                b_ptr + at[:, None] * stride_bk + columns[None, :] * stride_bn,
                mask=inside[:, None] & (columns < N)[None, :],
                other=0.0,
            )
            acc = tl.dot(a, b, acc)
            if slip == STORES_IN_EVERY_STEP:
                tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=c_mask)
        gone += tl.where(slip == K_GOES_ON, K, 0)
        last = (slip != STORES_AT_THE_END) | (tile + step >= end)
        if last:
            tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def tiles_of(a: Tensor, b: Tensor) -> int:
    """Tiles of the product."""
    return triton.cdiv(a.shape[0], TILE) * triton.cdiv(b.shape[1], TILE)


def _programs(a: Tensor, b: Tensor, units: int) -> int:
    return min(units, tiles_of(a, b))


def switched(
    slip: tl.constexpr | None = None,
    programs: Callable[[Tensor, Tensor, int], int] = _programs,
    dtype: torch.dtype | None = None,
) -> Callable[[Tensor, Tensor, int], Tensor]:
    """The right answer with one mistake in it, with another grid, or with a result of another type."""

    def answer(a: Tensor, b: Tensor, units: int) -> Tensor:
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, dtype=dtype or a.dtype, device=a.device)
        number = -1 if slip is None else slip.value
        grid = (programs(a, b, units),)
        _kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), number, TILE=TILE)
        return c

    return answer


def of_copies(a: Tensor, b: Tensor, units: int) -> Tensor:
    return switched()(a.contiguous(), b.contiguous(), units)


def returns_nothing(a: Tensor, b: Tensor, units: int) -> None:
    switched()(a, b, units)
