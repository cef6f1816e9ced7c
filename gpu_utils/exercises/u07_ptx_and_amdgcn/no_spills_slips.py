"""Kernels of 07.no_spills: the one that is given, and one that right and wrong answers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def given_kernel(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_K columns at a time: a block of BLOCK_K x BLOCK_M x BLOCK_N differences, then its sum."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = (start + tl.arange(0, BLOCK_K))[:, None]
        a = tl.load(a_ptr + ks * M + rows[None, :], mask=(ks < K) & (rows[None, :] < M), other=0.0)
        b = tl.load(b_ptr + ks * N + cols[None, :], mask=(ks < K) & (cols[None, :] < N), other=0.0)
        total += tl.sum(tl.abs(a[:, :, None] - b[:, None, :]), axis=0)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], total, mask=mask)


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SUM: tl.constexpr,
    SQUARED: tl.constexpr,
    LOADS_MASKED: tl.constexpr,
    STORE_MASKED: tl.constexpr,
    LAST: tl.constexpr,
):
    """One k at a time; right with SUM=tl.float32, SQUARED=False, LOADS_MASKED=STORE_MASKED=True, LAST=0."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for k in range(0, K - LAST):
        if LOADS_MASKED:
            a = tl.load(a_ptr + k * M + rows, mask=rows < M, other=0.0)
            b = tl.load(b_ptr + k * N + cols, mask=cols < N, other=0.0)
        else:
            a = tl.load(a_ptr + k * M + rows)
            b = tl.load(b_ptr + k * N + cols)
        difference = a[:, None] - b[None, :]
        if SQUARED:
            total += (difference * difference).to(SUM)
        else:
            total += tl.abs(difference).to(SUM)
    at = out_ptr + rows[:, None] * N + cols[None, :]
    if STORE_MASKED:
        tl.store(at, total.to(tl.float32), mask=(rows[:, None] < M) & (cols[None, :] < N))
    else:
        tl.store(at, total.to(tl.float32), mask=(rows[:, None] < M) & (cols[None, :] > -1))


@triton.jit
def strips_kernel(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr):
    """One program, which walks over small tiles."""
    for down in range(0, M, BLOCK):
        for right in range(0, N, BLOCK):
            rows = down + tl.arange(0, BLOCK)
            cols = right + tl.arange(0, BLOCK)
            total = tl.zeros((BLOCK, BLOCK), tl.float32)
            for k in range(0, K):
                a = tl.load(a_ptr + k * M + rows, mask=rows < M, other=0.0)
                b = tl.load(b_ptr + k * N + cols, mask=cols < N, other=0.0)
                total += tl.abs(a[:, None] - b[None, :])
            mask = (rows[:, None] < M) & (cols[None, :] < N)
            tl.store(out_ptr + rows[:, None] * N + cols[None, :], total, mask=mask)


def strips(a: Tensor, b: Tensor) -> Tensor:
    """One program for the whole result."""
    (K, M), N = a.shape, b.shape[1]
    out = torch.empty(M, N, device=a.device)
    strips_kernel[1,](a, b, out, M, N, K, BLOCK=32, num_warps=1)
    return out


def given(num_warps: int = 4) -> Callable[[Tensor, Tensor], Tensor]:
    """The kernel that is given, with so many waves."""

    def answer(a: Tensor, b: Tensor) -> Tensor:
        (K, M), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device)
        grid = (triton.cdiv(M, 128), triton.cdiv(N, 64))
        given_kernel[grid](a, b, out, M, N, K, BLOCK_M=128, BLOCK_N=64, BLOCK_K=4, num_warps=num_warps)
        return out

    return answer


def retiled(
    block_m: int = 128,
    block_n: int = 64,
    num_warps: int = 4,
    on_amd: int | None = None,
    occupancy: bool = False,
    **changes: Any,
) -> Callable[[Tensor, Tensor], Tensor]:
    """One k at a time; right unless something is changed.

    on_amd  another number of waves there; occupancy: asks the compiler for many waves: waves_per_eu, maxnreg
    """
    how = {"SUM": tl.float32, "SQUARED": False, "LOADS_MASKED": True, "STORE_MASKED": True, "LAST": 0} | changes

    def answer(a: Tensor, b: Tensor) -> Tensor:
        (K, M), N = a.shape, b.shape[1]
        out = torch.empty(M, N, device=a.device)
        amd = triton.runtime.driver.active.get_current_target().backend == "hip"
        options: dict[str, int] = {"num_warps": on_amd if amd and on_amd else num_warps}
        if occupancy:
            options |= {"waves_per_eu": 8} if amd else {"maxnreg": 64}
        grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
        kernel[grid](a, b, out, M, N, K, BLOCK_M=block_m, BLOCK_N=block_n, **how, **options)
        return out

    return answer
