"""Wrong answers to 09.batch_invariant, as learners write them: a kernel with switches, two others, launchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u09_operator_alignment.served_kernels import add_parts_kernel

DEPTH = 32

Answer = Callable[[Tensor, Tensor], Any]
Plan = Callable[[int, int], tuple[int, int]]
"""(rows of x, tiles of 32 columns) -> (rows of a tile, parts of K)."""

_SLIPS = ("", "no mask on K", "in 16 bits", "keeps the last block")
NO_MASK_ON_K = tl.constexpr(_SLIPS.index("no mask on K"))
IN_16_BITS = tl.constexpr(_SLIPS.index("in 16 bits"))
KEEPS_THE_LAST = tl.constexpr(_SLIPS.index("keeps the last block"))


@triton.jit(do_not_specialize=["M", "N", "K", "stride", "part", "slip"])
def kernel(
    x_ptr, w_ptr, parts_ptr, M, N, K, stride, part, apart, slip,
    ROWS: tl.constexpr, ATOMIC: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """A part of K of one tile, stored `apart` elements behind the part before, or added."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    split = tl.program_id(2)
    end = tl.minimum(split * part + part, K)
    there = rows < M
    acc = tl.zeros((ROWS, B), dtype=tl.float32)
    for start in range(split * part, end, B):
        k_of_x = start + tl.arange(0, B)[None, :]
        k_of_w = start + tl.arange(0, B)[:, None]
        x_mask = there & ((k_of_x < end) | (slip == NO_MASK_ON_K))
        w_mask = (cols < N) & ((k_of_w < end) | (slip == NO_MASK_ON_K))
        x = tl.load(x_ptr + rows * stride + k_of_x, mask=x_mask, other=0.0)
        w = tl.load(w_ptr + k_of_w * N + cols, mask=w_mask, other=0.0)
        if slip == KEEPS_THE_LAST:
            acc = tl.zeros((ROWS, B), dtype=tl.float32)
        acc = tl.dot(x, w, acc)
        if slip == IN_16_BITS:
            acc = acc.to(x_ptr.dtype.element_ty).to(tl.float32)
    at = parts_ptr + split * apart + rows * N + cols
    mask = there & (cols < N)
    if ATOMIC:
        tl.atomic_add(at, acc, mask=mask)
    else:
        tl.store(at, acc.to(parts_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["N", "K", "stride"])
def vector_kernel(x_ptr, w_ptr, out_ptr, N, K, stride, B: tl.constexpr):
    """One row by 32 columns, by products of lanes and tl.sum."""
    row = tl.program_id(0)
    cols = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        x = tl.load(x_ptr + row * stride + k, mask=k < K, other=0.0).to(tl.float32)
        mask = (k < K)[:, None] & (cols < N)[None, :]
        w = tl.load(w_ptr + k[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        acc += tl.sum(x[:, None] * w, 0)
    tl.store(out_ptr + row * N + cols, acc, mask=cols < N)


def fixed(rows: int, tiles: int) -> tuple[int, int]:
    return 16, 1


def by_plan(
    plan: Plan = fixed, slip: str = "", *, atomic: bool = False, dtype: torch.dtype = torch.float32,
    tiles_of: Callable[[int, int], int] = triton.cdiv, stride: Callable[[Tensor], int] = lambda x: x.stride(0),
) -> Answer:  # fmt: skip
    """The right answer where nothing is changed."""

    def answer(x: Tensor, w: Tensor) -> Tensor:
        (M, K), N = x.shape, w.shape[1]
        columns = triton.cdiv(N, DEPTH)
        tall, splits = plan(M, columns)
        part = triton.cdiv(triton.cdiv(K, DEPTH), splits) * DEPTH
        new = torch.zeros if atomic else torch.empty
        parts = new((1 if atomic else splits, M, N), dtype=dtype, device=x.device)
        kernel[(tiles_of(M, tall), columns, splits)](
            *(x, w, parts, M, N, K, stride(x), part, 0 if atomic else M * N, _SLIPS.index(slip)),
            ROWS=tall, ATOMIC=atomic, B=DEPTH,
        )  # fmt: skip
        if atomic or splits == 1:
            return parts[0]
        out = torch.empty((M, N), dtype=dtype, device=x.device)
        add_parts_kernel[(triton.cdiv(M * N, 512),)](parts, out, M * N, splits, BLOCK=512)
        return out

    return answer


right = by_plan()


def by_vectors(x: Tensor, w: Tensor) -> Tensor:
    (M, K), N = x.shape, w.shape[1]
    out = torch.empty((M, N), dtype=torch.float32, device=x.device)
    vector_kernel[(M, triton.cdiv(N, DEPTH))](x, w, out, N, K, x.stride(0), B=DEPTH)
    return out


def one_row_by_vectors(x: Tensor, w: Tensor) -> Tensor:
    return by_vectors(x, w) if len(x) == 1 else right(x, w)


def last_rows_apart(x: Tensor, w: Tensor) -> Tensor:
    """Whole tiles of 32 rows, and tiles of 16 for the rest."""
    (M, K), N = x.shape, w.shape[1]
    out = torch.empty((M, N), dtype=torch.float32, device=x.device)
    whole = M // 32 * 32
    for first, last, tall in ((0, whole, 32), (whole, M, 16)):
        if first < last:
            rows, to = x[first:last], out[first:last]
            grid = (triton.cdiv(len(rows), tall), triton.cdiv(N, DEPTH), 1)
            args = (rows, w, to, len(rows), N, K, x.stride(0), triton.cdiv(K, DEPTH) * DEPTH, 0, 0)
            kernel[grid](*args, ROWS=tall, ATOMIC=False, B=DEPTH)
    return out


def _row_by_row(x: Tensor, w: Tensor, out: Tensor) -> None:
    for row in range(len(x)):
        args = (x[row:], w, out[row:], 1, *reversed(w.shape), x.stride(0), triton.cdiv(len(w), DEPTH) * DEPTH, 0, 0)
        kernel[(1, triton.cdiv(w.shape[1], DEPTH), 1)](*args, ROWS=16, ATOMIC=False, B=DEPTH)


def a_launch_for_each_row(x: Tensor, w: Tensor) -> Tensor:
    out = torch.empty((len(x), w.shape[1]), dtype=torch.float32, device=x.device)
    _row_by_row(x, w, out)
    return out


@triton.jit(do_not_specialize=["N", "K", "stride"])
def row_kernel(x_ptr, w_ptr, out_ptr, N, K, stride, B: tl.constexpr):
    """A tile whose first row is a row of x, and whose other rows are empty."""
    row = tl.program_id(0)
    down = tl.arange(0, 16)[:, None]
    cols = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    acc = tl.zeros((16, B), dtype=tl.float32)
    for start in range(0, K, B):
        k_of_x = start + tl.arange(0, B)[None, :]
        k_of_w = start + tl.arange(0, B)[:, None]
        x = tl.load(x_ptr + (row + down) * stride + k_of_x, mask=(down < 1) & (k_of_x < K), other=0.0)
        w = tl.load(w_ptr + k_of_w * N + cols, mask=(k_of_w < K) & (cols < N), other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(out_ptr + (row + down) * N + cols, acc, mask=(down < 1) & (cols < N))


def a_tile_for_each_row(x: Tensor, w: Tensor) -> Tensor:
    (M, K), N = x.shape, w.shape[1]
    out = torch.empty((M, N), dtype=torch.float32, device=x.device)
    row_kernel[(M, triton.cdiv(N, DEPTH))](x, w, out, N, K, x.stride(0), B=DEPTH)
    return out


def with_torch(x: Tensor, w: Tensor) -> Tensor:
    return x.float() @ w.float()


def returns_nothing(x: Tensor, w: Tensor) -> None:
    right(x, w)
