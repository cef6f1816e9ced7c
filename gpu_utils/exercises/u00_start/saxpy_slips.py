"""Wrong answers to 00.saxpy, as learners write them: kernels and launchers."""

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
def strided_kernel(
    a, x_ptr, y_ptr, out_ptr, n_cols, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn, mask=mask)
    tl.store(out_ptr + row * stride_om + cols, a * x + y, mask=mask)


@triton.jit
def flat_kernel(a, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, a * tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)


@triton.jit
def down_the_rows_kernel(
    a, x_ptr, y_ptr, out_ptr, n_rows, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    col = tl.program_id(0)
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = rows < n_rows
    x = tl.load(x_ptr + rows * stride_xm + col * stride_xn, mask=mask)
    y = tl.load(y_ptr + rows * stride_ym + col * stride_yn, mask=mask)
    tl.store(out_ptr + rows * stride_om + col, a * x + y, mask=mask)


@triton.jit
def one_long_kernel(
    a, x_ptr, y_ptr, out_ptr, n_cols, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols <= n_cols
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn, mask=mask)
    tl.store(out_ptr + row * stride_om + cols, a * x + y, mask=mask)


@triton.jit
def unmasked_store_kernel(
    a, x_ptr, y_ptr, out_ptr, n_cols, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn, mask=mask)
    tl.store(out_ptr + row * stride_om + cols, a * x + y)


@triton.jit
def unmasked_kernel(
    a, x_ptr, y_ptr, out_ptr, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn)
    tl.store(out_ptr + row * stride_om + cols, a * x + y)


def launch(a: float, x: Tensor, y: Tensor, out: Tensor, x_strides: Any, y_strides: Any) -> Tensor:
    rows, cols = x.shape
    grid = (rows, triton.cdiv(cols, BLOCK))
    strided_kernel[grid](a, x, y, out, cols, *x_strides, *y_strides, cols, BLOCK=BLOCK)
    return out


def on_grid(grid: Callable[[int, int], tuple[int, ...]], kernel: Any = strided_kernel) -> Callable[..., Tensor]:
    """The right launcher with another grid, made from rows and columns, or with another kernel."""

    def answer(a: float, x: Tensor, y: Tensor) -> Tensor:
        out = new(x)
        kernel[grid(*x.shape)](a, x, y, out, x.shape[1], *x.stride(), *y.stride(), x.shape[1], BLOCK=BLOCK)
        return out

    return answer


def returns_nothing(a: float, x: Tensor, y: Tensor) -> None:
    on_grid(blocks)(a, x, y)


def blocks(rows: int, cols: int) -> tuple[int, int]:
    return rows, triton.cdiv(cols, BLOCK)


def into(name: str) -> Callable[..., Tensor]:
    def answer(a: float, **inputs: Tensor) -> Tensor:
        x, y, out = inputs["x"], inputs["y"], inputs[name]
        strided_kernel[blocks(*x.shape)](a, x, y, out, x.shape[1], *x.stride(), *y.stride(), out.stride(0), BLOCK=BLOCK)
        return out

    return answer


def new(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def ignores_strides(a: float, x: Tensor, y: Tensor) -> Tensor:
    out = new(x)
    flat_kernel[(triton.cdiv(x.numel(), BLOCK),)](a, x, y, out, x.numel(), BLOCK=BLOCK)
    return out


def strides_of_x_for_y(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, new(x), x.stride(), x.stride())


def ignores_column_strides(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, new(x), (x.stride(0), 1), (y.stride(0), 1))


def flattens_with_view(a: float, x: Tensor, y: Tensor) -> Tensor:
    out = new(x)
    flat_kernel[(triton.cdiv(x.numel(), BLOCK),)](a, x.view(-1), y.view(-1), out, x.numel(), BLOCK=BLOCK)
    return out


def copies_first(a: float, x: Tensor, y: Tensor) -> Tensor:
    return ignores_strides(a, x.contiguous(), y.contiguous())


def result_laid_out_like_x(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, torch.empty_like(x), x.stride(), y.stride())


def result_laid_out_like_x_by_its_row_stride(a: float, x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    strided_kernel[blocks(*x.shape)](a, x, y, out, x.shape[1], *x.stride(), *y.stride(), out.stride(0), BLOCK=BLOCK)
    return out


def copies_by_hand(a: float, x: Tensor, y: Tensor) -> Tensor:
    return ignores_strides(a, new(x).copy_(x), new(y).copy_(y))


def column_stride_of_x_only(a: float, x: Tensor, y: Tensor) -> Tensor:
    return launch(a, x, y, new(x), x.stride(), (y.stride(0), 1))


def no_mask(a: float, x: Tensor, y: Tensor) -> Tensor:
    rows, cols = x.shape
    out = new(x)
    grid = (rows, triton.cdiv(cols, BLOCK))
    unmasked_kernel[grid](a, x, y, out, *x.stride(), *y.stride(), cols, BLOCK=BLOCK)
    return out


def lanes_down_the_rows(a: float, x: Tensor, y: Tensor) -> Tensor:
    rows, cols = x.shape
    out = new(x)
    grid = (cols, triton.cdiv(rows, BLOCK))
    down_the_rows_kernel[grid](a, x, y, out, rows, *x.stride(), *y.stride(), cols, BLOCK=BLOCK)
    return out
