"""Wrong answers to 09.fixed_tree, as learners write them: one kernel with switches, two others, launchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

Answer = Callable[[Tensor, int, int], Any]

_SLIPS = ("", "no mask", "tl.sum in a block", "halves in a block", "blocks in turn")
NO_MASK = tl.constexpr(_SLIPS.index("no mask"))
BY_TL_SUM = tl.constexpr(_SLIPS.index("tl.sum in a block"))
HALVES = tl.constexpr(_SLIPS.index("halves in a block"))
IN_TURN = tl.constexpr(_SLIPS.index("blocks in turn"))


@triton.jit
def neighbours(x, N: tl.constexpr):
    """(N,) -> its one sum: even and odd elements are added, until one is left."""
    for level in tl.static_range(16):
        if (N >> level) > 1:
            x = tl.sum(tl.reshape(x, ((N >> level) // 2, 2)), 1)
    return tl.sum(x)


@triton.jit
def halves(x, N: tl.constexpr):
    """(N,) -> its one sum: the first and the second half are added, until one element is left."""
    for level in tl.static_range(16):
        if (N >> level) > 1:
            x = tl.sum(tl.reshape(x, (2, (N >> level) // 2)), 0)
    return tl.sum(x)


@triton.jit(do_not_specialize=["K", "stride", "blocks", "slip"])
def kernel(x_ptr, out_ptr, K, stride, blocks, slip, BLOCK: tl.constexpr, P: tl.constexpr):
    """The sum of a row: trees of its blocks, and a tree of their sums."""
    row = tl.program_id(0)
    sums = tl.zeros((P,), tl.float32)
    total = 0.0
    for block in range(blocks):
        k = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + k, mask=(k < K) | (slip == NO_MASK), other=0.0)
        if slip == BY_TL_SUM:
            one = tl.sum(x)
        elif slip == HALVES:
            one = halves(x, BLOCK)
        else:
            one = neighbours(x, BLOCK)
        total += one
        sums = tl.where(tl.arange(0, P) == block, one, sums)
    tree = neighbours(sums, P)
    tl.store(out_ptr + row, tl.where(slip == IN_TURN, total, tree))


@triton.jit(do_not_specialize=["K", "stride"])
def atomic_kernel(x_ptr, out_ptr, K, stride, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    k = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + k, mask=k < K, other=0.0)
    tl.atomic_add(out_ptr + row, neighbours(x, BLOCK))


@triton.jit(do_not_specialize=["K", "stride"])
def double_kernel(x_ptr, out_ptr, K, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + k, mask=k < K, other=0.0)
    tl.store(out_ptr + row, tl.sum(total).to(tl.float32))


@triton.jit(do_not_specialize=["K", "stride"])
def lanes_kernel(x_ptr, out_ptr, K, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + k, mask=k < K, other=0.0)
    tl.store(out_ptr + row, neighbours(total, BLOCK))


def treed(
    slip: str = "",
    *,
    warps_of: Callable[[int], int] = lambda warps: warps,
    stride: Callable[[Tensor], int] = lambda x: x.stride(0),
    blocks_of: Callable[[int, int], int] = triton.cdiv,
    shape: Callable[[int], tuple[int, ...]] = lambda rows: (rows,),
) -> Answer:
    """The right answer where nothing is changed."""

    def answer(x: Tensor, block: int, warps: int) -> Tensor:
        rows, K = x.shape
        out = torch.empty(shape(rows), dtype=torch.float32, device=x.device)
        kernel[(rows,)](
            *(x, out, K, stride(x), blocks_of(K, block), _SLIPS.index(slip)),
            BLOCK=block,
            P=triton.next_power_of_2(triton.cdiv(K, block)),
            num_warps=warps_of(warps),
        )
        return out

    return answer


right = treed()


def atomics(x: Tensor, block: int, warps: int) -> Tensor:
    rows, K = x.shape
    out = torch.zeros(rows, dtype=torch.float32, device=x.device)
    atomic_kernel[(rows, triton.cdiv(K, block))](x, out, K, x.stride(0), BLOCK=block, num_warps=warps)
    return out


def by(other: Any) -> Answer:
    """A kernel that sums a row in steps of a block."""

    def answer(x: Tensor, block: int, warps: int) -> Tensor:
        rows, K = x.shape
        out = torch.empty(rows, dtype=torch.float32, device=x.device)
        other[(rows,)](x, out, K, x.stride(0), BLOCK=block, num_warps=warps)
        return out

    return answer


def with_torch(x: Tensor, block: int, warps: int) -> Tensor:
    """Sums of torch; the kernel runs beside them."""
    right(x, block, warps)
    return x.sum(1)


def returns_nothing(x: Tensor, block: int, warps: int) -> None:
    right(x, block, warps)
