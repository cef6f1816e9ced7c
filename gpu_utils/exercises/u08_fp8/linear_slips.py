"""Wrong answers to 08.linear, as learners write them: three products with their operands rounded one way or another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.u08_fp8.shared import TILE

WHOLE = 2**30
"""A tile that holds everything."""

Rounding = Callable[[Tensor], Tensor]


def rounded(
    rows: int,
    cols: int,
    dtype: torch.dtype = torch.float8_e4m3fn,
    scaled: bool = True,
    guarded: bool = True,
    least: float = 0.0,
) -> Rounding:
    """What is left of a matrix in FP8, a scale for each rows x cols.

    scaled: whether codes come back as numbers; guarded: whether a tile of zeros has a scale; least: the smallest amax.
    """

    def rounding(x: Tensor) -> Tensor:
        high, wide = min(rows, len(x)), min(cols, x.shape[1])
        padded = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % wide, 0, -len(x) % high))
        parts = padded.view(padded.shape[0] // high, high, padded.shape[1] // wide, wide)
        amax = parts.abs().amax((1, 3), keepdim=True).clamp(min=least)
        scale = amax / torch.finfo(dtype).max
        if guarded:
            scale = torch.where(amax > 0, scale, 1.0)
        codes = (parts / scale).to(dtype).float()
        return (codes * scale if scaled else codes).view(padded.shape)[: len(x), : x.shape[1]]

    return rounding


TILES, BLOCKS, ALL = rounded(1, TILE), rounded(TILE, TILE), rounded(WHOLE, WHOLE)
ALONG_TOKENS = rounded(TILE, 1)


def exact(x: Tensor) -> Tensor:
    return x


def stored(x: Tensor) -> Tensor:
    """What was kept of x for the forward pass, quantised again along the tokens."""
    return ALONG_TOKENS(TILES(x))


def answer(
    *,
    x: Rounding = TILES,
    w: Rounding = BLOCKS,
    dy: Rounding = TILES,
    w_again: Rounding = BLOCKS,
    dy_again: Rounding = ALONG_TOKENS,
    x_again: Rounding = stored,
    dtype: torch.dtype = torch.float32,
    transposed: bool = False,
) -> Callable[..., Any]:
    """The right answer, with some operands rounded otherwise: y of x and w, dx of dy and w_again, dw of the others."""

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x_given: Tensor, w_given: Tensor) -> Tensor:
            ctx.save_for_backward(x_given, w_given)
            return (x(x_given) @ w(w_given).T).to(dtype)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            x_saved, w_saved = ctx.saved_tensors
            given = grads[0].float()
            dw = dy_again(given).T @ x_again(x_saved)
            return dy(given) @ w_again(w_saved), dw.flatten().view(dw.T.shape).T if transposed else dw

    def wrong(x: Tensor, w: Tensor) -> Tensor:
        return Linear.apply(x, w)

    return wrong


def through_the_casts(x: Tensor, w: Tensor) -> Tensor:
    """Autograd goes through the roundings of the forward pass by itself."""
    return TILES(x) @ BLOCKS(w).T


def straight_through(x: Tensor, w: Tensor) -> Tensor:
    """The roundings are hidden from autograd, which multiplies by the rounded operands, and leaves dy as it is."""
    x_rounded, w_rounded = x + (TILES(x) - x).detach(), w + (BLOCKS(w) - w).detach()
    return x_rounded @ w_rounded.T


def no_gradient_of_w(x: Tensor, w: Tensor) -> Tensor:
    return answer()(x, w.detach())
