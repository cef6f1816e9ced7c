"""Wrong answers to 08.quantize_block, as learners write them: one kernel with switches, and its launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u08_fp8.shared import TILE

SLIPS = (
    *("", "of each row", "of each column", "largest, not largest size", "inverse", "amax", "no zero", "in bfloat16"),
    *("behind the edge", "reciprocal in bfloat16", "a smallest amax"),
)


@triton.jit(do_not_specialize=["LARGEST", "OF_CODES", "slip"])
def kernel(
    w_ptr,
    codes_ptr,
    scales_ptr,
    N,
    K,
    stride_n,
    stride_k,
    code_n,
    code_k,
    scale_n,
    scale_k,
    LARGEST,
    OF_CODES,
    slip,
    TILE: tl.constexpr,
):
    """slip is a place in SLIPS; a whole row's or column's scale stands for the block's where the slip says so."""
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    k = tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = (n < N)[:, None] & (k < K)[None, :]
    w = tl.load(w_ptr + n[:, None] * stride_n + k[None, :] * stride_k, mask=there, other=0.0).to(tl.float32)
    size = tl.where(slip == 3, w, tl.abs(w))
    size = tl.where((slip == 8) & ~there, 1000.0, size)
    of_rows, of_columns = tl.max(size, 1), tl.max(size, 0)
    amax = tl.max(of_rows, 0)
    amax = tl.where(slip == 10, tl.maximum(amax, 1e-4), amax)
    scale = amax / LARGEST
    scale = tl.where(slip == 5, amax, scale)
    scale = tl.where(slip == 7, scale.to(tl.bfloat16).to(tl.float32), scale)
    scale = tl.where((amax > 0) | (slip == 6), scale, 1.0)
    each = tl.zeros([TILE, TILE], tl.float32) + scale
    each = tl.where(slip == 1, (of_rows / LARGEST)[:, None], each)
    each = tl.where(slip == 2, (of_columns / LARGEST)[None, :], each)
    part = w / each
    part = tl.where(slip == 9, w * (1.0 / scale).to(tl.bfloat16).to(tl.float32), part)
    codes = tl.clamp(part, -OF_CODES, OF_CODES).to(codes_ptr.dtype.element_ty)
    tl.store(codes_ptr + n[:, None] * code_n + k[None, :] * code_k, codes, mask=there)
    kept = tl.where(slip == 4, 1.0 / scale, scale)
    tl.store(scales_ptr + tl.program_id(0) * scale_n + tl.program_id(1) * scale_k, kept)


def answer(
    slip: str = "",
    *,
    largest: float | None = None,
    contiguous: bool = False,
    flat: bool = False,
    like: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed. flat: the scales of (K, N); like: strides of w."""

    def wrong(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
        N, K = w.shape
        down, across = triton.cdiv(N, TILE), triton.cdiv(K, TILE)
        codes = torch.empty_like(w, dtype=fp8) if like else torch.empty((N, K), dtype=fp8, device=w.device)
        scales = torch.empty((across, down) if flat else (down, across), dtype=dtype, device=w.device)
        top = torch.finfo(fp8).max
        kernel[(down, across)](
            *(w, codes, scales, N, K, *((K, 1) if contiguous else w.stride()), *codes.stride()),
            *((1, down) if flat else (across, 1)),
            *(largest or top, top, SLIPS.index(slip)),
            TILE=TILE,
            num_warps=8,
        )
        return codes, scales

    return wrong


def tiles_of_a_row(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """As many scales as activations would have."""
    codes, scales = answer()(w, fp8)
    return codes, scales.repeat_interleave(TILE, 0)[: len(w)].contiguous()


def torch_finds_the_sizes(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """torch finds the largest size of each block and divides; the kernel only casts."""
    N, K = w.shape
    down, across = triton.cdiv(N, TILE), triton.cdiv(K, TILE)
    padded = torch.nn.functional.pad(w.float(), (0, across * TILE - K, 0, down * TILE - N))
    blocks = padded.view(down, TILE, across, TILE)
    amax = blocks.abs().amax((1, 3))
    scales = torch.where(amax > 0, amax / torch.finfo(fp8).max, 1.0)
    divided = (blocks / scales[:, None, :, None]).view(down * TILE, across * TILE)[:N, :K].contiguous()
    codes, rest = torch.empty((N, K), dtype=fp8, device=w.device), torch.empty_like(scales)
    # 448 is the largest of the parts again, and the scale so 1 but for the last block
    top = torch.finfo(fp8).max
    kernel[(down, across)](*(divided, codes, rest, N, K, K, 1, K, 1, across, 1, top, top, 0), TILE=TILE, num_warps=8)
    return codes, scales


def only_codes(w: Tensor, fp8: torch.dtype) -> Tensor:
    return answer()(w, fp8)[0]


def transposed_codes(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """Codes of shape (K, N), as a product w.T would want them."""
    codes, scales = answer()(w, fp8)
    return codes.view(torch.uint8).T.contiguous().view(fp8), scales
