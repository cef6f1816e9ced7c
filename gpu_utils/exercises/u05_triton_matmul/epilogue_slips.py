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

from gpu_utils.exercises.u05_triton_matmul.tile_slips import FAR, STEP, TILE, product

Answer = Callable[[Tensor, Tensor, Tensor], Any]

ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715

_NUMBERS = ("M", "N", "K", "limit_m", "limit_n", "limit_k", "limit_bias", "advance_bias")
_STRIDES = ("xm", "xk", "wn", "wk", "of_bias")


@triton.jit(do_not_specialize=["x_ptr", "w_ptr", "bias_ptr", "out_ptr", *_NUMBERS, *_STRIDES])
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SLIP: tl.constexpr,
):
    """before, after: how often bias is added, in front of GELU and behind it; SLIP: what numbers cannot say."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    v = product(
        x_ptr, w_ptr, rows, cols, K, limit_m, limit_n, limit_k, limit_k, xm, xk, wk, wn, 1, 1.0, 1.0,
        BLOCK_M, BLOCK_N, BLOCK_K, "",
    )  # fmt: skip
    narrow = x_ptr.dtype.element_ty
    there = (rows[:, None] < limit_m) & (cols[None, :] < limit_n)
    if SLIP == "product rounded":
        v = v.to(narrow).to(tl.float32)
    if SLIP == "bias of the rows":
        bias = tl.load(bias_ptr + rows * of_bias, mask=rows < limit_m, other=0.0).to(tl.float32)[:, None]
    else:
        at = tl.program_id(1) * advance_bias + tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + at * of_bias, mask=at < limit_bias, other=0.0).to(tl.float32)[None, :]
    v += before * bias
    if SLIP == "sum rounded":
        v = v.to(narrow).to(tl.float32)
    u = root * (v + cubic * v * v * v)
    if SLIP == "square":
        u = root * (v + cubic * v * v)
    if SLIP == "tanh by exp":
        e = tl.exp(2 * u)
        g = 0.5 * v * (1 + (e - 1) / (e + 1))
    elif SLIP == "erf":
        g = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    elif SLIP == "relu":
        g = tl.maximum(v, 0.0)
    elif SLIP == "nothing":
        g = v
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
        **{"M": m, "N": n, "K": k, "limit_m": m, "limit_n": n, "limit_k": k, "limit_bias": n, "advance_bias": TILE},
        **dict(zip(_STRIDES, strides, strict=True)),
        **{"before": 1.0, "after": 0.0, "root": ROOT, "cubic": CUBIC, "half": 0.5},
    }
    numbers |= {name: value(given) if callable(value) else value for name, value in changed.items()}
    kernel[triton.cdiv(m, TILE), triton.cdiv(n, TILE)](
        *(given.x, given.weight, given.bias, out),
        *numbers.values(),
        BLOCK_M=TILE,
        BLOCK_N=TILE,
        BLOCK_K=STEP,
        SLIP=slip,
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
bias_of_the_rows = slipped("bias of the rows")
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
relu = slipped("relu")
no_gelu = slipped("nothing")
product_rounded = slipped("product rounded")
sum_rounded = slipped("sum rounded")


def in_float32(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return launched(Given(x, weight, bias), new(x, weight, torch.float32))


def in_two_launches(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    v, out = new(x, weight, torch.float32), new(x, weight)
    launched(Given(x, weight, bias), v, "nothing")
    gelu_kernel[(triton.cdiv(v.numel(), 1024),)](v, out, v.numel(), BLOCK=1024)
    return out


def torch_does_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    v = launched(Given(x, weight, bias), new(x, weight, torch.float32), "nothing")
    return torch.nn.functional.gelu(v, approximate="tanh").to(x.dtype)
