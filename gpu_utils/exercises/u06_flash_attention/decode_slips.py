"""Wrong answers to 06.decode, as learners write them: two kernels with switches, and their launcher.

What is wrong is an argument and not a constant of the compiler, so that all of them are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32
"""Positions of a cache that are loaded together."""

LOOP = (
    *("", "no peak", "numerator unscaled", "padding counts", "divides", "masks late", "all in part 0"),
    "into the next part",
)
MERGE = ("", "adds", "averages", "multiplied by total", "sums as they are")


@triton.jit(do_not_specialize=["scale", "ROUND", "LENGTH_STRIDE", "USED", "MORE", "slip"])
def part_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lengths_ptr,
    m_ptr,
    l_ptr,
    parts_ptr,
    stride_b,
    stride_s,
    stride_h,
    scale,
    ROUND,
    LENGTH_STRIDE,
    USED,
    MORE,
    slip,
    D: tl.constexpr,
    B: tl.constexpr,
):
    """One part of one head. A length is USED * its entry + MORE; slip is a place in LOOP."""
    b, h, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    known = tl.load(lengths_ptr + b * LENGTH_STRIDE)
    length = known * USED + MORE
    known = tl.where(slip == 5, known, length)
    part = tl.where(slip == 6, length, (length + ROUND) // splits)
    first = split * part
    end = tl.minimum(first + part, length)
    d = tl.arange(0, D)
    row = b * tl.num_programs(1) + h
    q = tl.load(q_ptr + row * D + d).to(tl.float32) * scale
    m = float("-inf")
    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for start in range(first, end, B):
        s = start + tl.arange(0, B)
        there = s < tl.where(slip == 7, length, end)
        counts = there & (s < known)
        at = b * stride_b + h * stride_h + s[:, None] * stride_s + d[None, :]
        k = tl.load(k_ptr + at, mask=there[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=there[:, None], other=0.0).to(tl.float32)
        v = tl.where(counts[:, None], v, 0.0)
        score = tl.where(counts | (slip == 3), tl.sum(q[None, :] * k, 1), float("-inf"))
        new = tl.maximum(m, tl.max(score, 0))
        new = tl.where(slip == 1, 0.0, new)
        base = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp(score - base)
        factor = tl.where(slip == 1, 1.0, tl.exp(m - base))
        total = total * factor + tl.sum(p, 0)
        acc = acc * tl.where(slip == 2, 1.0, factor) + tl.sum(p[:, None] * v, 0)
        m = new
    place = row * splits + split
    tl.store(m_ptr + place, m)
    tl.store(l_ptr + place, total)
    tl.store(parts_ptr + place * D + d, tl.where(slip == 4, acc / total, acc))


@triton.jit(do_not_specialize=["splits", "slip"])
def merge_kernel(m_ptr, l_ptr, parts_ptr, o_ptr, splits, slip, D: tl.constexpr):
    """The result of one head, of its parts; slip is a place in MERGE."""
    row, d = tl.program_id(0), tl.arange(0, D)
    m = float("-inf")
    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for split in range(splits):
        place = row * splits + split
        of_part = tl.load(m_ptr + place)
        part_l = tl.load(l_ptr + place)
        part = tl.load(parts_ptr + place * D + d)
        new = tl.maximum(m, of_part)
        plain = (slip == 1) | (slip == 2)
        old, weight = tl.where(plain, 1.0, tl.exp(m - new)), tl.where(plain, 1.0, tl.exp(of_part - new))
        if slip == 2:
            part /= tl.where(part_l == 0.0, 1.0, part_l)
            part_l = 1.0
        elif slip == 3:
            part *= part_l
        total = total * tl.where(slip == 4, 1.0, old) + part_l * tl.where(slip == 4, 1.0, weight)
        acc = acc * old + part * weight
        m = new
    tl.store(o_ptr + row * D + d, (acc / total).to(o_ptr.dtype.element_ty))


def answer(
    loop: str = "",
    merge: str = "",
    *,
    scale: Callable[[int], float] = lambda width: width**-0.5,
    down: bool = False,
    length_stride: int = 1,
    used: int = 1,
    more: Callable[[int], int] = lambda S: 0,
    strides: Callable[[Tensor], tuple[int, ...]] = lambda k: k.stride()[:3],
    one_part: bool = False,
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed. `strides`: those of a sequence, a position and a head."""

    def wrong(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int) -> Tensor:
        (B, H, D), S = q.shape, k.shape[1]
        given = 1 if one_part else splits
        m, total = (torch.empty((B, H, given), dtype=torch.float32, device=q.device) for _ in range(2))
        vectors = torch.empty((B, H, given, D), dtype=torch.float32, device=q.device)
        o = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
        by_b, by_s, by_h = strides(k)
        part_kernel[(B, H, given)](
            *(q, k, v, lengths, m, total, vectors, by_b, by_s, by_h, scale(D), 0 if down else given - 1),
            *(length_stride, used, more(S), LOOP.index(loop)),
            D=D,
            B=BLOCK,
        )
        merge_kernel[(B * H,)](m, total, vectors, o, given, MERGE.index(merge), D=D)
        return o

    return wrong


def torch_merges(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int) -> Tensor:
    """The parts are the kernel's; torch brings them to one peak and adds them."""
    B, H, D = q.shape
    m, total = (torch.empty((B, H, splits), dtype=torch.float32, device=q.device) for _ in range(2))
    vectors = torch.empty((B, H, splits, D), dtype=torch.float32, device=q.device)
    part_kernel[(B, H, splits)](
        *(q, k, v, lengths, m, total, vectors, *k.stride()[:3], D**-0.5, splits - 1, 1, 1, 0, 0), D=D, B=BLOCK
    )
    weight = (m - m.amax(2, keepdim=True)).exp()
    return ((vectors * weight[..., None]).sum(2) / (total * weight).sum(2)[..., None]).to(q.dtype)
