"""Matrices in FP8 with scales, simulated in torch on any device: codes, one scale for each tile, and back.

A tile is a part of a matrix that shares one scale. Its scale brings its largest number to the largest of the format:
scale = amax / largest, code = x / scale, rounded to nearest even. What a GPU does with the codes is not simulated
here: products are taken of the dequantised matrices, in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.errors import UnknownName

_LOWEST, _HIGHEST = -127, 127
"""Exponents of E8M0, the type of the scales of MX (OCP Microscaling Formats (MX) Specification 1.0)."""

# amax / scale may lie one rounding of float32 above the largest number, and is that number then.
_ROUNDING = 1 + 2.0**-22


@dataclass(frozen=True)
class Granularity:
    """Which elements of a matrix share a scale: tiles of `rows` by `columns`; None is all of them.

    power_of_two: the scale is 2^(floor(log2 amax) - e), where 2^e is the largest power of two of the format: the rule
    of the OCP Microscaling Formats (MX) Specification 1.0, section 6.3. An amax near the next power of two saturates.
    """

    rows: int | None
    columns: int | None
    power_of_two: bool = False

    @property
    def square(self) -> bool:
        """Whether the transposed matrix has the transposed scales, so that it needs no other codes."""
        return self.rows == self.columns

    @property
    def turned(self) -> Granularity:
        """The tiles of a matrix that a product sums over its rows: 1x128 becomes 128x1."""
        return Granularity(self.columns, self.rows, self.power_of_two)


GRANULARITIES = {
    "tensor": Granularity(None, None),
    "row": Granularity(1, None),
    "1x128": Granularity(1, 128),
    "128x128": Granularity(128, 128),
    "mx32": Granularity(1, 32, power_of_two=True),
}
"""By name. A row is a token of an activation, and an output of a weight. The products sum along the columns."""


@dataclass(frozen=True)
class Scaled:
    """A matrix (R, C) as codes and scales.

    codes   (R, C), a float8 type; or bfloat16, which has the range of float32 and scales of 1
    scales  float32 (tiles of rows, tiles of columns); a value is code x scale
    """

    codes: Tensor
    scales: Tensor
    granularity: Granularity

    def values(self) -> Tensor:
        """The matrix again: float32 (R, C)."""
        tiles = _tiles(_float32(self.codes), self.granularity)
        return _matrix(tiles * self.scales[:, None, :, None], self.codes.shape)


def granularity(name: str) -> Granularity:
    """The row of `GRANULARITIES`; raises UnknownName."""
    if name not in GRANULARITIES:
        raise UnknownName("granularity", name, GRANULARITIES)
    return GRANULARITIES[name]


def largest(dtype: torch.dtype) -> float:
    """The largest finite number of a type.

    >>> largest(torch.float8_e4m3fn), largest(torch.float8_e4m3fnuz), largest(torch.float8_e5m2)
    (448.0, 240.0, 57344.0)
    """
    return torch.finfo(dtype).max


def tile_amax(x: Tensor, tile: Granularity) -> Tensor:
    """Largest |x| of each tile, float32 (tiles of rows, tiles of columns); tiles at the ends may be short.

    >>> tile_amax(torch.tensor([[1.0, -2.0, 3.0]]), Granularity(1, 2))
    tensor([[2., 3.]])
    """
    return _tiles(x.float().abs(), tile).amax(dim=(1, 3))


def scales_for(amax: Tensor, dtype: torch.dtype, *, power_of_two: bool = False) -> Tensor:
    """The scale that brings each amax to the largest number of `dtype` (see Granularity for powers of two); float32.

    A tile of zeros has the scale 1. An amax that is no finite number gives a scale that makes its whole tile NaN.

    >>> scales_for(torch.tensor([448.0, 0.0, 3.0]), torch.float8_e4m3fn, power_of_two=True)
    tensor([1.0000, 1.0000, 0.0078])
    """
    if dtype == torch.bfloat16:
        return torch.ones_like(amax)
    if not power_of_two:
        scale = amax / largest(dtype)
    else:
        exponent = torch.frexp(amax)[1] - torch.frexp(torch.tensor(largest(dtype)))[1].item()
        scale = torch.ldexp(torch.ones_like(amax), exponent.clamp(_LOWEST, _HIGHEST))
        scale = torch.where(amax.isfinite(), scale, torch.nan)
    # Of a tiny amax the quotient may underflow to 0 as well: 0 / 0 would be NaN.
    return scale.masked_fill((scale == 0) | (amax == 0), 1.0)


def quantised(
    x: Tensor, tile: Granularity, dtype: torch.dtype, scales: Tensor | None = None, *, saturate: bool = True
) -> Scaled:
    """A matrix (R, C) of any float type as codes of `dtype` with the given scales, or with those of its own tiles.

    saturate: what lies beyond the largest number of the type becomes that number. Without, it becomes what torch's cast
    makes of it: measured with torch 2.13 NaN in E4M3FNUZ, infinity in E5M2, and the largest number in E4M3FN.

    >>> q = quantised(torch.tensor([[1.0, 100.0]]), GRANULARITIES["tensor"], torch.float8_e4m3fn)
    >>> q.codes.float(), q.values()
    (tensor([[  4.5000, 448.0000]]), tensor([[  1.0045, 100.0000]]))
    """
    if scales is None:
        scales = scales_for(tile_amax(x, tile), dtype, power_of_two=tile.power_of_two)
    if dtype == torch.bfloat16:
        return Scaled(x.to(dtype), scales, tile)
    parts = _matrix(_tiles(x.float(), tile) / scales[:, None, :, None], x.shape)
    if saturate:
        parts = parts.clamp_(-largest(dtype), largest(dtype))
    return Scaled(parts.to(dtype), scales, tile)


def beyond(x: Tensor, q: Scaled) -> Tensor:
    """How many elements of x (R, C) lie beyond the largest number that the scales of q can hold; () int64."""
    edges = q.scales * (largest(q.codes.dtype) * _ROUNDING)
    return (_tiles(x.abs(), q.granularity) > edges[:, None, :, None]).count_nonzero()


def _tiles(x: Tensor, tile: Granularity) -> Tensor:
    """(R, C) -> (tiles of rows, rows, tiles of columns, columns), with zeros where the last tiles are short."""
    rows, columns = tile.rows or x.shape[0], tile.columns or x.shape[1]
    below, right = -x.shape[0] % rows, -x.shape[1] % columns
    if below or right:
        x = F.pad(x, (0, right, 0, below))
    return x.reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns)


def _matrix(tiles: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of `_tiles`: the zeros at the ends go away again."""
    return tiles.flatten(2).flatten(0, 1)[: shape[0], : shape[1]]


def _float32(codes: Tensor) -> Tensor:
    if codes.dtype == torch.bfloat16:
        return codes.float()
    # The same numbers as codes.float(), which takes five times as long on a CPU.
    flat = codes.contiguous().view(torch.uint8).flatten().int()
    return _table(codes.dtype, codes.device).index_select(0, flat).view(codes.shape)


@cache
def _table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The values of the 256 codes of a float8 type."""
    return torch.arange(256, dtype=torch.uint8).view(dtype).float().to(device)
