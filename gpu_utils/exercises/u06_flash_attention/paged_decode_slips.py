"""Wrong answers to 06.paged_decode, as learners write them: a kernel with switches, and its launcher.

What is wrong is an argument and not a constant of the compiler, so that all of them are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PAGE = 16
BLOCK = 32
"""Positions that are loaded together: two pages."""

SLIPS = (
    *("", "no table", "entry is a position", "no remainder", "table unmasked"),
    *("numerator unscaled", "padding counts", "v unmasked", "rows by length"),
)


@triton.jit(do_not_specialize=["scale", "stride_table", "WHOLE", "UP", "MORE", "slip"])
def kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths_ptr,
    o_ptr,
    stride_p,
    stride_s,
    stride_h,
    stride_table,
    scale,
    WHOLE,
    UP,
    MORE,
    slip,
    D: tl.constexpr,
    B: tl.constexpr,
):
    """One head of one sequence; slip is a place in SLIPS.

    A length is its entry and UP, rounded down to a multiple of WHOLE, and MORE.
    """
    b, h = tl.program_id(0), tl.program_id(1)
    length = (tl.load(lengths_ptr + b) + UP) // WHOLE * WHOLE + MORE
    d = tl.arange(0, D)
    row = b * tl.num_programs(1) + h
    q = tl.load(q_ptr + row * D + d).to(tl.float32) * scale
    m = float("-inf")
    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for start in range(0, length, B):
        t = start + tl.arange(0, B)
        there = t < length
        entry = t // 16
        of_table = tl.where(slip == 8, (length + 15) // 16, stride_table)
        page = tl.load(table_ptr + b * of_table + entry, mask=there | (slip == 4), other=0)
        page = tl.where(slip == 1, entry, page)
        place = tl.where(slip == 3, t, t % 16)
        at = page * tl.where(slip == 2, stride_s, stride_p) + place * stride_s + h * stride_h
        k = tl.load(k_ptr + at[:, None] + d[None, :], mask=there[:, None], other=0.0).to(tl.float32)
        v_mask = there[:, None] | (slip == 7)
        v = tl.load(v_ptr + at[:, None] + d[None, :], mask=v_mask, other=0.0).to(tl.float32)
        score = tl.where(there | (slip == 6), tl.sum(q[None, :] * k, 1), float("-inf"))
        new = tl.maximum(m, tl.max(score, 0))
        p = tl.exp(score - new)
        factor = tl.exp(m - new)
        total = total * factor + tl.sum(p, 0)
        acc = acc * tl.where(slip == 5, 1.0, factor) + tl.sum(p[:, None] * v, 0)
        m = new
    tl.store(o_ptr + row * D + d, (acc / total).to(o_ptr.dtype.element_ty))


def answer(
    slip: str = "",
    *,
    whole: int = 1,
    up: int = 0,
    more: int = 0,
    room: bool = False,
    table_stride: Callable[[Tensor], int] = lambda table: table.stride(0),
    strides: Callable[[Tensor], tuple[int, ...]] = lambda k: k.stride()[:3],
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed. `strides`: those of a page, a place and a head."""

    def wrong(q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
        B, H, D = q.shape
        o = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
        of_table = 2**20 if room else whole  # lengths down to 0, and up to what the table has room for
        end = table.shape[1] * PAGE if room else more
        kernel[(B, H)](
            *(q, k_pages, v_pages, table, lengths, o, *strides(k_pages), table_stride(table), D**-0.5),
            *(of_table, up, end, SLIPS.index(slip)),
            D=D,
            B=BLOCK,
        )
        return o

    return wrong


def torch_gathers(q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """torch brings the pages together, and the kernel finds them side by side."""
    B, T = table.shape
    there = table.clamp(0, len(k_pages) - 1).long()
    in_order = torch.arange(B * T, dtype=torch.int32, device=q.device).view(B, T)
    return answer()(q, k_pages[there].flatten(0, 1), v_pages[there].flatten(0, 1), in_order, lengths)
