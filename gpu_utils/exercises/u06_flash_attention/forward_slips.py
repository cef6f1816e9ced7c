"""Wrong answers to 06.forward, as learners write them: one kernel whose slips are numbers, so it is compiled once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

FAR = 2**30
"""No limit at all, for a mask or a loop."""

Result = tuple[Tensor, Tensor]

_STRIDES = tuple(f"{name}{dim}" for name in "qkv" for dim in "bhn")


@triton.jit(
    do_not_specialize=[
        *("H", "N", "ahead", "reach", "keys", "rows_loaded", "rows_stored", "after_max", "own_peak"),
        *("keep_acc", "keep_l", "each_round", "divide", "rounded_p"),
    ]
)
def kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    qb,
    qh,
    qn,
    kb,
    kh,
    kn,
    vb,
    vh,
    vn,
    H,
    N,
    ahead,
    reach,
    keys,
    rows_loaded,
    rows_stored,
    after_max,
    own_peak,
    keep_acc,
    keep_l,
    each_round,
    divide,
    rounded_p,
    q_scale,
    base,
    of_m,
    ln_2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Right with the numbers of `Launch`; each of them is a slip when it is another one."""
    first, head = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    b, h = head // H, head % H
    rows, d = first + tl.arange(0, BLOCK_M)[:, None], tl.arange(0, D)
    q = tl.load(q_ptr + b * qb + h * qh + rows * qn + d[None, :], mask=rows < rows_loaded, other=0.0)
    q = (q * q_scale).to(q_ptr.dtype.element_ty)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for start in range(0, tl.minimum(first + reach, N), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + b * kb + h * kh + n[None, :] * kn + d[:, None], mask=n[None, :] < rows_loaded, other=0.0)
        v = tl.load(v_ptr + b * vb + h * vh + n[:, None] * vn + d[None, :], mask=n[:, None] < rows_loaded, other=0.0)
        s = tl.dot(q, k) * base
        seen = (n[None, :] - rows <= ahead) & (n[None, :] < keys)
        top = tl.max(tl.where(seen | (after_max != 0), s, float("-inf")), 1)
        new = tl.where(own_peak != 0, top, tl.maximum(m, top))
        p = tl.exp2(tl.where(seen, s, float("-inf")) - new[:, None])
        narrow = p.to(v.dtype)
        factor = tl.exp2(m - new)
        l = l * tl.where(keep_l != 0, 1.0, factor) + tl.sum(tl.where(rounded_p != 0, narrow.to(tl.float32), p), 1)
        acc = tl.dot(narrow, v, acc * tl.where(keep_acc != 0, 1.0, factor)[:, None])
        acc = acc / tl.where(each_round != 0, l, 1.0)[:, None]
        m = new
    o = acc / tl.where(divide != 0, l, 1.0)[:, None]
    rows = first + tl.arange(0, BLOCK_M)
    tl.store(o_ptr + (head * N + rows[:, None]) * D + d[None, :], o, mask=rows[:, None] < rows_stored)
    tl.store(lse_ptr + head * N + rows, (m * of_m + tl.log2(l)) * ln_2, mask=rows < rows_stored)


@dataclass
class Launch:
    """A launch that would be right; a slip changes some of its numbers (see `answer`)."""

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool
    scale: float
    blocks: tuple[int, int, int] = (64, 64, 2)
    numbers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        H, N = self.q.shape[1:3]
        strides = [stride for x in (self.q, self.k, self.v) for stride in x.stride()[:3]]
        self.numbers = {
            **dict(zip(_STRIDES, strides, strict=True)),
            **{"H": H, "N": N, "ahead": 0 if self.causal else FAR},
            **{"reach": self.blocks[0] if self.causal else FAR, "keys": N, "rows_loaded": N, "rows_stored": N},
            **{"after_max": 0, "own_peak": 0, "keep_acc": 0, "keep_l": 0, "each_round": 0, "divide": 1},
            **{"rounded_p": 0, "q_scale": 1.0, "base": self.scale / math.log(2), "of_m": 1.0, "ln_2": math.log(2)},
        }

    def run(self) -> Result:
        B, H, N, D = self.q.shape
        o = torch.empty((B, H, N, D), dtype=self.q.dtype, device=self.q.device)
        lse = torch.empty((B, H, N), dtype=torch.float32, device=self.q.device)
        block_m, block_n, warps = self.blocks
        kernel[triton.cdiv(N, block_m), B * H](
            *(self.q, self.k, self.v, o, lse, *self.numbers.values()),
            **{"D": D, "BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps},
        )
        return o, lse


def answer(
    blocks: tuple[int, int, int] = (64, 64, 2),
    change: Callable[[Launch], dict[str, Any]] | None = None,
    **changed: Any,
) -> Callable[..., Result]:
    """The right launch with other numbers: given, or made from the launch."""

    def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Result:
        launch = Launch(q, k, v, causal, scale, blocks)
        launch.numbers |= changed | (change(launch) if change else {})
        return launch.run()

    return forward


def where_causal(**changed: Any) -> Callable[[Launch], dict[str, Any]]:
    return lambda launch: changed if launch.causal else {}


def other_scale(scale: Callable[[Launch], float]) -> Callable[..., Result]:
    return answer(change=lambda launch: {"base": scale(launch) / math.log(2)})


def scaled_in_half(launch: Launch) -> dict[str, Any]:
    return {"q_scale": launch.scale / math.log(2), "base": 1.0}


def contiguous_strides(launch: Launch) -> dict[str, Any]:
    _, H, N, D = launch.q.shape
    return dict(zip(_STRIDES, (H * N * D, N * D, D) * 3, strict=True))


def of_torch(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Result:
    s = q.float() @ k.float().mT * scale
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -math.inf)
    return (torch.softmax(s, -1) @ v.float()).to(q.dtype), torch.logsumexp(s, -1)
