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

_SLIPS = ("", "delta of the tile", "not transposed", "ds not transposed", "stores p", "dq in memory")
"""What other numbers of a launch cannot say: a kernel knows a slip by its place here, where it has SLIPS at all."""

DELTA_OF_THE_TILE = tl.constexpr(_SLIPS.index("delta of the tile"))
NOT_TRANSPOSED = tl.constexpr(_SLIPS.index("not transposed"))
DS_NOT_TRANSPOSED = tl.constexpr(_SLIPS.index("ds not transposed"))
STORES_P = tl.constexpr(_SLIPS.index("stores p"))
DQ_IN_MEMORY = tl.constexpr(_SLIPS.index("dq in memory"))

_STRIDES = ("b", "h", "n", "d")
_NUMBERS = ("N", "H", "limit", "last_key", "side", "diagonal", "slip")


@triton.jit
def _weights(q, k, v, do, lse, delta, rows, cols, s_by, lse_by, last_key, side, diagonal, use_delta, slip):
    """p and ds of a tile. Kept are keys before last_key, where (row - column) * side is at least diagonal."""
    p = tl.exp2(tl.dot(q, tl.trans(k)) * s_by - lse[:, None] * lse_by)
    keep = ((rows[:, None] - cols[None, :]) * side >= diagonal) & (cols[None, :] < last_key)
    p = tl.where(keep, p, 0.0)
    dp = tl.dot(do, tl.trans(v))
    delta = tl.where(slip == DELTA_OF_THE_TILE, tl.sum(p * dp, axis=1), delta)
    return p, p * (dp - delta[:, None] * use_delta)


@triton.jit(do_not_specialize=[*_NUMBERS, "from_first", "end"])
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
    slip,
    s_by,
    lse_by,
    use_delta,
    from_first,
    end,
    with_o,
    with_do,
    scale,
    D: tl.constexpr,
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
            q, k, v, do, lse, delta, rows, cols, s_by, lse_by, last_key, side, diagonal, use_delta, slip
        )  # fmt: skip
        dq = tl.dot(ds.to(k.dtype), k, dq)
    tl.store(dq_ptr + at, dq * scale, mask=there)


@triton.jit(do_not_specialize=[*_NUMBERS, "from_first", "to_first", "end"])
def _dkdv_kernel(
    do_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    p_ptr,
    sum_ptr,
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
    slip,
    s_by,
    lse_by,
    use_delta,
    from_first,
    to_first,
    end,
    scale,
    D: tl.constexpr,
    B: tl.constexpr,
    SLIPS: tl.constexpr,
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
            q, k, v, do, lse, delta, rows, cols, s_by, lse_by, last_key, side, diagonal, use_delta, slip
        )  # fmt: skip
        p16, ds16 = p.to(k.dtype), ds.to(k.dtype)
        to_dv, to_dk = tl.trans(p16), tl.trans(ds16)
        if SLIPS:
            to_dv = tl.where(slip == NOT_TRANSPOSED, p16, to_dv)
            to_dk = tl.where((slip == NOT_TRANSPOSED) | (slip == DS_NOT_TRANSPOSED), ds16, to_dk)
            if slip == STORES_P:
                p_at = (head * N + rows[:, None]) * N + cols[None, :]
                tl.store(p_ptr + p_at, p16, mask=there & (cols[None, :] < N))
            if slip == DQ_IN_MEMORY:
                old = tl.load(sum_ptr + q_at, mask=there, other=0.0)
                tl.store(sum_ptr + q_at, old + tl.dot(ds16, k) * scale, mask=there)
        dv, dk = tl.dot(to_dv, do, dv), tl.dot(to_dk, q, dk)
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
        delta = torch.empty_like(lse)
        weights = torch.empty((batch, heads, n, n) if slip == "stores p" else 0, dtype=q.dtype, device=q.device)
        sums = torch.zeros(q.shape if slip == "dq in memory" else 0, device=q.device)
        shared: dict[str, float] = dict(zip(_STRIDES, strides(do), strict=True))
        numbers = (n, heads, n, n, 1, 0 if causal else -FAR, _SLIPS.index(slip))
        shared |= dict(zip(_NUMBERS, numbers, strict=True))
        shared |= {"s_by": scale * LOG2_E, "lse_by": LOG2_E, "use_delta": 1.0, "scale": scale}
        of_dq: dict[str, float] = {"from_first": int(causal), "end": BLOCK if causal else n}
        of_dq |= {"with_o": 1.0, "with_do": 0.0}
        of_dkdv: dict[str, float] = {"from_first": int(causal), "to_first": 0, "end": n}
        for found, changes in ((shared, both), (of_dq, dq or {}), (of_dkdv, dkdv or {})):
            found |= {name: value(q, causal, scale) for name, value in changes.items()}
        of_dkdv["SLIPS"] = slip not in ("", "delta of the tile")
        grid, options = (triton.cdiv(n, BLOCK), batch * heads), {"D": depth, "B": BLOCK}
        _dq_kernel[grid](do, q, k, v, lse, delta, o, made[0], **{**shared, **of_dq}, **options)
        _dkdv_kernel[grid](do, q, k, v, lse, delta, *made[1:], weights, sums, **{**shared, **of_dkdv}, **options)
        return order(sums.to(q.dtype) if slip == "dq in memory" else made[0], *made[1:])

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
