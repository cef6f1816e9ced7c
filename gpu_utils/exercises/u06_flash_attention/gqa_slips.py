"""06.gqa: wrong answers that somebody would write, as one kernel whose slips are numbers of a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16
"""Rows of a tile."""

FAR = 2**28
"""Further than any position, and small enough for sums of int32."""

_NUMBERS = ("N", "S", "H", "each", "rows", "by", "step", "heads_of_kv", "offset", "div", "mod", "k_b", "k_h", "k_s")


@triton.jit(do_not_specialize=["q_ptr", "k_ptr", "v_ptr", "o_ptr", *_NUMBERS])
def _kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    N,
    S,
    H,
    each,
    rows,
    by,
    step,
    heads_of_kv,
    offset,
    div,
    mod,
    k_b,
    k_h,
    k_s,
    scale,
    D: tl.constexpr,
    M: tl.constexpr,
    B: tl.constexpr,
):
    """Program j of the `each` programs of a sequence has heads j * by, + step, + 2 step and so on of q.

    It takes head j // heads_of_kv of k and v; row r of its tile sees keys up to offset + r // div % mod.
    """
    batch, j = tl.program_id(1) // each, tl.program_id(1) % each
    packed, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    there = packed[:, None] < rows
    at = ((batch * H + j * by + packed // N * step) * N + packed % N)[:, None] * D + d[None, :]
    q = tl.load(q_ptr + at, mask=there, other=0.0)
    first = batch * k_b + j // heads_of_kv * k_h
    last = offset + packed // div % mod
    m, l = tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, S, B):
        n = start + tl.arange(0, B)
        k_at = first + n[:, None] * k_s + d[None, :]
        k = tl.load(k_ptr + k_at, mask=n[:, None] < S, other=0.0)
        v = tl.load(v_ptr + k_at, mask=n[:, None] < S, other=0.0)
        s = tl.where(n[None, :] <= last[:, None], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        new = tl.maximum(m, tl.max(s, axis=1))
        p, factor = tl.exp(s - new[:, None]), tl.exp(m - new)
        l = l * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None])
        m = new
    tl.store(o_ptr + at, acc / l[:, None], mask=there)


Number = Callable[[Tensor, Tensor, bool], int]
"""A number of a launch, made from q, k and causal."""


def answer(
    *,
    tiles: Callable[[int], int] = lambda rows: triton.cdiv(rows, ROWS),
    strides: Callable[[Tensor], tuple[int, ...]] = lambda k: k.stride()[:3],
    with_scale: bool = True,
    **changes: Number,
) -> Callable[..., Any]:
    """The right answer, but for what is given."""

    def gqa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        (batch, heads, n, depth), (_, kv_heads, length, _) = q.shape, k.shape
        group = heads // kv_heads
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        at = {"each": kv_heads, "rows": group * n, "by": group, "step": 1, "heads_of_kv": 1}
        at |= {"offset": length - n if causal else length - 1, "div": 1, "mod": n if causal else 1}
        at |= {name: change(q, k, causal) for name, change in changes.items()}
        at |= dict(zip(("k_b", "k_h", "k_s"), strides(k), strict=True))
        scale = depth**-0.5 if with_scale else 1.0
        grid, options = (tiles(at["rows"]), batch * at["each"]), {"D": depth, "M": ROWS, "B": 64, "num_warps": 1}
        _kernel[grid](q, k, v, o, N=n, S=length, H=heads, **at, scale=scale, **options)
        return o

    return gqa


def repeated(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    return answer()(q, k, v, causal)


def with_torch(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    (batch, _, n, depth), (_, kv_heads, length, _) = q.shape, k.shape
    packed = q.float().reshape(batch, kv_heads, -1, n, depth)
    s = packed @ k.float().mT[:, :, None] * depth**-0.5
    if causal:
        s = s.masked_fill(~torch.ones(n, length, dtype=torch.bool).tril(length - n), float("-inf"))
    return (s.softmax(-1) @ v.float()[:, :, None]).reshape(q.shape).to(q.dtype)
