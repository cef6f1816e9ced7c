"""Wrong answers to 08.kv_cache_fp8, as learners write them: one kernel with switches, and its launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LATENT, ROPE, TILES = 512, 64, 4
ENTRY = LATENT + 4 * TILES + 2 * ROPE
"""Bytes of a token: 512 codes, 4 scales in float32, 64 numbers in bfloat16."""

SLIPS = (
    *("", "token is the slot", "stores padding", "one scale", "largest, not largest size", "inverse", "amax"),
    *("no zero", "in bfloat16", "rope rounded", "rope in float16", "stored undivided"),
    *("a smallest amax", "padding is -1"),
)


@triton.jit(do_not_specialize=["LARGEST", "OF_CODES", "SCALES_AT", "ROPE_AT", "slip"])
def kernel(
    latent_ptr,
    rope_ptr,
    slots_ptr,
    codes_ptr,
    scales_ptr,
    rope_out_ptr,
    latent_row,
    rope_row,
    SCALES_AT,
    ROPE_AT,
    LARGEST,
    OF_CODES,
    slip,
    TILES: tl.constexpr,
    ROPE: tl.constexpr,
):
    """One token; slip is a place in SLIPS. The three outputs are one memory under three types."""
    token = tl.program_id(0)
    slot = tl.load(slots_ptr + token)
    slot = tl.where(slip == 1, token, slot)
    if (slot >= 0) | (slip == 2) | ((slip == 13) & (slot != -1)):
        tile, k = tl.arange(0, TILES)[:, None], tl.arange(0, 128)[None, :]
        x = tl.load(latent_ptr + token * latent_row + tile * 128 + k).to(tl.float32)
        amax = tl.max(tl.where(slip == 4, x, tl.abs(x)), 1)
        amax = tl.where(slip == 3, tl.max(amax, 0), amax)
        amax = tl.where(slip == 12, tl.maximum(amax, 1e-4), amax)
        scale = tl.where(slip == 6, amax, amax / LARGEST)
        scale = tl.where(slip == 8, scale.to(tl.bfloat16).to(tl.float32), scale)
        scale = tl.where((amax > 0) | (slip == 7), scale, 1.0)
        part = tl.where(slip == 11, x, x / scale[:, None])
        codes = tl.clamp(part, -OF_CODES, OF_CODES).to(codes_ptr.dtype.element_ty)
        tl.store(codes_ptr + slot * 656 + tile * 128 + k, codes)
        kept = tl.where(slip == 5, 1.0 / scale, scale)
        tl.store(scales_ptr + slot * 164 + SCALES_AT + tl.arange(0, TILES), kept)
        d = tl.arange(0, ROPE)
        turned = tl.load(rope_ptr + token * rope_row + d)
        narrow = turned.to(tl.float32).to(codes_ptr.dtype.element_ty).to(tl.float32).to(tl.bfloat16)
        turned = tl.where(slip == 9, narrow, turned)
        half = turned.to(tl.float16).to(tl.int16, bitcast=True).to(tl.bfloat16, bitcast=True)
        turned = tl.where(slip == 10, half, turned)
        tl.store(rope_out_ptr + slot * 328 + ROPE_AT + d, turned)


def answer(
    slip: str = "",
    *,
    largest: float | None = None,
    contiguous: bool = False,
    scales_at: int = LATENT // 4,
    rope_at: int = (LATENT + 4 * TILES) // 2,
    empty: bool = False,
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed. Places are counted in elements of their type."""

    def wrong(latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype) -> Tensor:
        cache = (torch.empty if empty else torch.zeros)((size, ENTRY), dtype=torch.uint8, device=latent.device)
        top = torch.finfo(fp8).max
        rows = (LATENT, ROPE) if contiguous else (latent.stride(0), rope.stride(0))
        kernel[(len(slots),)](
            *(latent, rope, slots, cache.view(fp8), cache.view(torch.float32), cache.view(torch.bfloat16), *rows),
            *(scales_at, rope_at, largest or top, top, SLIPS.index(slip)),
            TILES=TILES,
            ROPE=ROPE,
        )
        return cache

    return wrong


def sixteen_bits(latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype) -> Tensor:
    """Entries as they were before: 576 numbers in bfloat16."""
    cache = torch.zeros((size, 2 * (LATENT + ROPE)), dtype=torch.uint8, device=latent.device)
    kernel[(0,)](
        *(latent, rope, slots, cache.view(fp8), cache.view(torch.float32), cache.view(torch.bfloat16), 1, 1),
        *(0, 0, 1.0, 1.0, 0),
        TILES=TILES,
        ROPE=ROPE,
    )
    return cache


def torch_places(latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype) -> Tensor:
    """The kernel packs the tokens in their order, and torch brings them to their places."""
    packed = answer("token is the slot")(latent, rope, slots, len(slots), fp8)
    cache = torch.zeros((size, ENTRY), dtype=torch.uint8, device=latent.device)
    cache[slots[slots >= 0]] = packed[slots >= 0]
    return cache
