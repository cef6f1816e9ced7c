"""Wrong answers to 04.softmax, as learners write them: kernels with a slip, and launchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def kernel(x_ptr, out_ptr, columns, stride_row, stride_column, BLOCK: tl.constexpr, SLIP: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    if SLIP == "mask one long":
        mask = cols <= columns
    at = x_ptr + row * stride_row + cols * stride_column
    if SLIP == "no program id":
        at = x_ptr + cols * stride_column
    if SLIP == "no mask":
        x = tl.load(at)
    elif SLIP == "padding is 0" or SLIP == "max with padding":
        x = tl.load(at, mask=mask, other=0.0)
    else:
        x = tl.load(at, mask=mask, other=float("-inf"))
    x = x.to(tl.float32)
    if SLIP == "no max":
        moved = x
    elif SLIP == "largest size":
        moved = x - tl.max(tl.where(mask, tl.abs(x), 0.0), 0)
    else:
        moved = x - tl.max(x, 0)
    e = tl.exp2(moved) if SLIP == "powers of two" else tl.exp(moved)
    if SLIP == "max with padding":
        e = tl.where(mask, e, 0.0)
    if SLIP == "no sum":
        p = e
    elif SLIP == "log":
        p = moved - tl.log(tl.sum(e, 0))
    else:
        p = e / tl.sum(e, 0)
    out_row = 0 if SLIP == "stores in row 0" else row
    if SLIP == "no mask" or SLIP == "store unmasked":
        tl.store(out_ptr + out_row * columns + cols, p)
    elif SLIP == "read again":
        tl.store(out_ptr + row * columns + cols, e, mask=mask)
        e = tl.load(out_ptr + row * columns + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * columns + cols, e / tl.sum(e, 0), mask=mask)
    else:
        tl.store(out_ptr + out_row * columns + cols, p, mask=mask)


@triton.jit
def loop_kernel(x_ptr, out_ptr, columns, stride_row, stride_column, BLOCK: tl.constexpr, ONLINE: tl.constexpr):
    """Right numbers from two or three walks along the row."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    largest = tl.max(tl.full([BLOCK], float("-inf"), tl.float32), 0)
    total = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    for first in range(0, columns, BLOCK):
        at = x_ptr + row * stride_row + (first + cols) * stride_column
        x = tl.load(at, mask=first + cols < columns, other=float("-inf")).to(tl.float32)
        before = largest
        largest = tl.maximum(largest, tl.max(x, 0))
        if ONLINE:
            safe = tl.where(largest == float("-inf"), 0.0, largest)
            total = total * tl.exp(before - safe) + tl.sum(tl.exp(x - safe), 0)
    if not ONLINE:
        for first in range(0, columns, BLOCK):
            at = x_ptr + row * stride_row + (first + cols) * stride_column
            x = tl.load(at, mask=first + cols < columns, other=float("-inf")).to(tl.float32)
            total += tl.sum(tl.exp(x - largest), 0)
    for first in range(0, columns, BLOCK):
        mask = first + cols < columns
        at = x_ptr + row * stride_row + (first + cols) * stride_column
        x = tl.load(at, mask=mask, other=float("-inf")).to(tl.float32)
        tl.store(out_ptr + row * columns + first + cols, tl.exp(x - largest) / total, mask=mask)


@triton.jit
def part_kernel(x_ptr, max_ptr, out_ptr, columns, stride_row, stride_column, BLOCK: tl.constexpr, FIRST: tl.constexpr):
    """The largest value of each row, or with it the result: one launch for each."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    at = x_ptr + row * stride_row + cols * stride_column
    x = tl.load(at, mask=cols < columns, other=float("-inf")).to(tl.float32)
    if FIRST:
        tl.store(max_ptr + row, tl.max(x, 0))
    else:
        e = tl.exp(x - tl.load(max_ptr + row))
        tl.store(out_ptr + row * columns + cols, e / tl.sum(e, 0), mask=cols < columns)


def new(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def launch(x: Tensor, out: Tensor, strides: Any = None, block: int = 0, slip: str = "") -> Tensor:
    rows, columns = x.shape
    block = block or triton.next_power_of_2(columns)
    kernel[(rows,)](x, out, columns, *(strides or x.stride()), BLOCK=block, SLIP=slip)
    return out


def slipped(slip: str) -> Callable[[Tensor], Tensor]:
    """The right launcher with a slip of the kernel."""
    return lambda x: launch(x, new(x), slip=slip)


def ignores_strides(x: Tensor) -> Tensor:
    return launch(x, new(x), (x.shape[1], 1))


def ignores_column_stride(x: Tensor) -> Tensor:
    return launch(x, new(x), (x.stride(0), 1))


def block_of_1024(x: Tensor) -> Tensor:
    return launch(x, new(x), block=1024)


def laid_out_like_x(x: Tensor) -> Tensor:
    return launch(x, torch.empty_like(x))


def down_the_columns(x: Tensor) -> Tensor:
    out = new(x)
    turned = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    launch(x.T, turned)
    out.copy_(turned.T)
    return out


def in_float32(x: Tensor) -> Tensor:
    return launch(x, torch.empty(x.shape, device=x.device))


def into_x(x: Tensor) -> Tensor:
    return launch(x, x)


def copies_first(x: Tensor) -> Tensor:
    return launch(x.contiguous(), new(x))


def torch_finds_the_largest(x: Tensor) -> Tensor:
    return launch(x - x.max(dim=1, keepdim=True).values, new(x), slip="no max")


def loops(online: bool) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        out = new(x)
        loop_kernel[(x.shape[0],)](x, out, x.shape[1], *x.stride(), BLOCK=512, ONLINE=online)
        return out

    return answer


def two_launches(x: Tensor) -> Tensor:
    out, largest = new(x), torch.empty(x.shape[0], device=x.device)
    for first in (True, False):
        block = triton.next_power_of_2(x.shape[1])
        part_kernel[(x.shape[0],)](x, largest, out, x.shape[1], *x.stride(), BLOCK=block, FIRST=first)
    return out


def returns_nothing(x: Tensor) -> None:
    launch(x, new(x))
