"""Wrong answers to 05.accumulate, as learners write them: one kernel, and launchers that give it other numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u05_triton_matmul.tile_slips import SLIPS, STEP, TILE, product, warps

Answer = Callable[..., Any]

_ROUNDED = ("", "product", "scaled product", "c", "product as c", "scaled c", "result")
"""What is rounded to 16 bits behind the loop. The kernel knows it by its place here."""

PRODUCT = tl.constexpr(_ROUNDED.index("product"))
SCALED_PRODUCT = tl.constexpr(_ROUNDED.index("scaled product"))
C = tl.constexpr(_ROUNDED.index("c"))
PRODUCT_AS_C = tl.constexpr(_ROUNDED.index("product as c"))
SCALED_C = tl.constexpr(_ROUNDED.index("scaled c"))
RESULT = tl.constexpr(_ROUNDED.index("result"))

_STRIDES = ("am", "ak", "bk", "bn", "cm", "cn", "om", "on")


@triton.jit(do_not_specialize=["reads", "slip", "rounds"])
def kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    M,
    N,
    K,
    am,
    ak,
    bk,
    bn,
    cm,
    cn,
    om,
    on,
    keep,
    scale,
    times,
    plus,
    reads,
    slip,
    rounds,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HOW: tl.constexpr,
):
    """times * (a @ b) + plus * c; reads: whether c is read; rounds: what is rounded to 16 bits behind the loop."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = product(
        a_ptr, b_ptr, rows, cols, K, M, N, K, K, am, ak, bk, bn, 1, keep, scale, slip,
        BLOCK_M, BLOCK_N, BLOCK_K, HOW,
    )  # fmt: skip
    narrow = a_ptr.dtype.element_ty
    there = (rows[:, None] < M) & (cols[None, :] < N)
    at = c_ptr + rows[:, None] * cm + cols[None, :] * cn
    c = tl.load(at, mask=there & (reads != 0), other=0.0).to(tl.float32)
    if rounds == PRODUCT:
        acc = acc.to(narrow).to(tl.float32)
    if rounds == SCALED_PRODUCT:
        acc = (times * acc).to(narrow).to(tl.float32) / times
    if rounds == C:
        c = c.to(narrow).to(tl.float32)
    product_, of_c = times * acc, plus * c
    if rounds == PRODUCT_AS_C:
        product_ = (times * acc.to(c_ptr.dtype.element_ty)).to(tl.float32)
    if rounds == SCALED_C:
        of_c = of_c.to(c_ptr.dtype.element_ty).to(tl.float32)
    total = product_ + of_c
    if rounds == RESULT:
        total = total.to(narrow).to(tl.float32)
    tl.store(out_ptr + rows[:, None] * om + cols[None, :] * on, total, mask=there)


@triton.jit
def add_kernel(sum_ptr, c_ptr, out_ptr, N, cm, cn, alpha, beta, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < n
    total = alpha * tl.load(sum_ptr + at, mask=there)
    if beta != 0:
        total += beta * tl.load(c_ptr + at // N * cm + at % N * cn, mask=there).to(tl.float32)
    tl.store(out_ptr + at, total, mask=there)


@dataclass
class Given:
    """The arguments of an answer."""

    a: Tensor
    b: Tensor
    c: Tensor
    alpha: float
    beta: float

    @property
    def blocks(self) -> int:
        """Along K."""
        return triton.cdiv(self.a.shape[1], STEP)


def new(c: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(c.shape, dtype=dtype or c.dtype, device=c.device)


def launched(given: Given, out: Tensor, slip: str = "", rounds: str = "", how: str = "", **changed: Any) -> Tensor:
    """The right launch with other numbers, each given or made from the arguments."""
    (m, k), n = given.a.shape, given.b.shape[1]
    strides = *given.a.stride(), *given.b.stride(), *given.c.stride(), *out.stride()
    numbers = {
        **{"M": m, "N": n, "K": k},
        **dict(zip(_STRIDES, strides, strict=True)),
        **{"keep": 1.0, "scale": 1.0, "times": given.alpha, "plus": given.beta, "reads": int(given.beta != 0)},
        **{"slip": SLIPS.index(slip), "rounds": _ROUNDED.index(rounds)},
    }
    numbers |= {name: value(given) if callable(value) else value for name, value in changed.items()}
    kernel[triton.cdiv(m, TILE), triton.cdiv(n, TILE)](
        *(given.a, given.b, given.c, out),
        *numbers.values(),
        BLOCK_M=TILE,
        BLOCK_N=TILE,
        BLOCK_K=STEP,
        HOW=how,
        num_warps=warps(),
    )
    return out


def slipped(slip: str = "", rounds: str = "", how: str = "", **changed: Any) -> Answer:
    def answer(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
        return launched(Given(a, b, c, alpha, beta), new(c), slip, rounds, how, **changed)

    return answer


sum_in_float16 = slipped(how="float16 sum")
sum_rounded_each_block = slipped("each block")
product_rounded = slipped(rounds="product")
scaled_product_rounded = slipped(rounds="scaled product")
c_rounded = slipped(rounds="c")
each_product_rounded = slipped("each product")
product_rounded_as_c = slipped(rounds="product as c")
scaled_c_rounded = slipped(rounds="scaled c")
result_rounded = slipped(rounds="result")
alpha_on_a = slipped("scaled", scale=lambda given: given.alpha, times=1.0)
alpha_in_each_block = slipped(keep=lambda given: given.alpha)
alpha_on_c_too = slipped(plus=lambda given: given.alpha * given.beta)
no_alpha = slipped(times=1.0)
no_beta = slipped(plus=1.0, reads=1)
no_c = slipped(plus=0.0)
exchanged = slipped(times=lambda given: given.beta, plus=lambda given: given.alpha, reads=1)
minus_c = slipped(plus=lambda given: -given.beta)
c_in_each_block = slipped(plus=lambda given: given.beta * given.blocks)
reads_c_for_nothing = slipped(reads=1)
c_as_if_contiguous = slipped(cm=lambda given: given.c.shape[1], cn=1)


def in_type_of_a(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return launched(Given(a, b, c, alpha, beta), new(c, a.dtype))


def into_c(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return launched(Given(a, b, c, alpha, beta), c)


def in_two_launches(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    product_, out = new(c, torch.float32), new(c)
    launched(Given(a, b, c, 1.0, 0.0), product_)
    n = out.numel()
    add_kernel[(triton.cdiv(n, 1024),)](product_, c, out, c.shape[1], *c.stride(), alpha, beta, n, BLOCK=1024)
    return out


def torch_adds(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return launched(Given(a, b, c, alpha, 0.0), new(c)) + beta * c
