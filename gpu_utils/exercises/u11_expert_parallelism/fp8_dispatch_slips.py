"""Wrong answers to 11.fp8_dispatch, as learners write them; and right results that took the wrong way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_utils.exercises.u11_expert_parallelism import dispatch_slips

TILE = 128
E4M3 = torch.float8_e4m3fn

Quantised = tuple[Tensor, Tensor]
"""Codes (T, columns) in E4M3, and scales (T, tiles)."""


def _tiles(x: Tensor, wide: int = TILE) -> Tensor:
    return torch.nn.functional.pad(x.float(), (0, -x.shape[1] % wide)).unflatten(1, (-1, wide))


def tiles(x: Tensor, wide: int = TILE, guarded: bool = True, largest: float = 448.0, whole: bool = False) -> Quantised:
    """A scale for each `wide` columns. whole: the last tile is filled up; guarded: a tile of zeros has a scale of 1."""
    parts = _tiles(x, wide)
    amax = parts.abs().amax(2)
    scales = amax / largest
    if guarded:
        scales = torch.where(amax > 0, scales, 1.0)
    codes = (parts / scales[:, :, None]).to(E4M3).flatten(1)
    return (codes if whole else codes[:, : x.shape[1]]), scales


def rows_alone(x: Tensor) -> Quantised:
    """One scale for a row."""
    codes, scales = tiles(x, wide=-(-x.shape[1] // TILE) * TILE)
    return codes, scales.expand(len(x), -(-x.shape[1] // TILE))


def one_scale(x: Tensor) -> Quantised:
    """One scale for all tokens of the rank."""
    amax = x.float().abs().max() if x.numel() else torch.tensor(0.0)
    scale = torch.where(amax > 0, amax / 448, 1.0)
    return (x.float() / scale).to(E4M3), scale.expand(len(x), -(-x.shape[1] // TILE))


def bf16_scales(x: Tensor) -> Quantised:
    codes, scales = tiles(x)
    return codes, scales.bfloat16().float()


def unscaled(x: Tensor) -> Quantised:
    return x.float().to(E4M3), torch.ones(len(x), -(-x.shape[1] // TILE))


def spread(scales: Tensor, width: int) -> Tensor:
    return scales.repeat_interleave(TILE, 1)[:, :width]


def spread_in_turn(scales: Tensor, width: int) -> Tensor:
    """Column c has the scale of tile c modulo the number of tiles."""
    return scales.repeat(1, TILE)[:, :width]


def divided(codes: Tensor, scales: Tensor, width: int) -> Tensor:
    return codes / spread(scales, width)


def multiplied(codes: Tensor, scales: Tensor, width: int) -> Tensor:
    return codes * spread(scales, width)


def in_turn(codes: Tensor, scales: Tensor, width: int) -> Tensor:
    return codes * spread_in_turn(scales, width)


def codes_alone(codes: Tensor, scales: Tensor, width: int) -> Tensor:
    return codes


def answer(
    quantised: Callable[[Tensor], Quantised] = tiles,
    numbers: Callable[[Tensor, Tensor, int], Tensor] = multiplied,
    out: torch.dtype = torch.float32,
    right: Callable[..., tuple[Tensor, Tensor]] = dispatch_slips.right,
) -> Callable[..., Any]:
    """x is quantised, codes and scales travel in one row of bytes, numbers(codes, scales, width) makes rows of them."""

    def fp8_dispatch(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
        codes, scales = quantised(x)
        wide = codes.shape[1]
        wire = torch.cat((codes.view(torch.uint8), scales.contiguous().view(torch.uint8)), 1)
        came, counts = right(wire, experts, num_experts, group)
        codes = came[:, :wide].contiguous().view(E4M3).float()[:, : x.shape[1]]
        return numbers(
            codes, came[:, wide:].clone(memory_format=torch.contiguous_format).view(torch.float32), x.shape[1]
        ).to(out), counts

    return fp8_dispatch


def quantised_afterwards(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """Rows travel as they are, and are quantised where they arrive."""
    rows, counts = dispatch_slips.right(x, experts, num_experts, group)
    codes, scales = tiles(rows)
    return codes.float() * spread(scales, x.shape[1]), counts


def codes_as_float32(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """Codes are widened for the wire."""
    codes, scales = tiles(x)
    rows, counts = dispatch_slips.right(codes.float(), experts, num_experts, group)
    came, _ = dispatch_slips.right(scales, experts, num_experts, group)
    return rows * spread(came, x.shape[1]), counts


def float8_on_the_wire(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """gloo does not know this type."""
    codes, scales = tiles(x)
    rows, counts = dispatch_slips.right(codes, experts, num_experts, group)
    came, _ = dispatch_slips.right(scales, experts, num_experts, group)
    return rows.float() * spread(came, x.shape[1]), counts


def not_quantised(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    rows, counts = dispatch_slips.right(x, experts, num_experts, group)
    return rows.float(), counts


def scales_as_they_came(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    """Codes are sorted by local expert, scales are left by source."""
    codes, scales = tiles(x)
    rows, counts = dispatch_slips.right(codes.view(torch.uint8), experts, num_experts, group)
    by_source = dispatch_slips.arranged(lambda c: (c.source, c.local, c.token))
    came, _ = by_source(scales, experts, num_experts, group)
    return rows.view(E4M3).float() * spread(came, x.shape[1]), counts


def gathered(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    return answer(right=dispatch_slips.gathered)(x, experts, num_experts, group)


def skips_without_tokens(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    if not len(x):
        world = dist.get_world_size(group)
        return torch.zeros(0, x.shape[1]), torch.zeros(world, num_experts // world, dtype=torch.int64)
    return answer()(x, experts, num_experts, group)


def filled(value: float) -> Callable[..., Any]:
    def made(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
        rows, counts = answer()(x, experts, num_experts, group)
        return torch.full_like(rows, value), counts

    return made


def the_input(x: Tensor, experts: Tensor, num_experts: int, group: Any) -> tuple[Tensor, Tensor]:
    return x.float(), answer()(x, experts, num_experts, group)[1]
