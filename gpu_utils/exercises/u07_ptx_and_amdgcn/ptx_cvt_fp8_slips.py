"""07.ptx_cvt_fp8 with one mistake each: one kernel, whose text and constraints are given at launch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512
"""Given to the learner."""

CVT = "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;"
THROUGH_F16 = "{ .reg .b32 h; cvt.rn.f16x2.f32 h, $2, $1; cvt.rn.satfinite.e4m3x2.f16x2 $0, h; }"


@triton.jit
def _kernel(
    x_ptr,
    codes_ptr,
    n,
    largest,
    TEXT: tl.constexpr,
    CONSTRAINTS: tl.constexpr,
    PACK: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Without a text: the cast of Triton. largest: what x is clamped to before, infinity for nothing."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if largest < 1000.0:
        x = tl.minimum(tl.maximum(x, -largest), largest)
    if TEXT == "":
        codes = x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        codes = tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=PACK)
    tl.store(codes_ptr + offsets, codes, mask=(mask if MASKED else None))


def converting(
    text: str = CVT,
    constraints: str = "=h,f,f",
    pack: int = 2,
    masked: bool = True,
    dtype: torch.dtype = torch.uint8,
    largest: float = float("inf"),
) -> Callable[[Tensor], Tensor]:
    """An answer; the right one unless something is changed."""

    def ptx_cvt_fp8(x: Tensor) -> Tensor:
        n = x.numel()
        codes = torch.empty(n, dtype=dtype, device=x.device)
        grid = (triton.cdiv(n, BLOCK),)
        _kernel[grid](x, codes.view(torch.uint8), n, largest, text, constraints, pack, masked, BLOCK=BLOCK)
        return codes

    return ptx_cvt_fp8


def with_torch(x: Tensor) -> Tensor:
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)


right = converting()
sources_turned = converting("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;")
first_for_both = converting("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $1;")
second_for_both = converting("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $2;")
one_twice = converting("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $1;", "=h,f", 1)
beside_zero = converting("cvt.rn.satfinite.e4m3x2.f32 $0, 0f00000000, $1;", "=h,f", 1)
in_e5m2 = converting("cvt.rn.satfinite.e5m2x2.f32 $0, $2, $1;")
through_float16 = converting(THROUGH_F16)
no_satfinite = converting("cvt.rn.e4m3x2.f32 $0, $2, $1;")
towards_zero = converting("cvt.rz.satfinite.e4m3x2.f32 $0, $2, $1;")
pack_of_one = converting(pack=1)
pack_of_four = converting(pack=4)
one_argument = converting(constraints="=h,f")
wide_result = converting(constraints="=r,f,f")
signed = converting(dtype=torch.int8)
clamped_first = converting(largest=448.0)
relu = converting("cvt.rn.satfinite.relu.e4m3x2.f32 $0, $2, $1;")
no_mask = converting(masked=False)
without_assembly = converting("")
