"""Wrong answers to 00.vector_add, as learners write them: kernels, and launchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Given to the learner, so that a wrong answer behaves like the misconception that explains it."""


@triton.jit
def unmasked_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets % m))


@triton.jit
def right_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def overlapping_blocks_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def no_program_id_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def mask_of_the_lane_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * BLOCK + lanes
    mask = lanes < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def interleaved_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) + tl.arange(0, BLOCK) * tl.num_programs(0)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def mask_one_long_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets <= n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def mask_of_the_block_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < BLOCK
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def unmasked_store_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask))


@triton.jit
def mask_one_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n - 1
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def index_of_y_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr, INDEX: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * BLOCK + lanes
    mask = offsets < n
    if INDEX == "of x":
        y = tl.load(y_ptr + offsets, mask)
    elif INDEX == "of x, masked by m":
        y = tl.load(y_ptr + offsets, offsets < m, 0.0)
    elif INDEX == "wrapped once":
        y = tl.load(y_ptr + offsets - m * (offsets >= m), mask)
    elif INDEX == "of the lane":
        y = tl.load(y_ptr + lanes % m, mask)
    else:
        y = tl.load(y_ptr + offsets // m, mask)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + y, mask)


def indexing_y(how: str) -> Callable[..., Tensor]:
    def answer(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        programs = triton.cdiv(x.numel(), BLOCK)
        index_of_y_kernel[(programs,)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK, INDEX=how)
        return out

    return answer


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, offsets < n), offsets < n)


def repeated(x: Tensor, y: Tensor) -> Tensor:
    return y.repeat(triton.cdiv(x.numel(), y.numel()))[: x.numel()]


def repeats_y_first(x: Tensor, y: Tensor) -> Tensor:
    return launching(right_kernel)(x, repeated(x, y))


def torch_adds_the_kernel_copies(x: Tensor, y: Tensor) -> Tensor:
    out, total = torch.empty_like(x), x + repeated(x, y)
    copy_kernel[(triton.cdiv(x.numel(), BLOCK),)](total, out, x.numel(), BLOCK=BLOCK)
    return out


def launching(kernel: Any, programs: Callable[[int], int] = lambda n: triton.cdiv(n, BLOCK)) -> Callable:
    def answer(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        kernel[(programs(x.numel()),)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK)
        return out

    return answer


def grid_is_a_number(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    right_kernel[triton.cdiv(x.numel(), BLOCK)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK)
    return out


def allocates_a_default_tensor(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty(x.numel())
    right_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK)
    return out


def writing_into(name: str) -> Callable[..., Tensor]:
    def answer(**inputs: Tensor) -> Tensor:
        x, y, out = inputs["x"], inputs["y"], inputs[name]
        right_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK)
        return out

    return answer


def returns_nothing(x: Tensor, y: Tensor) -> None:
    launching(right_kernel)(x, y)
