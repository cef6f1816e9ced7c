"""Wrong answers to 05.split_k, as learners write them: one kernel with switches, and launchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32
"""Rows, columns and depth of a tile: given to the learner, so that the counted bytes and programs are comparable."""

Answer = Callable[[Tensor, Tensor, int, bool], Any]

_INTO = ("atomic", "store", "read and write")
"""How a part comes to memory. The kernel knows it by its place here, and a slip by its place in _SLIPS."""

STORE = tl.constexpr(_INTO.index("store"))
READ_AND_WRITE = tl.constexpr(_INTO.index("read and write"))

_SLIPS = (
    *("", "all parts in one program", "all of K, masked", "into the next part", "b from the start", "no mask on K"),
    *("keeps the last block", "adds every block", "no empty part", "no mask on the result"),
)

ONE_PROGRAM = tl.constexpr(_SLIPS.index("all parts in one program"))
ALL_OF_K = tl.constexpr(_SLIPS.index("all of K, masked"))
INTO_THE_NEXT = tl.constexpr(_SLIPS.index("into the next part"))
B_FROM_THE_START = tl.constexpr(_SLIPS.index("b from the start"))
NO_MASK_ON_K = tl.constexpr(_SLIPS.index("no mask on K"))
KEEPS_THE_LAST = tl.constexpr(_SLIPS.index("keeps the last block"))
ADDS_EVERY_BLOCK = tl.constexpr(_SLIPS.index("adds every block"))
NO_EMPTY_PART = tl.constexpr(_SLIPS.index("no empty part"))
NO_MASK_ON_RESULT = tl.constexpr(_SLIPS.index("no mask on the result"))


@triton.jit(do_not_specialize=["M", "N", "K", "STEP", "PART", "LAST", "SPLITS", "APART", "into", "slip"])
def kernel(
    a_ptr,
    b_ptr,
    to_ptr,
    M,
    N,
    K,
    STEP,
    PART,
    LAST,
    SPLITS,
    APART,
    into,
    slip,
    B: tl.constexpr,
):
    """Part s of K begins at s * STEP, has PART elements and never passes LAST; parts lie APART elements apart."""
    rows = tl.program_id(0) * B + tl.arange(0, B)
    cols = tl.program_id(1) * B + tl.arange(0, B)
    split = tl.program_id(2)
    at = to_ptr + split * APART + rows[:, None] * N + cols[None, :]
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for turn in range(0, tl.where(slip == ONE_PROGRAM, SPLITS, 1)):
        first = (split + turn) * STEP
        end = tl.minimum(first + PART, LAST)
        low = tl.where(slip == ALL_OF_K, 0, first)
        high = tl.where(slip == ALL_OF_K, K, end)
        for start in range(low, high, B):
            inner = start + tl.arange(0, B)
            mine = (inner >= first) & (inner < tl.where(slip == INTO_THE_NEXT, K, end)) | (slip == NO_MASK_ON_K)
            inner_b = inner - tl.where(slip == B_FROM_THE_START, first, 0)
            a_mask = (rows[:, None] < M) & mine[None, :]
            b_mask = mine[:, None] & (cols[None, :] < N)
            a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + inner_b[:, None] * N + cols[None, :], mask=b_mask, other=0.0)
            if slip == KEEPS_THE_LAST:
                acc = tl.zeros((B, B), dtype=tl.float32)
            acc = tl.dot(a, b, acc)
            if slip == ADDS_EVERY_BLOCK:
                tl.atomic_add(at, acc, mask=mask)
                acc = tl.zeros((B, B), dtype=tl.float32)
    if slip == NO_EMPTY_PART:
        mask = mask & (split * STEP < K)
    value = acc.to(to_ptr.dtype.element_ty)
    if into == STORE:
        tl.store(at, value, mask=mask)
    elif into == READ_AND_WRITE:
        tl.store(at, tl.load(at, mask=mask, other=0.0) + value, mask=mask)
    elif slip == NO_MASK_ON_RESULT:
        tl.atomic_add(at, value)
    elif slip != ADDS_EVERY_BLOCK:
        tl.atomic_add(at, value, mask=mask)


@triton.jit(do_not_specialize=["n", "FIRST", "PARTS", "APART", "narrow"])
def sum_kernel(parts_ptr, out_ptr, n, FIRST, PARTS, APART, narrow, BLOCK: tl.constexpr):
    """Add up parts FIRST to PARTS - 1; where narrow is 1, rounding to the type of the result after each."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(FIRST, PARTS):
        total += tl.load(parts_ptr + part * APART + at, mask=at < n, other=0.0).to(tl.float32)
        if narrow == 1:
            total = total.to(out_ptr.dtype.element_ty).to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=at < n)


def part_of(K: int, splits: int) -> int:
    """Elements of K in each part, in whole blocks."""
    return triton.cdiv(triton.cdiv(K, BLOCK), splits) * BLOCK


def answer(
    slip: str = "",
    *,
    into: str = "atomic",
    atomic: Callable[[bool], bool] = lambda deterministic: not deterministic,
    part: Callable[[int, int], int] = part_of,
    all_from_0: bool = False,
    programs: Callable[[int], int] = lambda splits: splits,
    new: Callable[..., Tensor] = torch.zeros,
    narrow_sums: Callable[[bool], bool] = lambda deterministic: False,
    share: bool = False,
    parts: Callable[[int], tuple[int, int]] = lambda splits: (0, splits),
    narrow: bool = False,
    dtype: torch.dtype | None = None,
    tiles: Callable[[int, int], int] = triton.cdiv,
) -> Answer:
    """The right answer, with some of its parts changed."""

    def wrong(a: Tensor, b: Tensor, splits: int, deterministic: bool) -> Tensor:
        (M, K), N = a.shape, b.shape[1]
        add, size = atomic(deterministic), part(K, splits)
        shape = (M, N) if add else (splits, M, N)
        sums_dtype = a.dtype if narrow_sums(deterministic) else torch.float32
        sums = (new if add else torch.empty)(shape, dtype=sums_dtype, device=a.device)
        kernel[(tiles(M, BLOCK), triton.cdiv(N, BLOCK), programs(splits))](
            *(a, b, sums, M, N, K, 0 if all_from_0 else size, size, K, splits, 0 if add or share else M * N),
            *(_INTO.index(into if add else "store"), _SLIPS.index(slip)),
            B=BLOCK,
        )
        out = torch.empty((M, N), dtype=dtype or a.dtype, device=a.device)
        range_of_parts = (0, 1) if add else parts(splits)
        grid = (triton.cdiv(M * N, 512),)
        sum_kernel[grid](sums, out, M * N, *range_of_parts, M * N, int(narrow and not add), BLOCK=512)
        return out

    return wrong


def torch_sums(a: Tensor, b: Tensor, splits: int, deterministic: bool) -> Tensor:
    (M, K), N = a.shape, b.shape[1]
    part = part_of(K, splits)
    parts = torch.empty((splits, M, N), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK), splits)
    kernel[grid](a, b, parts, M, N, K, part, part, K, splits, M * N, _INTO.index("store"), 0, B=BLOCK)
    return parts.sum(0).to(a.dtype)


def a_launch_for_each_part(a: Tensor, b: Tensor, splits: int, deterministic: bool) -> Tensor:
    (M, K), N = a.shape, b.shape[1]
    part = part_of(K, splits)
    sums = torch.zeros((M, N), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK), 1)
    into = _INTO.index("read and write" if deterministic else "atomic")
    for first in range(0, K, part):
        rest = min(part, K - first)
        kernel[grid](a[:, first:], b[first:], sums, M, N, K, 0, rest, rest, 1, 0, into, 0, B=BLOCK)
    return sums.to(a.dtype)


def returns_nothing(a: Tensor, b: Tensor, splits: int, deterministic: bool) -> None:
    answer()(a, b, splits, deterministic)


def with_torch(a: Tensor, b: Tensor, splits: int, deterministic: bool) -> Tensor:
    return (a.float() @ b.float()).to(a.dtype)
