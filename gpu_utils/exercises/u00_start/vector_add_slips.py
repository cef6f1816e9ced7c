"""Wrong answers to 00.vector_add, as learners write them: kernels, and launchers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Given to the learner, so that a wrong answer behaves like the misconception that explains it."""


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr, SLIP: tl.constexpr = ""):
    """The right kernel, or one with one thing wrong: whose elements, which of them exist, or where y is read."""
    lanes = tl.arange(0, BLOCK)
    if SLIP == "overlapping blocks":
        offsets = tl.program_id(0) + lanes
    elif SLIP == "no program id":
        offsets = lanes
    elif SLIP == "interleaved":
        offsets = tl.program_id(0) + lanes * tl.num_programs(0)
    else:
        offsets = tl.program_id(0) * BLOCK + lanes
    if SLIP == "no mask":
        mask = None
    elif SLIP == "mask of the lane":
        mask = lanes < n
    elif SLIP == "mask of the block":
        mask = offsets < BLOCK
    elif SLIP == "mask one long":
        mask = offsets <= n
    elif SLIP == "mask one short":
        mask = offsets < n - 1
    else:
        mask = offsets < n
    if SLIP == "y at x":
        y = tl.load(y_ptr + offsets, mask)
    elif SLIP == "y at x, masked by m":
        y = tl.load(y_ptr + offsets, offsets < m, 0.0)
    elif SLIP == "y wrapped once":
        y = tl.load(y_ptr + offsets - m * (offsets >= m), mask)
    elif SLIP == "y of the lane":
        y = tl.load(y_ptr + lanes % m, mask)
    elif SLIP == "y divided":
        y = tl.load(y_ptr + offsets // m, mask)
    else:
        y = tl.load(y_ptr + offsets % m, mask)
    stored = None if SLIP == "unmasked store" else mask
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + y, stored)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, offsets < n), offsets < n)


def repeated(x: Tensor, y: Tensor) -> Tensor:
    return y.repeat(triton.cdiv(x.numel(), y.numel()))[: x.numel()]


def repeats_y_first(x: Tensor, y: Tensor) -> Tensor:
    return launching()(x, repeated(x, y))


def torch_adds_the_kernel_copies(x: Tensor, y: Tensor) -> Tensor:
    out, total = torch.empty_like(x), x + repeated(x, y)
    copy_kernel[(triton.cdiv(x.numel(), BLOCK),)](total, out, x.numel(), BLOCK=BLOCK)
    return out


def launching(slip: str = "", programs: Callable[[int], int] = lambda n: triton.cdiv(n, BLOCK)) -> Callable:
    def answer(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        kernel[(programs(x.numel()),)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK, SLIP=slip)
        return out

    return answer


def grid_is_a_number(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernel[triton.cdiv(x.numel(), BLOCK)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK)
    return out


def allocates_a_default_tensor(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty(x.numel())
    kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK)
    return out


def writing_into(name: str) -> Callable[..., Tensor]:
    def answer(**inputs: Tensor) -> Tensor:
        x, y, out = inputs["x"], inputs["y"], inputs[name]
        kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), y.numel(), BLOCK=BLOCK)
        return out

    return answer


def returns_nothing(x: Tensor, y: Tensor) -> None:
    launching()(x, y)
