"""What the exercises that quantise share: numbers to draw, scales that are right, codes that are near enough."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.formats import FORMATS, Format
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case

TILE = 128
"""Elements that share a scale, along K and in a block along both sides."""

TWICE = 2.0**-9
"""A code may be the nearest to a value that is off by this share: Triton 3.7 goes to FP8 by way of float16 on sm_89,
which cuts off digits behind the eleventh, and so rounds twice."""

SCALES = Tolerance(2.0**-21, 0.0, "a division in float32")
CODES = Tolerance(2.0**-3, 0.0, "one step of E4M3, where a value lies near the middle of two")


def dtype_of(case: Case) -> torch.dtype:
    """The FP8 of the chip that a case runs on."""
    return getattr(torch, f"float8_{case['fp8']}")


def format_of(dtype: torch.dtype) -> Format:
    """The format of one of torch's FP8 types.

    >>> format_of(torch.float8_e4m3fnuz).largest
    240.0
    """
    return FORMATS[str(dtype).removeprefix("torch.float8_")]


def activations(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    """float32 (rows, cols) of both signs; sizes differ by up to 2^12 from one stretch of 128 to the next, in both ways.

    So a scale that is shared too widely, or taken from a neighbour, shows in every code.
    """
    size = torch.rand((rows, cols), generator=generator) + 0.02
    signs = 1 - 2 * torch.randint(2, (rows, cols), generator=generator)
    tiles = torch.exp2(12 * torch.rand((math.ceil(rows / TILE), math.ceil(cols / TILE)), generator=generator) - 8)
    wide = tiles.repeat_interleave(TILE, 0)[:rows].repeat_interleave(TILE, 1)[:, :cols]
    each = torch.exp2(3 * torch.rand((rows, 1), generator=generator))
    return size * signs * wide * each


def amax_of_tiles(x: Tensor, rows: int, cols: int) -> Tensor:
    """Largest size in each part of rows x cols: float64 (parts down, parts across); the last parts may be short."""
    down, across = -x.shape[0] % rows, -x.shape[1] % cols
    padded = torch.nn.functional.pad(x.double().abs(), (0, across, 0, down))
    return padded.view(padded.shape[0] // rows, rows, padded.shape[1] // cols, cols).amax((1, 3))


def spread(scales: Tensor, rows: int, cols: int, shape: torch.Size) -> Tensor:
    """The scale of each element, float64 of `shape`."""
    return scales.double().repeat_interleave(rows, 0)[: shape[0]].repeat_interleave(cols, 1)[:, : shape[1]]


def quantized(x: Tensor, rows: int, cols: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(codes in dtype, scales float32) with one scale for each rows x cols of x; 1.0 where all of it is zero."""
    largest = torch.finfo(dtype).max
    amax = amax_of_tiles(x, rows, cols)
    scales = torch.where(amax > 0, amax / largest, 1.0).float()
    parts = x.double() / spread(scales, rows, cols, x.shape)
    return parts.clamp(-largest, largest).float().to(dtype), scales


def quantization_problem(x: Tensor, rows: int, cols: int, dtype: torch.dtype, value: Any) -> Difference | None:
    """What is wrong with (codes, scales) of x; None where both are right.

    Scales are those of the definition, to float32's digits; of a part that is all zeros any finite one. Codes are
    judged with the scales that came with them.
    """
    expected = quantized(x, rows, cols, dtype)
    loose = Tolerance(0.0, math.inf, "")
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return compare(expected, value, loose)
    codes, scales = value
    if isinstance(codes, Tensor) and codes.shape == x.shape and not codes.is_contiguous():
        found, wanted = tuple(codes.stride()), tuple(expected[0].stride())
        return Difference("strides", f"the codes have strides {found}, expected {wanted}: they are to be contiguous")
    empty = amax_of_tiles(x, rows, cols) == 0
    if isinstance(scales, Tensor) and scales.shape == empty.shape and scales.is_floating_point():
        scales = torch.where(empty & scales.isfinite(), expected[1].to(scales.dtype), scales)
    return (
        compare(expected[0], codes, loose, dtype, "codes")
        or compare(expected[1], scales, SCALES, torch.float32, "scales")
        or _wrong_codes(x, spread(scales, rows, cols, x.shape), dtype, codes)
    )


def _wrong_codes(x: Tensor, scale: Tensor, dtype: torch.dtype, codes: Tensor) -> Difference | None:
    largest = torch.finfo(dtype).max
    wanted = (x.double() / scale).clamp(-largest, largest)
    nearest = wanted.float().to(dtype).double()
    got = codes.double()
    off = ~((got - wanted).abs() <= (nearest - wanted).abs() + TWICE * wanted.abs())
    if not off.any():
        return None
    at = tuple(int(i) for i in off.nonzero()[0])
    what = "nan" if got[at].isnan() else "value"
    return Difference(
        what,
        f"codes[{at[0]}, {at[1]}] stands for {got[at].item():g}, expected {nearest[at].item():g}: x is "
        f"{x[at].item():.6g}, its scale {scale[at].item():.6g}, x / scale {wanted[at].item():.6g}. "
        f"{int(off.sum())} of {off.numel()} codes are off",
    )
