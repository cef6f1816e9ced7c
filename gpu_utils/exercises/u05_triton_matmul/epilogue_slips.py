"""Wrong answers to 05.epilogue, as learners write them: one kernel, and launchers that give it other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u05_triton_matmul.tile_slips import FAR, STEP, TILE, product, warps

Answer = Callable[[Tensor, Tensor, Tensor], Any]

ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715

IDENTITY: dict[str, Any] = {"root": 0.0, "cubic": 0.0, "half": 1.0}
"""Numbers of no GELU at all: the sigmoid of 0 is one half."""

_SLIPS = ("", "product rounded", "sum rounded", "square", "tanh by exp", "erf")
"""What other numbers of a launch cannot say. The kernel knows a slip by its place here."""

PRODUCT_ROUNDED = tl.constexpr(_SLIPS.index("product rounded"))
SUM_ROUNDED = tl.constexpr(_SLIPS.index("sum rounded"))
SQUARE = tl.constexpr(_SLIPS.index("square"))
TANH_BY_EXP = tl.constexpr(_SLIPS.index("tanh by exp"))
ERF = tl.constexpr(_SLIPS.index("erf"))

_NUMBERS = ("M", "N", "K", "limit_m", "limit_n", "limit_k", "limit_bias", "limit_down", "advance_bias")
_STRIDES = ("xm", "xk", "wn", "wk", "of_bias")


@triton.jit(do_not_specialize=["x_ptr", "w_ptr", "bias_ptr", "out_ptr", *_NUMBERS, *_STRIDES, "slip"])
def kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    M,
    N,
    K,
    limit_m,
    limit_n,
    limit_k,
    limit_bias,
    limit_down,
    advance_bias,
    xm,
    xk,
    wn,
    wk,
    of_bias,
    before,
    after,
    root,
    cubic,
    half,
    slip,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """gelu(x @ w + bias), where no number says otherwise.

    limit_bias, limit_down  columns that get an element of bias, and rows that do: 0 for none
    before, after           how often bias is added, in front of GELU and behind it
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    v = product(
        x_ptr, w_ptr, rows, cols, K, limit_m, limit_n, limit_k, limit_k, xm, xk, wk, wn, 1, 1.0, 1.0, 0,
        BLOCK_M, BLOCK_N, BLOCK_K, "",
    )  # fmt: skip
    narrow = x_ptr.dtype.element_ty
    there = (rows[:, None] < limit_m) & (cols[None, :] < limit_n)
    if slip == PRODUCT_ROUNDED:
        v = v.to(narrow).to(tl.float32)
    at = tl.program_id(1) * advance_bias + tl.arange(0, BLOCK_N)
    across = tl.load(bias_ptr + at * of_bias, mask=at < limit_bias, other=0.0).to(tl.float32)
    down = tl.load(bias_ptr + rows * of_bias, mask=rows < limit_down, other=0.0).to(tl.float32)
    bias = across[None, :] + down[:, None]
    v += before * bias
    if slip == SUM_ROUNDED:
        v = v.to(narrow).to(tl.float32)
    u = root * (v + cubic * v * v * tl.where(slip == SQUARE, 1.0, v))
    if slip == TANH_BY_EXP:
        e = tl.exp(2 * u)
        g = 0.5 * v * (1 + (e - 1) / (e + 1))
    elif slip == ERF:
        g = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    else:
        g = 2 * half * v * tl.sigmoid(2 * u)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], g + after * bias, mask=there)


@triton.jit
def gelu_kernel(v_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(v_ptr + at, mask=at < n)
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    tl.store(out_ptr + at, v * tl.sigmoid(2 * u), mask=at < n)


@dataclass
class Given:
    """The arguments of an answer."""

    x: Tensor
    weight: Tensor
    bias: Tensor


def new(x: Tensor, weight: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty((x.shape[0], weight.shape[0]), dtype=dtype or x.dtype, device=x.device)


def launched(given: Given, out: Tensor, slip: str = "", **changed: Any) -> Tensor:
    """The right launch with other numbers, each given or made from the arguments."""
    (m, k), n = given.x.shape, given.weight.shape[0]
    strides = *given.x.stride(), *given.weight.stride(), *given.bias.stride()
    numbers = {
        **{"M": m, "N": n, "K": k, "limit_m": m, "limit_n": n, "limit_k": k},
        **{"limit_bias": n, "limit_down": 0, "advance_bias": TILE},
        **dict(zip(_STRIDES, strides, strict=True)),
        **{"before": 1.0, "after": 0.0, "root": ROOT, "cubic": CUBIC, "half": 0.5, "slip": _SLIPS.index(slip)},
    }
    numbers |= {name: value(given) if callable(value) else value for name, value in changed.items()}
    kernel[triton.cdiv(m, TILE), triton.cdiv(n, TILE)](
        *(given.x, given.weight, given.bias, out),
        *numbers.values(),
        BLOCK_M=TILE,
        BLOCK_N=TILE,
        BLOCK_K=STEP,
        num_warps=warps(),
    )
    return out


def slipped(slip: str = "", **changed: Any) -> Answer:
    def answer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return launched(Given(x, weight, bias), new(x, weight), slip, **changed)

    return answer


gelu_before_bias = slipped(before=0.0, after=1.0)
no_bias = slipped(before=0.0)
bias_in_each_block = slipped(before=lambda given: float(triton.cdiv(given.x.shape[1], STEP)))
bias_of_the_first_tile = slipped(advance_bias=0)
bias_unmasked = slipped(limit_bias=FAR)
bias_as_if_contiguous = slipped(of_bias=1)
bias_of_the_rows = slipped(limit_bias=0, limit_down=lambda given: len(given.x))
weight_not_transposed = slipped(wn=lambda given: given.weight.stride(1), wk=lambda given: given.weight.stride(0))
no_cube = slipped(cubic=0.0)
no_root = slipped(root=2 / math.pi)
no_half = slipped(half=1.0)
by_a_sigmoid = slipped(root=0.851, cubic=0.0)
silu = slipped(root=0.5, cubic=0.0)
factor_two_lost = slipped(root=ROOT / 2)
square = slipped("square")
tanh_by_exp = slipped("tanh by exp")
erf = slipped("erf")
relu = slipped(root=float(FAR), cubic=0.0)  # of such numbers the sigmoid is 0 or 1
no_gelu = slipped(**IDENTITY)
product_rounded = slipped("product rounded")
sum_rounded = slipped("sum rounded")


def in_float32(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return launched(Given(x, weight, bias), new(x, weight, torch.float32))


def in_two_launches(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    v, out = new(x, weight, torch.float32), new(x, weight)
    launched(Given(x, weight, bias), v, **IDENTITY)
    gelu_kernel[(triton.cdiv(v.numel(), 1024),)](v, out, v.numel(), BLOCK=1024)
    return out


def torch_does_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    v = launched(Given(x, weight, bias), new(x, weight, torch.float32), **IDENTITY)
    return torch.nn.functional.gelu(v, approximate="tanh").to(x.dtype)
