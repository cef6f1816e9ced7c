"""07.ptx_ex2 with one mistake each: one kernel, whose texts and factors are given at launch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512
"""Given to the learner."""

EX2 = "ex2.approx.ftz.f32 $0, $1;"
LOG2_E, LN2 = 1.4426950408889634, 0.6931471805599453
IN_FLOAT16 = "{ .reg .b16 h; cvt.rn.f16.f32 h, $1; ex2.approx.f16 h, h; cvt.f32.f16 $0, h; }"


@triton.jit
def _kernel(x_ptr, y_ptr, n, before, after, TEXT: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """With no text: tl.exp; "unused": tl.exp beside a text whose result nobody takes."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if TEXT == "":
        y = tl.exp(x)
    elif TEXT == "unused":
        y = tl.exp(x)
        tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [x * before], tl.float32, is_pure=False, pack=1)
    else:
        y = tl.inline_asm_elementwise(TEXT, "=f,f", [x * before], dtype=tl.float32, is_pure=True, pack=1) * after
    tl.store(y_ptr + offsets, y, mask=(mask if MASKED else None))


def exponential(
    text: str = EX2, before: float = LOG2_E, after: float = 1.0, masked: bool = True
) -> Callable[[Tensor], Tensor]:
    """An answer; the right one unless something is changed. The factors stand before and after the instruction."""

    def ptx_ex2(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        n = x.numel()
        _kernel[(triton.cdiv(n, BLOCK),)](x, y, n, before, after, text, masked, BLOCK=BLOCK)
        return y

    return ptx_ex2


right = exponential()
no_factor = exponential(before=1.0)
times_ln2 = exponential(before=LN2)
short_factor = exponential(before=1.4427)
factor_after = exponential(before=1.0, after=LOG2_E)
in_float16 = exponential(IN_FLOAT16)
other_direction = exponential("ex2.approx.ftz.f32 $1, $0;")
operands_of_cuda = exponential("ex2.approx.ftz.f32 %0, %1;")
no_semicolon = exponential("ex2.approx.ftz.f32 $0, $1")
no_approx = exponential("ex2.f32 $0, $1;")
no_mask = exponential(masked=False)
without_assembly = exponential("")
beside_tl_exp = exponential("unused")
