"""A kernel that needs a given number of vector registers: to ask LLVM how many waves of it fit on a SIMD."""

from __future__ import annotations

import functools

import triton
import triton.language as tl

from gpu_utils.compiler.reading import compiler_notes
from gpu_utils.compiler.triton import Compiled, compile_for


@triton.jit
def hold_kernel(x_ptr, TAKES: tl.constexpr):
    x = tl.load(x_ptr)
    tl.store(x_ptr, tl.inline_asm_elementwise("v_mov_b32 $0, $1", TAKES, [x], tl.float32, False, 1))


@functools.cache
def holding(registers: int, target: str = "gfx942") -> Compiled:
    """A kernel with exactly so many VGPRs, compiled for an AMD target now (or kept by Triton's cache).

    An assembly statement that says it overwrites v[n - 1] makes LLVM give the kernel n VGPRs.
    Raises RuntimeError where LLVM used another number.

    >>> compiler_notes(holding(68))["Occupancy"]
    7
    """
    takes = f"=v,v,~{{v{registers - 1}}}"
    compiled = compile_for(hold_kernel, target, signature={"x_ptr": "*fp32"}, TAKES=takes)
    used = compiler_notes(compiled)["NumVgprs"]
    if used != registers:
        raise RuntimeError(f"asked for {registers} VGPRs on {target}; LLVM used {used}")
    return compiled
