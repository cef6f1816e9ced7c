"""Wrong answers to 04.softmax, as learners write them: kernels with a slip, and launchers.

The slip is a number that the kernel gets at run time: nearly all of them share one compilation for each case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_SLIPS = (
    *("", "no mask", "mask one long", "store unmasked", "padding is 0", "max with padding", "no program id"),
    *("no max", "largest size", "powers of two", "no sum", "log", "stores in row 0", "read again"),
)
NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}
"""What a launcher gives to the kernel, by its name."""

_PADDING_IS_0 = NUMBERS["padding is 0"]
_MAX_WITH_PADDING = NUMBERS["max with padding"]
_NO_PROGRAM_ID = NUMBERS["no program id"]
_NO_MAX = NUMBERS["no max"]
_LARGEST_SIZE = NUMBERS["largest size"]
_POWERS_OF_TWO = NUMBERS["powers of two"]
_NO_SUM = NUMBERS["no sum"]
_LOG = NUMBERS["log"]
_STORES_IN_ROW_0 = NUMBERS["stores in row 0"]
_READ_AGAIN = NUMBERS["read again"]


@triton.jit(do_not_specialize=["slip"])
def kernel(x_ptr, out_ptr, columns, load_end, store_end, stride_row, stride_column, slip, BLOCK: tl.constexpr):
    """The masks end at load_end and store_end: both are `columns`, where nothing is wrong."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < load_end
    from_row = tl.where(slip == _NO_PROGRAM_ID, 0, row)
    padding = tl.where((slip == _PADDING_IS_0) | (slip == _MAX_WITH_PADDING), 0.0, float("-inf"))
    x = tl.load(x_ptr + from_row * stride_row + cols * stride_column, mask=mask, other=padding).to(tl.float32)
    largest = tl.max(x, 0)
    if slip == _LARGEST_SIZE:
        largest = tl.max(tl.where(mask, tl.abs(x), 0.0), 0)
    moved = x - tl.where(slip == _NO_MAX, 0.0, largest)
    e = tl.exp(moved)
    if slip == _POWERS_OF_TWO:
        e = tl.exp2(moved)
    if slip == _MAX_WITH_PADDING:
        e = tl.where(mask, e, 0.0)
    total = tl.sum(e, 0)
    p = e / tl.where((slip == _NO_SUM) | (slip == _READ_AGAIN), 1.0, total)
    if slip == _LOG:
        p = moved - tl.log(total)
    out = out_ptr + tl.where(slip == _STORES_IN_ROW_0, 0, row) * columns + cols
    tl.store(out, p, mask=cols < store_end)
    if slip == _READ_AGAIN:
        e = tl.load(out, mask=mask, other=0.0).to(tl.float32)
        tl.store(out, e / tl.sum(e, 0), mask=mask)


@triton.jit(do_not_specialize=["online"])
def loop_kernel(x_ptr, out_ptr, columns, stride_row, stride_column, online, BLOCK: tl.constexpr):
    """Right numbers from two walks along the row, online, or three."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    largest = tl.max(tl.full([BLOCK], float("-inf"), tl.float32), 0)
    total = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    for first in range(0, columns, BLOCK):
        at = x_ptr + row * stride_row + (first + cols) * stride_column
        x = tl.load(at, mask=first + cols < columns, other=float("-inf")).to(tl.float32)
        before = largest
        largest = tl.maximum(largest, tl.max(x, 0))
        if online:
            safe = tl.where(largest == float("-inf"), 0.0, largest)
            total = total * tl.exp(before - safe) + tl.sum(tl.exp(x - safe), 0)
    for first in range(0, tl.where(online != 0, 0, columns), BLOCK):
        at = x_ptr + row * stride_row + (first + cols) * stride_column
        x = tl.load(at, mask=first + cols < columns, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - largest), 0)
    for first in range(0, columns, BLOCK):
        mask = first + cols < columns
        at = x_ptr + row * stride_row + (first + cols) * stride_column
        x = tl.load(at, mask=mask, other=float("-inf")).to(tl.float32)
        tl.store(out_ptr + row * columns + first + cols, tl.exp(x - largest) / total, mask=mask)


@triton.jit(do_not_specialize=["launch"])
def part_kernel(x_ptr, max_ptr, out_ptr, columns, stride_row, stride_column, launch, BLOCK: tl.constexpr):
    """Launch 0: the largest value of each row; launch 1: the result, with it."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    at = x_ptr + row * stride_row + cols * stride_column
    x = tl.load(at, mask=cols < columns, other=float("-inf")).to(tl.float32)
    if launch == 0:
        tl.store(max_ptr + row, tl.max(x, 0))
    else:
        e = tl.exp(x - tl.load(max_ptr + row))
        tl.store(out_ptr + row * columns + cols, e / tl.sum(e, 0), mask=cols < columns)


def new(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def launch(x: Tensor, out: Tensor, strides: Any = None, block: int = 0, slip: str = "") -> Tensor:
    rows, columns = x.shape
    block = block or triton.next_power_of_2(columns)
    ends = {"no mask": (block, block), "mask one long": (columns + 1, columns + 1), "store unmasked": (columns, block)}
    load_end, store_end = ends.get(slip, (columns, columns))
    numbers = (columns, load_end, store_end, *(strides or x.stride()), NUMBERS[slip].value)
    kernel[(rows,)](x, out, *numbers, BLOCK=block)
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
        loop_kernel[(x.shape[0],)](x, out, x.shape[1], *x.stride(), int(online), BLOCK=512)
        return out

    return answer


def two_launches(x: Tensor) -> Tensor:
    out, largest = new(x), torch.empty(x.shape[0], device=x.device)
    for number in (0, 1):
        block = triton.next_power_of_2(x.shape[1])
        part_kernel[(x.shape[0],)](x, largest, out, x.shape[1], *x.stride(), number, BLOCK=block)
    return out


def returns_nothing(x: Tensor) -> None:
    launch(x, new(x))
