"""What is lost of a matrix for each way to share scales, and the bits that the way takes."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_utils.errors import UnknownName
from gpu_utils.formats import BLOCK_FORMATS, FORMATS
from gpu_utils.model.fp8_scaling import GRANULARITIES, tile_amax

_GROUPS = {
    "per tensor": ("e4m3fn", "tensor"),
    "per row": ("e4m3fn", "row"),
    "1 x 128": ("e4m3fn", "1x128"),
    "128 x 128": ("e4m3fn", "128x128"),
    "E2M1, 1 x 128": ("e2m1", "1x128"),
    "E2M1, per row": ("e2m1", "row"),
}
"""Ways with scales in float32 -> format of the elements, granularity."""

WAYS = (*_GROUPS, *BLOCK_FORMATS)


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
    for way, (element, name) in _GROUPS.items():
        tile = GRANULARITIES[name]
        down, across = -(-rows // (tile.rows or rows)), -(-columns // (tile.columns or columns))
        found[way] = FORMATS[element].bits + 32 * down * across / (rows * columns)
    return found | {name: of.bits_per_value for name, of in BLOCK_FORMATS.items()}


def _rounded(x: Tensor, way: str) -> Tensor:
    if way in BLOCK_FORMATS:
        return torch.from_numpy(BLOCK_FORMATS[way].rounded(x.numpy()))
    if way not in _GROUPS:
        raise UnknownName("way to scale", way, WAYS)
    element, name = FORMATS[_GROUPS[way][0]], _GROUPS[way][1]
    tile = GRANULARITIES[name]
    scales = tile_amax(x, tile) / element.largest
    scales = scales.masked_fill(scales == 0, 1.0).double()
    for dimension, size in enumerate((tile.rows, tile.columns)):  # one scale for each element
        scales = scales.repeat_interleave(size or x.shape[dimension], dimension)
    scales = scales[: x.shape[0], : x.shape[1]]
    return torch.from_numpy(element.rounded((x / scales).numpy())) * scales
