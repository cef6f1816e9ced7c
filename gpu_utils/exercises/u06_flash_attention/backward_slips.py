"""06.backward: wrong answers that somebody would write, as two kernels whose slips are mostly numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
"""Rows and columns of a tile of scores, as the statement gives them."""

FAR = 2**30
"""No limit at all, for a mask."""

LOG2_E = 1.4426950408889634

Gradients = tuple[Tensor, Tensor, Tensor]

_SHARED = ("N", "H", "b", "h", "n", "d", "limit", "last_key", "side", "diagonal")
_PLACES = ("do_ptr", "q_ptr", "k_ptr", "v_ptr", "lse_ptr", "delta_ptr")


@triton.jit
def _weights(
    q, k, v, do, lse, delta, rows, cols, s_by, lse_by, last_key, side, diagonal, use_delta, SLIP: tl.constexpr
):
    """p and ds of a tile. Kept are keys before last_key, where (row - column) * side is at least diagonal."""
    p = tl.exp2(tl.dot(q, tl.trans(k)) * s_by - lse[:, None] * lse_by)
    keep = ((rows[:, None] - cols[None, :]) * side >= diagonal) & (cols[None, :] < last_key)
    p = tl.where(keep, p, 0.0)
    dp = tl.dot(do, tl.trans(v))
    if SLIP == "delta of the tile":
        delta = tl.sum(p * dp, axis=1)
    return p, p * (dp - delta[:, None] * use_delta)


@triton.jit(do_not_specialize=[*_PLACES, "o_ptr", "dq_ptr", *_SHARED, "from_first", "end"])
def _dq_kernel(
    do_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    lse_ptr,
    delta_ptr,
    o_ptr,
    dq_ptr,
    N,
    H,
    b,
    h,
    n,
    d,
    limit,
    last_key,
    side,
    diagonal,
    s_by,
    lse_by,
    use_delta,
    from_first,
    end,
    with_o,
    with_do,
    scale,
    D: tl.constexpr,
    SLIP: tl.constexpr,
    B: tl.constexpr,
):
    """Keys up to first * from_first + end. delta: of do times with_o * o + with_do * do."""
    head, first = tl.program_id(1), tl.program_id(0) * B
    rows, along = first + tl.arange(0, B), tl.arange(0, D)
    there = rows[:, None] < N
    at = (head * N + rows[:, None]) * D + along[None, :]
    q, o = tl.load(q_ptr + at, mask=there, other=0.0), tl.load(o_ptr + at, mask=there, other=0.0)
    do = tl.load(do_ptr + head // H * b + head % H * h + rows[:, None] * n + along[None, :] * d, mask=there, other=0.0)
    lse = tl.load(lse_ptr + head * N + rows, mask=rows < N, other=0.0)
    wide = do.to(tl.float32)
    delta = tl.sum(wide * (o.to(tl.float32) * with_o + wide * with_do), axis=1)
    tl.store(delta_ptr + head * N + rows, delta, mask=rows < N)
    dq = tl.zeros((B, D), tl.float32)
    for start in range(0, tl.minimum(first * from_first + end, N), B):
        cols = start + tl.arange(0, B)
        k_at = (head * N + cols[:, None]) * D + along[None, :]
        k = tl.load(k_ptr + k_at, mask=cols[:, None] < N, other=0.0)
        v = tl.load(v_ptr + k_at, mask=cols[:, None] < N, other=0.0)
        _, ds = _weights(
            q, k, v, do, lse, delta, rows, cols, s_by, lse_by, last_key, side, diagonal, use_delta, SLIP
        )  # fmt: skip
        dq = tl.dot(ds.to(k.dtype), k, dq)
    tl.store(dq_ptr + at, dq * scale, mask=there)


@triton.jit(do_not_specialize=[*_PLACES, "dk_ptr", "dv_ptr", "more_ptr", *_SHARED, "from_first", "to_first", "end"])
def _dkdv_kernel(
    do_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    more_ptr,
    N,
    H,
    b,
    h,
    n,
    d,
    limit,
    last_key,
    side,
    diagonal,
    s_by,
    lse_by,
    use_delta,
    from_first,
    to_first,
    end,
    scale,
    D: tl.constexpr,
    SLIP: tl.constexpr,
    B: tl.constexpr,
):
    """Queries from first * from_first up to first * to_first + end, of which those before `limit` are loaded."""
    head, first = tl.program_id(1), tl.program_id(0) * B
    cols, along = first + tl.arange(0, B), tl.arange(0, D)
    at = (head * N + cols[:, None]) * D + along[None, :]
    k = tl.load(k_ptr + at, mask=cols[:, None] < N, other=0.0)
    v = tl.load(v_ptr + at, mask=cols[:, None] < N, other=0.0)
    dk, dv = tl.zeros((B, D), tl.float32), tl.zeros((B, D), tl.float32)
    for start in range(first * from_first, tl.minimum(first * to_first + end, N), B):
        rows = start + tl.arange(0, B)
        there = rows[:, None] < limit
        q_at = (head * N + rows[:, None]) * D + along[None, :]
        do_at = head // H * b + head % H * h + rows[:, None] * n + along[None, :] * d
        q, do = tl.load(q_ptr + q_at, mask=there, other=0.0), tl.load(do_ptr + do_at, mask=there, other=0.0)
        lse = tl.load(lse_ptr + head * N + rows, mask=rows < limit, other=0.0)
        delta = tl.load(delta_ptr + head * N + rows, mask=rows < limit, other=0.0)
        p, ds = _weights(
            q, k, v, do, lse, delta, rows, cols, s_by, lse_by, last_key, side, diagonal, use_delta, SLIP
        )  # fmt: skip
        p16, ds16 = p.to(k.dtype), ds.to(k.dtype)
        if SLIP == "not transposed":
            dv, dk = tl.dot(p16, do, dv), tl.dot(ds16, q, dk)
        elif SLIP == "ds not transposed":
            dv, dk = tl.dot(tl.trans(p16), do, dv), tl.dot(ds16, q, dk)
        else:
            dv, dk = tl.dot(tl.trans(p16), do, dv), tl.dot(tl.trans(ds16), q, dk)
        if SLIP == "stores p":
            p_at = (head * N + rows[:, None]) * N + cols[None, :]
            tl.store(more_ptr + p_at, p16, mask=there & (cols[None, :] < N))
        if SLIP == "dq in memory":
            old = tl.load(more_ptr + q_at, mask=there, other=0.0)
            tl.store(more_ptr + q_at, old + tl.dot(ds16, k) * scale, mask=there)
    tl.store(dk_ptr + at, dk * scale, mask=cols[:, None] < N)
    tl.store(dv_ptr + at, dv, mask=cols[:, None] < N)


Number = Callable[[Tensor, bool, float], float]
"""A number of a launch, made from q, causal and scale."""


def answer(
    slip: str = "",
    *,
    order: Callable[..., Any] = lambda dq, dk, dv: (dq, dk, dv),
    strides: Callable[[Tensor], tuple[int, ...]] = lambda do: do.stride(),
    dq: dict[str, Number] | None = None,
    dkdv: dict[str, Number] | None = None,
    **both: Number,
) -> Callable[..., Any]:
    """The right answer, but for what is given. dq, dkdv, both: numbers of one kernel, or of both."""

    def backward(
        do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool, scale: float
    ) -> Any:
        batch, heads, n, depth = q.shape
        made = [torch.empty(q.shape, dtype=q.dtype, device=q.device) for _ in range(3)]
        delta, more = torch.empty_like(lse), torch.empty(0, dtype=q.dtype, device=q.device)
        if slip == "stores p":
            more = torch.empty(batch, heads, n, n, dtype=q.dtype, device=q.device)
        if slip == "dq in memory":
            more = torch.zeros(q.shape, device=q.device)
        shared: dict[str, float] = dict(
            zip(_SHARED, (n, heads, *strides(do), n, n, 1, 0 if causal else -FAR), strict=True)
        )
        shared |= {"s_by": scale * LOG2_E, "lse_by": LOG2_E, "use_delta": 1.0, "scale": scale}
        of_dq = {"from_first": int(causal), "end": BLOCK if causal else n, "with_o": 1.0, "with_do": 0.0}
        of_dkdv = {"from_first": int(causal), "to_first": 0, "end": n}
        for found, changes in ((shared, both), (of_dq, dq or {}), (of_dkdv, dkdv or {})):
            found |= {name: value(q, causal, scale) for name, value in changes.items()}
        grid, options = (triton.cdiv(n, BLOCK), batch * heads), {"D": depth, "SLIP": slip, "B": BLOCK}
        options_of_dq = options | {"SLIP": slip if slip == "delta of the tile" else ""}
        _dq_kernel[grid](do, q, k, v, lse, delta, o, made[0], **{**shared, **of_dq}, **options_of_dq)
        _dkdv_kernel[grid](do, q, k, v, lse, delta, *made[1:], more, **{**shared, **of_dkdv}, **options)
        return order(more.to(q.dtype) if slip == "dq in memory" else made[0], *made[1:])

    return backward


def with_torch(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool, scale: float
) -> Gradients:
    s = q.float() @ k.float().mT * scale
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float("-inf"))
    p = (s - lse[..., None]).exp()
    ds = p * (do.float() @ v.float().mT - (do.float() * o.float()).sum(-1, keepdim=True)) * scale
    return (ds @ k.float()).to(q.dtype), (ds.mT @ q.float()).to(q.dtype), (p.mT @ do.float()).to(q.dtype)
