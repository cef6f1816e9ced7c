"""Wrong answers to 04.gelu, as learners write them: two kernels with a switch, and functions for autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def forward_kernel(x_ptr, y_ptr, tanh_ptr, n, BLOCK: tl.constexpr, SLIP: tl.constexpr):
    """SLIP: the one mistake, "" for none; "saves" also stores the tanh."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets <= n if SLIP == "mask one long" else offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if SLIP == "narrow":
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x).to(x.dtype)
        u = u.to(x.dtype).to(tl.float32)
    else:
        x = x.to(tl.float32)
        c = 0.44715 if SLIP == "decimal" else 0.044715
        root = 0.6366197723675814 if SLIP == "no root" else 0.7978845608028654
        cube = x * x if SLIP == "square" else x * x * x
        u = root * (x + c * cube)
    if SLIP == "overflow":
        e = tl.exp(2 * u)
        t = (e - 1) / (e + 1)
    elif SLIP == "sigmoid of u":
        t = 2 * tl.sigmoid(u) - 1
    else:
        t = 2 * tl.sigmoid(2 * u) - 1
    y = 0.5 * x * (1 + t)
    if SLIP == "erf":
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif SLIP == "quick":
        y = x * tl.sigmoid(1.702 * x)
    elif SLIP == "no half":
        y = x * (1 + t)
    elif SLIP == "no x":
        y = 0.5 * (1 + t)
    tl.store(y_ptr + offsets, y, mask=mask)
    if SLIP == "saves":
        tl.store(tanh_ptr + offsets, t, mask=mask)


@triton.jit
def backward_kernel(
    x_ptr, dy_ptr, dx_ptr, tanh_ptr, n, cols, row_step, col_step, BLOCK: tl.constexpr, SLIP: tl.constexpr
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    at = offsets // cols * row_step + offsets % cols * col_step
    if SLIP == "flat dy":
        at = offsets
    elif SLIP == "rows of dy":
        at = offsets // cols * row_step + offsets % cols
    dy = tl.load(dy_ptr + at, mask=mask).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    slope = 0.7978845608028654 * (1 + (1 if SLIP == "no three" else 3) * 0.044715 * x * x)
    if SLIP == "overflow":
        e = tl.exp(2 * u)
        t = (e - 1) / (e + 1)
    elif SLIP == "saves":
        t = tl.load(tanh_ptr + offsets, mask=mask)
    else:
        t = 2 * tl.sigmoid(2 * u) - 1
    if SLIP == "no chain":
        slope = 1.0
    bend = 1 - t if SLIP == "tanh not squared" else 1 - t * t
    grad = 0.5 * (1 + t) + 0.5 * x * bend * slope
    if SLIP == "constant gate":
        grad = 0.5 * (1 + t)
    elif SLIP == "no two":
        grad = 0.5 * (1 + t) + 0.25 * x * bend * slope
    elif SLIP == "only the gate":
        grad = 0.5 * x * bend * slope
    dx = grad if SLIP == "no dy" else dy + grad if SLIP == "adds dy" else dy * grad
    tl.store(dx_ptr + offsets, dx, mask=mask)


def launch_forward(x: Tensor, y: Tensor, tanh: Tensor | None, slip: str) -> None:
    n = x.numel()
    forward_kernel[(triton.cdiv(n, BLOCK),)](x, y, x if tanh is None else tanh, n, BLOCK=BLOCK, SLIP=slip)


def launch_backward(x: Tensor, dy: Tensor, dx: Tensor, tanh: Tensor | None, slip: str) -> None:
    n, other = x.numel(), x if tanh is None else tanh
    backward_kernel[(triton.cdiv(n, BLOCK),)](
        x, dy, dx, other, n, x.shape[1], dy.stride(0), dy.stride(1), BLOCK=BLOCK, SLIP=slip
    )


def answer(
    forward: str = "",
    backward: str = "",
    dtype: torch.dtype | None = None,
    keeps: str = "x",
    before: Callable[[Tensor], Tensor] = lambda dy: dy,
) -> Callable[[Tensor], Tensor]:
    """An answer with mistakes in its kernels.

    forward, backward  the SLIP of each kernel
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


@triton.jit
def walking_kernel(x_ptr, dy_ptr, out_ptr, n, cols, row_step, col_step, BLOCK: tl.constexpr, BACKWARD: tl.constexpr):
    for first in range(0, n, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        gate = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        out = x * gate
        if BACKWARD:
            at = offsets // cols * row_step + offsets % cols * col_step
            slope = 1.5957691216057308 * (1 + 0.134145 * x * x)
            out = tl.load(dy_ptr + at, mask=mask) * (gate + x * gate * (1 - gate) * slope)
        tl.store(out_ptr + offsets, out, mask=mask)


class _OneProgram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        walking_kernel[(1,)](x, x, y, x.numel(), *x.shape[1:], *x.stride(), BLOCK=BLOCK, BACKWARD=False)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (dy,) = ctx.saved_tensors, grads
        dx = torch.empty_like(x)
        walking_kernel[(1,)](x, dy, dx, x.numel(), *x.shape[1:], *dy.stride(), BLOCK=BLOCK, BACKWARD=True)
        return dx


def one_program(x: Tensor) -> Tensor:
    return _OneProgram.apply(x)


class _GradOfTorch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        launch_forward(x, y, None, "")
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        launch_backward(x, torch.ones_like(x), dx, None, "")
        return dx * grads[0]


def torch_multiplies(x: Tensor) -> Tensor:
    return _GradOfTorch.apply(x)


def no_function(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch_forward(x, y, None, "")
    return y


def torchs_own(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")
