"""Wrong answers to 04.gelu, as learners write them: two kernels with a switch, and functions for autograd.

The slip is a number that the kernels get at run time: all of them share one compilation for each dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024

_SLIPS = (
    *("", "saves", "overflow"),
    *("narrow", "mask one long", "decimal", "no root", "square", "sigmoid of u", "erf", "quick", "no half", "no x"),
    *("flat dy", "rows of dy"),
    *("no three", "no chain", "tanh not squared", "constant gate", "no two", "only the gate", "no dy", "adds dy"),
)
NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}
"""What a launcher gives to the kernels, by its name."""

_SAVES = NUMBERS["saves"]
_OVERFLOW = NUMBERS["overflow"]
_ONE_LONG = NUMBERS["mask one long"]
_DECIMAL = NUMBERS["decimal"]
_NO_ROOT = NUMBERS["no root"]
_SQUARE = NUMBERS["square"]
_SIGMOID_OF_U = NUMBERS["sigmoid of u"]
_ERF = NUMBERS["erf"]
_QUICK = NUMBERS["quick"]
_NO_HALF = NUMBERS["no half"]
_NO_X = NUMBERS["no x"]
_FLAT_DY = NUMBERS["flat dy"]
_ROWS_OF_DY = NUMBERS["rows of dy"]
_NO_THREE = NUMBERS["no three"]
_NO_CHAIN = NUMBERS["no chain"]
_NOT_SQUARED = NUMBERS["tanh not squared"]
_CONSTANT_GATE = NUMBERS["constant gate"]
_NO_TWO = NUMBERS["no two"]
_ONLY_THE_GATE = NUMBERS["only the gate"]
_NO_DY = NUMBERS["no dy"]
_ADDS_DY = NUMBERS["adds dy"]


@triton.jit(do_not_specialize=["slip"])
def forward_kernel(x_ptr, y_ptr, tanh_ptr, n, slip, BLOCK: tl.constexpr, NARROW: tl.constexpr):
    """slip: the one mistake; "saves" also stores the tanh. NARROW: u is worked out in the type of x."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offsets < n) | ((offsets == n) & (slip == _ONE_LONG))
    given = tl.load(x_ptr + offsets, mask=mask)
    x = given.to(tl.float32)
    c = tl.where(slip == _DECIMAL, 0.44715, 0.044715)
    root = tl.where(slip == _NO_ROOT, 0.6366197723675814, 0.7978845608028654)
    u = root * (x + c * tl.where(slip == _SQUARE, x * x, x * x * x))
    if NARROW:
        u = 0.7978845608028654 * (given + 0.044715 * given * given * given).to(given.dtype)
        u = u.to(given.dtype).to(tl.float32)
    t = 2 * tl.sigmoid(tl.where(slip == _SIGMOID_OF_U, 1.0, 2.0) * u) - 1
    if slip == _OVERFLOW:
        e = tl.exp(2 * u)
        t = (e - 1) / (e + 1)
    y = 0.5 * x * (1 + t)
    if slip == _ERF:
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    if slip == _QUICK:
        y = x * tl.sigmoid(1.702 * x)
    y = tl.where(slip == _NO_HALF, x * (1 + t), tl.where(slip == _NO_X, 0.5 * (1 + t), y))
    tl.store(y_ptr + offsets, y, mask=mask)
    tl.store(tanh_ptr + offsets, t, mask=mask & (slip == _SAVES))


@triton.jit(do_not_specialize=["cols", "row_step", "col_step", "slip"])
def backward_kernel(x_ptr, dy_ptr, dx_ptr, tanh_ptr, n, cols, row_step, col_step, slip, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    row_step = tl.where(slip == _FLAT_DY, cols, row_step)
    col_step = tl.where((slip == _FLAT_DY) | (slip == _ROWS_OF_DY), 1, col_step)
    dy = tl.load(dy_ptr + offsets // cols * row_step + offsets % cols * col_step, mask=mask).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    slope = 0.7978845608028654 * (1 + tl.where(slip == _NO_THREE, 1, 3) * 0.044715 * x * x)
    t = 2 * tl.sigmoid(2 * u) - 1
    if slip == _OVERFLOW:
        e = tl.exp(2 * u)
        t = (e - 1) / (e + 1)
    if slip == _SAVES:
        t = tl.load(tanh_ptr + offsets, mask=mask).to(tl.float32)
    slope = tl.where(slip == _NO_CHAIN, 1.0, slope)
    bend = tl.where(slip == _NOT_SQUARED, 1 - t, 1 - t * t)
    gate, of_gate = 0.5 * (1 + t), tl.where(slip == _NO_TWO, 0.25, 0.5) * x * bend * slope
    grad = tl.where(slip == _CONSTANT_GATE, gate, tl.where(slip == _ONLY_THE_GATE, of_gate, gate + of_gate))
    dx = tl.where(slip == _NO_DY, grad, tl.where(slip == _ADDS_DY, dy + grad, dy * grad))
    tl.store(dx_ptr + offsets, dx, mask=mask)


def launch_forward(x: Tensor, y: Tensor, tanh: Tensor | None = None, slip: str = "") -> None:
    n, other = x.numel(), x if tanh is None else tanh
    narrow = slip == "narrow" and x.dtype != torch.float32  # float32 is not narrow
    forward_kernel[(triton.cdiv(n, BLOCK),)](x, y, other, n, NUMBERS[slip].value, BLOCK=BLOCK, NARROW=narrow)


def launch_backward(x: Tensor, dy: Tensor, dx: Tensor, tanh: Tensor | None = None, slip: str = "") -> None:
    n, other = x.numel(), x if tanh is None else tanh
    backward_kernel[(triton.cdiv(n, BLOCK),)](
        x, dy, dx, other, n, x.shape[1], *dy.stride(), NUMBERS[slip].value, BLOCK=BLOCK
    )


def answer(
    forward: str = "",
    backward: str = "",
    dtype: torch.dtype | None = None,
    keeps: str = "x",
    before: Callable[[Tensor], Tensor] = lambda dy: dy,
) -> Callable[[Tensor], Tensor]:
    """An answer with mistakes in its kernels.

    forward, backward  the slip of each kernel
    dtype              of both results; None for that of x
    keeps              what the forward pass keeps: "x"; "tanh", x and a tensor of its own; "y"
    before             what is done to dy ahead of the launch
    """

    class Gelu(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
            tanh = torch.empty(x.shape, device=x.device) if keeps == "tanh" else None
            launch_forward(x, y, tanh, forward)
            ctx.save_for_backward(y if keeps == "y" else x, tanh)
            return y

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            x, tanh = ctx.saved_tensors
            dx = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
            launch_backward(x, before(grads[0]), dx, tanh, backward)
            return dx

    def gelu(x: Tensor) -> Tensor:
        return Gelu.apply(x)

    return gelu


@triton.jit(do_not_specialize=["cols", "row_step", "col_step", "backward"])
def walking_kernel(x_ptr, dy_ptr, out_ptr, n, cols, row_step, col_step, backward, BLOCK: tl.constexpr):
    for first in range(0, n, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        gate = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        out = x * gate
        if backward:
            at = offsets // cols * row_step + offsets % cols * col_step
            slope = 1.5957691216057308 * (1 + 0.134145 * x * x)
            out = tl.load(dy_ptr + at, mask=mask) * (gate + x * gate * (1 - gate) * slope)
        tl.store(out_ptr + offsets, out, mask=mask)


class _OneProgram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        walking_kernel[(1,)](x, x, y, x.numel(), *x.shape[1:], *x.stride(), 0, BLOCK=BLOCK)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (dy,) = ctx.saved_tensors, grads
        dx = torch.empty_like(x)
        walking_kernel[(1,)](x, dy, dx, x.numel(), *x.shape[1:], *dy.stride(), 1, BLOCK=BLOCK)
        return dx


def one_program(x: Tensor) -> Tensor:
    return _OneProgram.apply(x)


class _GradOfTorch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        launch_forward(x, y)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        launch_backward(x, torch.ones_like(x), dx)
        return dx * grads[0]


def torch_multiplies(x: Tensor) -> Tensor:
    return _GradOfTorch.apply(x)


def no_function(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch_forward(x, y)
    return y


def torchs_own(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")
