"""Wrong answers to 04.dropout, as learners write them: one kernel with switches, and functions for autograd.

The slip is a number that the kernel gets at run time: nearly all of them share one compilation for each dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024

Answer = Callable[[Tensor, float, int], Tensor]

_SLIPS = (
    *("", "mask one long", "normal", "drops the rest", "reads the draw", "reads what was kept", "stores the mask"),
    *("offsets of the block", "offsets of the row", "one for a row", "seed of the program", "seed in the offsets"),
    *("no seed", "by p", "times keep", "times 1 - p", "no scale", "leaves the dropped"),
)
NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}
"""What a launcher gives to the kernel, by its name."""

_ONE_LONG = NUMBERS["mask one long"]
_DROPS_THE_REST = NUMBERS["drops the rest"]
_READS_THE_DRAW = NUMBERS["reads the draw"]
_READS_WHAT_WAS_KEPT = NUMBERS["reads what was kept"]
_STORES_THE_MASK = NUMBERS["stores the mask"]
_OF_THE_BLOCK = NUMBERS["offsets of the block"]
_OF_THE_ROW = NUMBERS["offsets of the row"]
_ONE_FOR_A_ROW = NUMBERS["one for a row"]
_SEED_OF_PROGRAM = NUMBERS["seed of the program"]
_SEED_IN_OFFSETS = NUMBERS["seed in the offsets"]
_NO_SEED = NUMBERS["no seed"]
_BY_P = NUMBERS["by p"]
_TIMES_KEEP = NUMBERS["times keep"]
_TIMES_1_P = NUMBERS["times 1 - p"]
_NO_SCALE = NUMBERS["no scale"]
_LEAVES_THE_DROPPED = NUMBERS["leaves the dropped"]


@triton.jit(do_not_specialize=["cols", "seed", "slip"])
def kernel(x_ptr, y_ptr, kept_ptr, n, cols, p, scale, seed, slip, BLOCK: tl.constexpr, NORMAL: tl.constexpr):
    """slip: the one mistake; NORMAL: of normal numbers. kept_ptr: what the forward pass keeps, or torch has drawn."""
    lane = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * BLOCK + lane
    mask = (offsets < n) | ((offsets == n) & (slip == _ONE_LONG))
    x = tl.load(x_ptr + offsets, mask=mask)
    counter = offsets
    if (slip == _OF_THE_BLOCK) | (slip == _SEED_OF_PROGRAM):
        counter = lane
    if slip == _OF_THE_ROW:
        counter = offsets % cols
    if slip == _ONE_FOR_A_ROW:
        counter = offsets // cols
    if slip == _SEED_IN_OFFSETS:
        counter = offsets + seed
    key = tl.where((slip == _NO_SEED) | (slip == _SEED_IN_OFFSETS), 0, seed)
    key += tl.where(slip == _SEED_OF_PROGRAM, tl.program_id(0), 0)
    random = tl.randn(key, counter) if NORMAL else tl.rand(key, counter)
    if slip == _READS_THE_DRAW:
        random = tl.load(kept_ptr + offsets, mask=mask).to(tl.float32)
    keep = (random >= p) ^ (slip == _DROPS_THE_REST)
    if slip == _READS_WHAT_WAS_KEPT:
        keep = tl.load(kept_ptr + offsets, mask=mask) != 0
    factor = tl.where(slip == _NO_SCALE, 1.0, tl.where(slip == _TIMES_1_P, 1 - p, scale))
    y = tl.where(keep, x * factor, tl.where(slip == _LEAVES_THE_DROPPED, x, 0.0))
    if slip == _BY_P:
        y = tl.where(keep, x / p, 0.0)
    if slip == _TIMES_KEEP:
        y = x * keep.to(tl.float32) / (1 - p)
    tl.store(y_ptr + offsets, y, mask=mask)
    tl.store(kept_ptr + offsets, keep, mask=mask & (slip == _STORES_THE_MASK))


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
    numbers = (n, x.shape[1], p, scale(p), seed, NUMBERS[slip].value)
    kernel[(triton.cdiv(n, BLOCK),)](x, y, other, *numbers, BLOCK=BLOCK, NORMAL=slip == "normal")
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

    forward, backward  the slip of the two launches; backward None: that of forward
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
