"""Wrong answers to 08.gemm, as learners write them: one kernel with switches, and its launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u08_fp8.shared import TILE

BLOCK = 64
"""Rows and columns of the result that a program has."""

SLIPS = (
    *("", "no a_scales", "no b_scales", "last scales", "first tile", "first block", "column", "again", "divided"),
    *("scaled before", "each sum in bfloat16", "transposed scales", "behind K", "unmasked", "sum of scales"),
    *("transposed scales of b", "whole tiles", "by way of float16"),
)


@triton.jit(do_not_specialize=["M", "N", "K", "a_row", "b_row", "slip"])
def kernel(
    a_ptr,
    a_scales_ptr,
    b_ptr,
    b_scales_ptr,
    out_ptr,
    M,
    N,
    K,
    a_row,
    b_row,
    slip,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """slip is a place in SLIPS. WIDE: what the codes become first, with float32 scaled as well."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    tiles = tl.where(slip == 16, K // TILE, tl.cdiv(K, TILE))
    for tile in range(0, tiles):
        k = tile * TILE + tl.arange(0, TILE)
        end = tl.where(slip == 12, tiles * TILE, K)
        a = tl.load(a_ptr + m[:, None] * a_row + k[None, :], mask=(m[:, None] < M) & (k[None, :] < end), other=0.0)
        b = tl.load(b_ptr + n[None, :] * b_row + k[:, None], mask=(n[None, :] < N) & (k[:, None] < end), other=0.0)
        at = tl.where(slip == 3, tiles - 1, tl.where(slip == 4, 0, tile))
        of_a = tl.where(slip == 11, at * M + m, m * tiles + at)
        row = tl.where(slip == 6, n, tl.where(slip == 5, 0, n // TILE))
        of_b = tl.where(slip == 15, at * tl.cdiv(N, TILE) + row, row * tiles + at)
        a_scale = tl.load(a_scales_ptr + of_a, mask=m < M, other=0.0)
        b_scale = tl.load(b_scales_ptr + of_b, mask=n < N, other=0.0)
        if slip == 9:
            a = (a.to(tl.float32) * a_scale[:, None]).to(a.dtype)
        a_scale = tl.where((slip == 1) | (slip == 9), 1.0, a_scale)
        b_scale = tl.where(slip == 2, 1.0, b_scale)
        if WIDE == "bfloat16":
            product = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
        elif WIDE == "float32":
            product = tl.dot(a.to(tl.float32) * a_scale[:, None], b.to(tl.float32) * b_scale[None, :])
            a_scale, b_scale = a_scale * 0 + 1, b_scale * 0 + 1
        else:
            product = tl.dot(a, b)
        scale = a_scale[:, None] * b_scale[None, :]
        scale = tl.where(slip == 8, 1.0 / scale, scale)
        scale = tl.where(slip == 14, a_scale[:, None] + b_scale[None, :], scale)
        summed = tl.where(slip == 7, (acc + product) * scale, acc + product * scale)
        acc = tl.where(slip == 10, summed.to(tl.bfloat16).to(tl.float32), summed)
    acc = tl.where(slip == 17, acc.to(tl.float16).to(tl.float32), acc)
    there = ((m < M)[:, None] & (n < N)[None, :]) | (slip == 13)
    tl.store(out_ptr + m[:, None] * N + n[None, :], acc, mask=there)


def answer(
    slip: str = "", *, contiguous: bool = False, wide: str = "", dtype: torch.dtype = torch.bfloat16
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed."""

    def wrong(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
        (M, K), N = a.shape, b.shape[0]
        out = torch.empty((M, N), dtype=dtype, device=a.device)
        rows = (K, K) if contiguous else (a.stride(0), b.stride(0))
        kernel[(triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))](
            *(a, a_scales, b, b_scales, out, M, N, K, *rows, SLIPS.index(slip)),
            BLOCK=BLOCK,
            TILE=TILE,
            WIDE=wide,
        )
        return out

    return wrong


def torch_scales(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
    """The kernel multiplies one stretch of 128 after the other; torch scales and adds them."""
    (M, K), N = a.shape, b.shape[0]
    ones = torch.ones_like(a_scales[:, :1]), torch.ones_like(b_scales[:, :1])
    total = torch.zeros((M, N), device=a.device)
    for tile in range(a_scales.shape[1]):
        part = slice(tile * TILE, min(K, (tile + 1) * TILE))
        of_columns = b_scales[:, tile].repeat_interleave(TILE)[:N]
        product = answer(dtype=torch.float32)(a[:, part], ones[0], b[:, part], ones[1])
        total += product * a_scales[:, tile, None] * of_columns
    return total.to(torch.bfloat16)


def torch_multiplies(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
    """No kernel at all."""
    (_, K), N = a.shape, b.shape[0]
    wide_a = a.float() * a_scales.repeat_interleave(TILE, 1)[:, :K]
    wide_b = b.float() * b_scales.repeat_interleave(TILE, 0)[:N].repeat_interleave(TILE, 1)[:, :K]
    return (wide_a @ wide_b.T).to(torch.bfloat16)
