"""06.sliding_window: wrong answers that somebody would write, as one kernel whose slips are numbers of a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
"""Queries and keys of a tile."""

FAR = 2**28
"""Further than any window, and small enough for sums of int32."""

_NUMBERS = ("N", "back", "ahead", "reach", "round_by", "lowest", "from_first", "end")


@triton.jit(do_not_specialize=["q_ptr", "k_ptr", "v_ptr", "o_ptr", *_NUMBERS])
def _kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    N,
    back,
    ahead,
    reach,
    round_by,
    lowest,
    from_first,
    end,
    scale,
    fill,
    floor,
    rescale,
    D: tl.constexpr,
    B: tl.constexpr,
):
    """Row i sees keys with ahead <= i - j < back, of the tiles from max(first - reach, lowest), rounded, to the end.

    fill: score of what is masked; floor: the maximum of a row that has seen nothing; rescale 0.0: sums stay as they are
    """
    first, head = tl.program_id(0) * B, tl.program_id(1)
    rows, d = first + tl.arange(0, B), tl.arange(0, D)
    at = (head * N + rows[:, None]) * D + d[None, :]
    q = tl.load(q_ptr + at, mask=rows[:, None] < N, other=0.0)
    m, l = tl.full([B], float("-inf"), tl.float32), tl.zeros([B], tl.float32)
    acc = tl.zeros([B, D], tl.float32)
    # a tile further down, and later up again, so that numbers below 0 are rounded down, too
    begin = ((tl.maximum(first - reach, lowest) + round_by + 64 * B) // B - 64) * B
    for start in range(begin, tl.minimum(first * from_first + end, N), B):
        cols = start + tl.arange(0, B)
        k_at = (head * N + cols[:, None]) * D + d[None, :]
        k = tl.load(k_ptr + k_at, mask=cols[:, None] < N, other=0.0)
        v = tl.load(v_ptr + k_at, mask=cols[:, None] < N, other=0.0)
        apart = rows[:, None] - cols[None, :]
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where((apart < back) & (apart >= ahead) & (cols[None, :] < N), s, fill)
        new = tl.maximum(m, tl.max(s, axis=1))
        safe = tl.where(new == float("-inf"), floor, new)
        p, factor = tl.exp(s - safe[:, None]), tl.exp(m - safe) * rescale + 1 - rescale
        l = l * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None])
        m = new
    tl.store(o_ptr + at, acc / l[:, None], mask=rows[:, None] < N)


Number = Callable[[int, int], float]
"""A number of a launch, made from N and window."""


def answer(*, with_scale: bool = True, **changes: Number) -> Callable[..., Any]:
    """The right answer, but for what is given."""

    def sliding_window(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        batch, heads, n, depth = q.shape
        window = min(window, n)
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        at: dict[str, float] = {"back": window, "ahead": 0, "reach": window - 1, "round_by": 0, "lowest": 0}
        at |= {"from_first": 1, "end": BLOCK, "scale": depth**-0.5 if with_scale else 1.0}
        at |= {"fill": float("-inf"), "floor": 0.0, "rescale": 1.0}
        at |= {name: change(n, window) for name, change in changes.items()}
        grid = (triton.cdiv(n, BLOCK), batch * heads)
        _kernel[grid](q, k, v, o, N=n, **at, D=depth, B=BLOCK, num_warps=2)
        return o

    return sliding_window


def with_torch(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    s = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    seen = torch.ones_like(s, dtype=torch.bool).tril().triu(1 - window)
    return (s.masked_fill(~seen, float("-inf")).softmax(-1) @ v.float()).to(q.dtype)
