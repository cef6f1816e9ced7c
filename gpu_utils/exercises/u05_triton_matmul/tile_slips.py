"""Wrong matrix products of part 1, as learners write them: one kernel whose slips are numbers, so it is compiled once.

Sizes, strides, limits of masks and factors are given at run time, and not specialised: a launcher makes most mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 64
"""Rows and columns of a tile of the result, as the statements give them."""

STEP = 32
"""How far a tile goes along K at a time."""

FAR = 2**30
"""No limit at all, for a mask."""

LANES = 256
"""Of a program, on either vendor's GPU."""

SLIPS = ("", "float16", "scaled", "each block", "each product")
"""What is done to a tile on its way. A kernel knows it by its place here."""

FLOAT16 = tl.constexpr(SLIPS.index("float16"))
SCALED = tl.constexpr(SLIPS.index("scaled"))
EACH_BLOCK = tl.constexpr(SLIPS.index("each block"))
EACH_PRODUCT = tl.constexpr(SLIPS.index("each product"))


@triton.jit
def product(
    a_ptr,
    b_ptr,
    rows,
    cols,
    K,
    limit_m,
    limit_n,
    limit_a,
    limit_b,
    am,
    ak,
    bk,
    bn,
    advance,
    keep,
    scale,
    slip,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HOW: tl.constexpr,
):
    """The tile of a @ b at rows and cols, in float32.

    limit_a, limit_b  of the masks along K; advance: 0 keeps the first block; keep: 0.0 forgets what was summed before
    slip              FLOAT16: factors in 16 bits; SCALED: a is multiplied by scale; EACH_BLOCK: the sum in the type of
                      a; EACH_PRODUCT: what a block adds
    HOW               "": right; "default": tl.dot's own precision; "float16 sum": tl.dot adds in float16
    """
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float16 if HOW == "float16 sum" else tl.float32)
    for first in range(0, K, BLOCK_K):
        ks = first * advance + tl.arange(0, BLOCK_K)
        a_there = (rows[:, None] < limit_m) & (ks[None, :] < limit_a)
        b_there = (ks[:, None] < limit_b) & (cols[None, :] < limit_n)
        a = tl.load(a_ptr + rows[:, None] * am + ks[None, :] * ak, mask=a_there, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * bk + cols[None, :] * bn, mask=b_there, other=0.0)
        if slip == FLOAT16:
            a, b = a.to(tl.float16).to(a.dtype), b.to(tl.float16).to(b.dtype)
        if slip == SCALED:
            a = (a * scale).to(a.dtype)
        if HOW == "default":
            acc = tl.dot(a, b, acc * keep)
        elif HOW == "float16 sum":
            acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc, out_dtype=tl.float16)
        elif slip == EACH_PRODUCT:
            acc = acc * keep + tl.dot(a, b, input_precision="ieee").to(a.dtype)
        else:
            acc = tl.dot(a, b, acc * keep, input_precision="ieee")
        if slip == EACH_BLOCK:
            acc = acc.to(a.dtype).to(acc.dtype)
    return acc.to(tl.float32)


_NUMBERS = ("M", "N", "K", "step_m", "step_n", "limit_m", "limit_n", "limit_a", "limit_b", "store_m", "store_n")
_STRIDES = ("am", "ak", "bk", "bn", "om", "on")


@triton.jit(do_not_specialize=["a_ptr", "b_ptr", "out_ptr", *_NUMBERS, *_STRIDES, "advance", "slip"])
def kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    step_m,
    step_n,
    limit_m,
    limit_n,
    limit_a,
    limit_b,
    store_m,
    store_n,
    am,
    ak,
    bk,
    bn,
    om,
    on,
    advance,
    keep,
    slip,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HOW: tl.constexpr,
):
    rows = tl.program_id(0) * step_m + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * step_n + tl.arange(0, BLOCK_N)
    acc = product(
        a_ptr, b_ptr, rows, cols, K, limit_m, limit_n, limit_a, limit_b, am, ak, bk, bn, advance, keep, 1.0, slip,
        BLOCK_M, BLOCK_N, BLOCK_K, HOW,
    )  # fmt: skip
    out = out_ptr + rows[:, None] * om + cols[None, :] * on
    tl.store(out, acc, mask=(rows[:, None] < store_m) & (cols[None, :] < store_n))


@dataclass
class Launch:
    """A launch that would be right for a @ b; a slip changes some of its numbers (see `slipped`)."""

    a: Tensor
    b: Tensor
    out: Tensor
    grid: tuple[int, int] = (0, 0)
    numbers: dict[str, Any] = field(default_factory=dict)
    blocks: tuple[int, int, int] = (TILE, TILE, STEP)
    slip: str = ""
    how: str = ""

    def __post_init__(self) -> None:
        (m, k), n = self.a.shape, self.b.shape[1]
        block_m, block_n, _ = self.blocks
        self.grid = triton.cdiv(m, block_m), triton.cdiv(n, block_n)
        self.numbers = {
            **{"M": m, "N": n, "K": k, "step_m": block_m, "step_n": block_n},
            **{"limit_m": m, "limit_n": n, "limit_a": k, "limit_b": k, "store_m": m, "store_n": n},
            **dict(zip(_STRIDES, (*self.a.stride(), *self.b.stride(), *self.out.stride()), strict=True)),
            **{"advance": 1, "keep": 1.0, "slip": SLIPS.index(self.slip)},
        }

    @property
    def constants(self) -> dict[str, Any]:
        blocks = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), self.blocks, strict=True))
        how = self.how if self.a.dtype == torch.float32 else ""  # of 16 bits tl.dot has one precision
        return blocks | {"HOW": how, "num_warps": warps()}


def warps() -> int:
    """Of LANES: more lanes have fewer instructions each to themselves, and those are soon compiled."""
    try:
        return LANES // triton.runtime.driver.active.get_current_target().warp_size
    except RuntimeError:  # Triton's interpreter has no driver, and no lanes
        return 4


def new(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty((a.shape[0], b.shape[1]), dtype=dtype or a.dtype, device=a.device)
