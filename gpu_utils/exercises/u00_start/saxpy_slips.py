"""Wrong answers to 00.saxpy, as learners write them: a kernel with switches, and launchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
"""Given to the learner, so that a wrong answer behaves like the misconception that explains it."""


@triton.jit
def kernel(
    a,
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    n_rows,
    n_cols,
    stride_xm,
    stride_xn,
    stride_ym,
    stride_yn,
    BLOCK: tl.constexpr,
    PLACE: tl.constexpr = "right",
    MASK: tl.constexpr = "right",
):
    """PLACE: how row and column are made from the offsets; MASK: what is masked, and by what."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = offsets
    if PLACE == "exchanged":
        row, col = offsets % n_cols, offsets // n_cols
    elif PLACE == "by rows":
        row, col = offsets // n_rows, offsets % n_rows
    elif PLACE == "down the rows":
        row, col = offsets % n_rows, offsets // n_rows
        at = row * n_cols + col
    elif PLACE == "of the lane":
        row, col = offsets // n_cols, tl.arange(0, BLOCK) % n_cols
    else:
        row, col = offsets // n_cols, offsets % n_cols
    mask = offsets < n
    if MASK == "one long":
        mask = offsets <= n
    elif MASK == "columns":
        mask = offsets < n_cols
    elif MASK == "of the column":
        mask = col < n_cols
    x_at, y_at = x_ptr + row * stride_xm + col * stride_xn, y_ptr + row * stride_ym + col * stride_yn
    if MASK == "none":
        tl.store(out_ptr + at, a * tl.load(x_at) + tl.load(y_at))
    elif MASK == "loads":
        tl.store(out_ptr + at, a * tl.load(x_at, mask) + tl.load(y_at, mask))
    else:
        tl.store(out_ptr + at, a * tl.load(x_at, mask) + tl.load(y_at, mask), mask)


@triton.jit
def row_kernel(a, x_ptr, y_ptr, out_ptr, n_cols, stride_xm, stride_xn, stride_ym, stride_yn, BLOCK: tl.constexpr):
    """A program for each block of each row, as in the lesson."""
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn, mask=mask)
    tl.store(out_ptr + row * n_cols + cols, a * x + y, mask=mask)


def launch(
    a: float, x: Tensor, y: Tensor, out: Tensor, x_strides: Any = None, y_strides: Any = None, **switches: Any
) -> Tensor:
    strides = (*(x_strides or x.stride()), *(y_strides or y.stride()))
    kernel[(triton.cdiv(x.numel(), BLOCK),)](a, x, y, out, x.numel(), *x.shape, *strides, BLOCK=BLOCK, **switches)
    return out


def new(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def switched(**switches: str) -> Callable[..., Tensor]:
    """The right launcher with switches of the kernel."""

    def answer(a: float, x: Tensor, y: Tensor) -> Tensor:
        return launch(a, x, y, new(x), **switches)

    return answer


def on_grid(programs: Callable[[int], int]) -> Callable[..., Tensor]:
    """The right kernel with another number of programs, made from that of the elements."""

    def answer(a: float, x: Tensor, y: Tensor) -> Tensor:
        out, n = new(x), x.numel()
        kernel[(programs(n),)](a, x, y, out, n, *x.shape, *x.stride(), *y.stride(), BLOCK=BLOCK)
        return out

    return answer


def into(name: str) -> Callable[..., Tensor]:
    def answer(a: float, **inputs: Tensor) -> Tensor:
        return launch(a, inputs["x"], inputs["y"], inputs[name])

    return answer


def returns_nothing(a: float, x: Tensor, y: Tensor) -> None:
    launch(a, x, y, new(x))


def a_row_to_a_program(a: float, x: Tensor, y: Tensor) -> Tensor:
    out, (rows, cols) = new(x), x.shape
    row_kernel[(rows, triton.cdiv(cols, BLOCK))](a, x, y, out, cols, *x.stride(), *y.stride(), BLOCK=BLOCK)
    return out


def ignores_strides(a: float, x: Tensor, y: Tensor) -> Tensor:
    flat = (x.shape[1], 1)
    return launch(a, x, y, new(x), flat, flat)


def strides_of_x_for_y(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, new(x), y_strides=x.stride())


def ignores_column_strides(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, new(x), (x.stride(0), 1), (y.stride(0), 1))


def column_stride_of_x_only(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, new(x), y_strides=(y.stride(0), 1))


def no_repeated_row(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, new(x), y_strides=(y.stride(0) or y.shape[1], y.stride(1)))


def flattens_with_view(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x.view(-1).view(x.shape), y.view(-1).view(y.shape), new(x))


def copies_first(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x.contiguous(), y.contiguous(), new(x))


def copies_by_hand(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, new(x).copy_(x), new(y).copy_(y), new(x))


def torch_multiplies(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(1.0, a * x, y, new(x))


def result_laid_out_like_x(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, torch.empty_like(x))
