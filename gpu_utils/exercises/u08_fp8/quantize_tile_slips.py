"""Wrong answers to 08.quantize_tile, as learners write them: one kernel with switches, and its launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u08_fp8.shared import TILE

ROWS = 8

SLIPS = (
    *("", "largest, not largest size", "inverse", "amax", "power of two", "bfloat16", "float16", "no zero"),
    *("behind K", "not divided", "rounded to whole", "cut", "all rows", "a smallest amax"),
)


@triton.jit(do_not_specialize=["LARGEST", "OF_CODES", "slip"])
def kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    amax_ptr,
    M,
    K,
    stride_m,
    stride_k,
    code_m,
    code_k,
    scale_m,
    scale_k,
    LARGEST,
    OF_CODES,
    slip,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    GIVEN: tl.constexpr,
):
    """slip is a place in SLIPS. GIVEN: the largest size comes from amax_ptr, one for all."""
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = (m < M)[:, None] & (k < K)[None, :]
    x = tl.load(x_ptr + m[:, None] * stride_m + k[None, :] * stride_k, mask=there, other=0.0).to(tl.float32)
    size = tl.where(slip == 1, x, tl.abs(x))
    size = tl.where((slip == 8) & ~there, 1000.0, size)
    amax = tl.max(size, 1)
    amax = tl.where(slip == 12, tl.max(amax, 0), amax)
    amax = tl.where(slip == 13, tl.maximum(amax, 1e-4), amax)
    if GIVEN:
        amax = tl.load(amax_ptr) + 0.0 * amax
    scale = amax / LARGEST
    scale = tl.where(slip == 3, amax, scale)
    scale = tl.where(slip == 4, tl.exp2(tl.ceil(tl.log2(tl.maximum(scale, 1e-30)))), scale)
    scale = tl.where(slip == 5, scale.to(tl.bfloat16).to(tl.float32), scale)
    scale = tl.where(slip == 6, scale.to(tl.float16).to(tl.float32), scale)
    scale = tl.where((amax > 0) | (slip == 7), scale, 1.0)
    part = x / scale[:, None]
    part = tl.where(slip == 9, x, part)
    part = tl.where(slip == 10, tl.floor(part + 0.5), part)
    part = tl.where(slip == 11, part * 0.9375, part)
    codes = tl.clamp(part, -OF_CODES, OF_CODES).to(codes_ptr.dtype.element_ty)
    tl.store(codes_ptr + m[:, None] * code_m + k[None, :] * code_k, codes, mask=there)
    kept = tl.where(slip == 2, 1.0 / scale, scale)
    tl.store(scales_ptr + m * scale_m + tl.program_id(1) * scale_k, kept, mask=m < M)


def answer(
    slip: str = "",
    *,
    largest: float | None = None,
    contiguous: bool = False,
    flat: bool = False,
    like: bool = False,
    dtype: torch.dtype = torch.float32,
    one: Callable[[Tensor], Tensor] | None = None,
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed.

    like: the codes have the strides of x. one: torch finds a largest size for the whole of x.
    """

    def wrong(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
        M, K = x.shape
        tiles = triton.cdiv(K, TILE)
        codes = torch.empty_like(x, dtype=fp8) if like else torch.empty((M, K), dtype=fp8, device=x.device)
        scales = torch.empty((tiles, M) if flat else (M, tiles), dtype=dtype, device=x.device)
        amax = scales if one is None else one(x).float()
        top = largest or torch.finfo(fp8).max
        kernel[(triton.cdiv(M, ROWS), tiles)](
            *(x, codes, scales, amax, M, K, *((K, 1) if contiguous else x.stride()), *codes.stride()),
            *((1, M) if flat else (tiles, 1)),
            *(top, torch.finfo(fp8).max, SLIPS.index(slip)),
            ROWS=ROWS,
            TILE=TILE,
            GIVEN=one is not None,
            num_warps=4 if x.stride(1) == 1 else 8,
        )
        return codes, scales

    return wrong


def torch_quantizes(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """torch finds the sizes, and divides; a kernel copies what came of it."""
    M, K = x.shape
    tiles = triton.cdiv(K, TILE)
    padded = torch.nn.functional.pad(x.float(), (0, tiles * TILE - K)).view(M, tiles, TILE)
    amax = padded.abs().amax(2)
    scales = torch.where(amax > 0, amax / torch.finfo(fp8).max, 1.0)
    codes = (padded / scales[..., None]).view(M, -1)[:, :K].contiguous()
    out, ones = torch.empty((M, K), dtype=fp8, device=x.device), torch.ones((), device=x.device)
    kernel[(triton.cdiv(M, ROWS), tiles)](
        *(codes, out, torch.empty_like(scales), ones, M, K, K, 1, tiles, 1, 1.0, torch.finfo(fp8).max, 0),
        ROWS=ROWS,
        TILE=TILE,
        GIVEN=True,
    )
    return out, scales


def codes_as_bytes(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    codes, scales = answer()(x, fp8)
    return codes.view(torch.uint8), scales


def values_again(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """What the codes stand for, instead of the codes."""
    codes, scales = answer()(x, fp8)
    return codes.to(x.dtype), scales


def only_codes(x: Tensor, fp8: torch.dtype) -> Tensor:
    return answer()(x, fp8)[0]
