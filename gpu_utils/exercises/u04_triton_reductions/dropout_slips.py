"""Wrong answers to 04.dropout, as learners write them: one kernel with switches, and functions for autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024

Answer = Callable[[Tensor, float, int], Tensor]


@triton.jit
def kernel(x_ptr, y_ptr, kept_ptr, n, cols, p, scale, seed, BLOCK: tl.constexpr, SLIP: tl.constexpr):
    """SLIP: the one mistake, "" for none. kept_ptr: what the forward pass keeps, or what torch has drawn."""
    lane = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * BLOCK + lane
    mask = offsets < n
    if SLIP == "mask one long":
        mask = offsets <= n
    x = tl.load(x_ptr + offsets, mask=mask)
    if SLIP == "offsets of the block":
        random = tl.rand(seed, lane)
    elif SLIP == "seed of the program":
        random = tl.rand(seed + tl.program_id(0), lane)
    elif SLIP == "offsets of the row":
        random = tl.rand(seed, offsets % cols)
    elif SLIP == "one for a row":
        random = tl.rand(seed, offsets // cols)
    elif SLIP == "seed in the offsets":
        random = tl.rand(0, seed + offsets)
    elif SLIP == "no seed":
        random = tl.rand(0, offsets)
    elif SLIP == "normal":
        random = tl.randn(seed, offsets)
    elif SLIP == "reads the draw":
        random = tl.load(kept_ptr + offsets, mask=mask)
    else:
        random = tl.rand(seed, offsets)
    keep = random < p if SLIP == "drops the rest" else random >= p
    if SLIP == "reads what was kept":
        keep = tl.load(kept_ptr + offsets, mask=mask) != 0
    if SLIP == "by p":
        y = tl.where(keep, x / p, 0.0)
    elif SLIP == "times keep":
        y = x * keep.to(tl.float32) / (1 - p)
    elif SLIP == "times 1 - p":
        y = tl.where(keep, x * (1 - p), 0.0)
    elif SLIP == "no scale":
        y = tl.where(keep, x, 0.0)
    elif SLIP == "leaves the dropped":
        y = tl.where(keep, x * scale, x)
    else:
        y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + offsets, y, mask=mask)
    if SLIP == "stores the mask":
        tl.store(kept_ptr + offsets, keep, mask=mask)


@triton.jit
def walking_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    for first in range(0, n, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        keep = tl.rand(seed, offsets) >= p
        tl.store(y_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=offsets < n)


def _scale(p: float) -> float:
    return 1 / (1 - p) if p < 1 else 0.0


def launch(
    x: Tensor, y: Tensor, p: float, seed: int, slip: str = "", kept: Tensor | None = None, scale: Any = _scale
) -> Tensor:
    n, other = x.numel(), x if kept is None else kept
    kernel[(triton.cdiv(n, BLOCK),)](x, y, other, n, x.shape[1], p, scale(p), seed, BLOCK=BLOCK, SLIP=slip)
    return y


def answer(
    forward: str = "",
    backward: str | None = None,
    again: Callable[[int], int] = lambda seed: seed,
    dtype: torch.dtype | None = None,
    scale: Callable[[float], float] = _scale,
    keeps: str = "",
) -> Answer:
    """An answer with mistakes.

    forward, backward  the SLIP of the two launches; backward None: that of forward
    again              the seed of the backward pass
    dtype              of both results; None for that of x
    scale              the factor of what is kept
    keeps              what the forward pass keeps for the backward pass: "" nothing, "mask", "result"
    """

    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
            y = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
            kept = torch.empty(x.shape, dtype=torch.int8, device=x.device) if keeps == "mask" else None
            launch(x, y, p, seed, forward, kept, scale)
            ctx.p, ctx.seed = p, seed
            ctx.save_for_backward(y if keeps == "result" else kept)
            return y

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
            dy, (kept,) = grads[0], ctx.saved_tensors
            dx = torch.empty(dy.shape, dtype=dtype or dy.dtype, device=dy.device)
            slip = forward if backward is None else backward
            launch(dy, dx, ctx.p, again(ctx.seed), slip, kept, scale)
            return dx, None, None

    def dropout(x: Tensor, p: float, seed: int) -> Tensor:
        return Dropout.apply(x, p, seed)

    return dropout


class _OneProgram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.drawn = p, seed
        y = torch.empty_like(x)
        walking_kernel[(1,)](x, y, x.numel(), p, _scale(p), seed, BLOCK=BLOCK)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (p, seed), (dy,) = ctx.drawn, grads
        dx = torch.empty_like(dy)
        walking_kernel[(1,)](dy, dx, dy.numel(), p, _scale(p), seed, BLOCK=BLOCK)
        return dx, None, None


def one_program(x: Tensor, p: float, seed: int) -> Tensor:
    return _OneProgram.apply(x, p, seed)


class _GradientAsItIs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        return launch(x, torch.empty_like(x), p, seed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0], None, None


class _DrawnByTorch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        draw = torch.rand(x.shape, device=x.device)
        ctx.save_for_backward(draw)
        ctx.p = p
        return launch(x, torch.empty_like(x), p, seed, "reads the draw", draw)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (draw,) = ctx.saved_tensors
        return launch(grads[0], torch.empty_like(grads[0]), ctx.p, 0, "reads the draw", draw), None, None


class _DrawnByTorchWithTheSeed(_DrawnByTorch):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return _DrawnByTorch.forward(ctx, x, p, seed)


def gradient_as_it_is(x: Tensor, p: float, seed: int) -> Tensor:
    return _GradientAsItIs.apply(x, p, seed)


def drawn_by_torch(x: Tensor, p: float, seed: int) -> Tensor:
    return _DrawnByTorch.apply(x, p, seed)


def drawn_by_torch_with_the_seed(x: Tensor, p: float, seed: int) -> Tensor:
    return _DrawnByTorchWithTheSeed.apply(x, p, seed)


def no_function(x: Tensor, p: float, seed: int) -> Tensor:
    return launch(x, torch.empty_like(x), p, seed)


def torchs_own(x: Tensor, p: float, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.nn.functional.dropout(x, p)
