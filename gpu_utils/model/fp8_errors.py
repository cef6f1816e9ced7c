"""What is lost of a matrix for each way to share scales, and the bits that the way takes."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_utils.errors import UnknownName
from gpu_utils.formats import BLOCK_FORMATS
from gpu_utils.model.fp8_scaling import GRANULARITIES, quantised

_E4M3 = {"per tensor": "tensor", "per row": "row", "1 x 128": "1x128", "128 x 128": "128x128"}
"""Ways with E4M3 elements and scales in float32 -> their granularity."""

WAYS = (*_E4M3, *BLOCK_FORMATS)


def relative_errors(x: Tensor, *ways: str) -> dict[str, Tensor]:
    """|rounded - x| / |x| of each element for each way, float64 of the shape of x; NaN where x is 0.

    x     (rows, columns), any float type; a product sums along the columns
    ways  names in WAYS, none: all; UnknownName for another

    >>> found = relative_errors(torch.tensor([[1.0, 1000.0]]), "per tensor", "MXFP4")
    >>> [round(float(each[0, 0]), 3) for each in found.values()]
    [0.023, 1.0]
    """
    exact = x.double()
    return {way: (_rounded(exact, way) - exact).abs() / exact.abs() for way in ways or WAYS}


def bits_per_value(rows: int, columns: int) -> dict[str, float]:
    """Way -> bits that an element takes in a matrix of this shape, its share of the scales included.

    >>> round(bits_per_value(512, 512)["1 x 128"], 3), bits_per_value(512, 512)["NVFP4"]
    (8.25, 4.5)
    """
    found = {}
    for way, name in _E4M3.items():
        tile = GRANULARITIES[name]
        down, across = -(-rows // (tile.rows or rows)), -(-columns // (tile.columns or columns))
        found[way] = 8 + 32 * down * across / (rows * columns)
    return found | {name: of.bits_per_value for name, of in BLOCK_FORMATS.items()}


def _rounded(x: Tensor, way: str) -> Tensor:
    if way in BLOCK_FORMATS:
        return torch.from_numpy(BLOCK_FORMATS[way].rounded(x.numpy()))
    if way not in _E4M3:
        raise UnknownName("way to scale", way, WAYS)
    return quantised(x, GRANULARITIES[_E4M3[way]], torch.float8_e4m3fn).values().double()
