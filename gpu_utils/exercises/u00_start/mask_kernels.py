"""The kernels whose machine code 00.find_mask reads, and that code as a list of instructions."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

from gpu_utils.compiler.listing import listing


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def leaky_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """A choice between two values, beside the mask."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(x > 0, x, factor * x), mask=mask)


@triton.jit
def head_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """Compares offsets with n, and chooses a value by it: no access is masked."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, tl.where(offsets < n, x, factor * x))


@triton.jit
def stride_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """A loop, whose own branches have conditions too."""
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def wrapped_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """Every load stays inside by its offset, only the store has a mask."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets % BLOCK)
    tl.store(out_ptr + offsets, factor * x, mask=offsets < n)


KERNELS = {
    "scale": scale_kernel,
    "leaky": leaky_kernel,
    "head": head_kernel,
    "stride": stride_kernel,
    "wrapped": wrapped_kernel,
}


@functools.lru_cache(maxsize=64)
def instructions(kernel: str, target: str, n: int, block: int, small: bool) -> tuple[str, ...]:
    """The instructions of a kernel of KERNELS, without labels and directives, in the order of the machine code.

    n      what the kernel is launched with: the compiler asks whether 16 divides it
    small  as launched with tensors under 2 GiB; else for tensors of any size. On AMD the mask differs
    """
    given: dict[str, Any] = {"args": (torch.float32, torch.float32, n, 2.5)}
    if not small:
        divisible = "i32:16" if n % 16 == 0 else "i32"
        given = {"signature": {"x_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n": divisible, "factor": "fp32"}}
    (column,) = listing(KERNELS[kernel], target, BLOCK=block, **given).columns
    return tuple(found.text for found in column.instructions)
