"""Blocks of narrow floats that share a scale: MXFP8, MXFP4 and NVFP4.

A block is some neighbours along the last axis. What is stored is a code for each element and one for each block's
scale; a value is element times scale, and in NVFP4 times one float32 for the whole tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpu_utils.formats.narrow import FORMATS, Codes, Format, Values


@dataclass(frozen=True)
class Blocks:
    """A quantised tensor.

    codes   uint8 (..., K), one element in each byte, not packed
    scales  uint8 (..., K / block, rounded up), codes of the scale's format
    tensor_scale  factor of the whole tensor; 1.0 in the MX formats
    """

    codes: Codes
    scales: Codes
    tensor_scale: float = 1.0


@dataclass(frozen=True)
class BlockFormat:
    """One format of blocks.

    element, scale  formats of the two
    block           elements that share a scale
    two_levels      whether the scales have a float32 of the whole tensor above them (NVFP4)

    >>> mxfp4 = BLOCK_FORMATS["MXFP4"]
    >>> mxfp4.bits_per_value, mxfp4.rounded([[0.1, 7.0]]).tolist()
    (4.25, [[0.0, 6.0]])
    """

    name: str
    element: Format
    scale: Format
    block: int
    two_levels: bool
    source: str

    @property
    def bits_per_value(self) -> float:
        return self.element.bits + self.scale.bits / self.block

    def encode(self, values: ArrayLike) -> Blocks:
        """Values (..., K) -> Blocks; elements to nearest even, what is beyond the largest becomes the largest.

        MX: the scale is 2^(floor(log2 amax) - e), where 2^e is the largest power of two that the element holds (section
        6.3 of the specification). So an amax between the element's largest number and 2^(e + 1), in units of the scale,
        saturates. A block of zeros has the smallest scale, one with NaN or infinity a NaN scale.
        NVFP4: the tensor's factor is its amax / (6 x 448), a block's scale its amax / 6, divided by that factor and
        rounded to E4M3.
        """
        given = np.asarray(values, np.float64)
        amax = self._amax(given)
        tensor_scale = 1.0
        if self.two_levels:
            top = float(amax.max(initial=0.0))
            tensor_scale = float(np.float32(top / (self.element.largest * self.scale.largest))) or 1.0
            scales = self.scale.encode(amax / self.element.largest / tensor_scale)
        else:
            scales = self._powers(amax)
        steps = np.repeat(self.scale.decode(scales) * tensor_scale, self.block, axis=-1)[..., : given.shape[-1]]
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.nan_to_num(given / steps, nan=0.0)
        return Blocks(self.element.encode(parts), scales, tensor_scale)

    def decode(self, blocks: Blocks) -> Values:
        """Blocks -> float64 values (..., K); a block whose scale is NaN is NaN."""
        steps = np.repeat(self.scale.decode(blocks.scales), self.block, axis=-1)[..., : blocks.codes.shape[-1]]
        return self.element.decode(blocks.codes) * steps * blocks.tensor_scale

    def rounded(self, values: ArrayLike) -> Values:
        """What is left of values that have been stored in the format."""
        return self.decode(self.encode(values))

    def _amax(self, given: Values) -> Values:
        """Largest size in each block, (..., blocks); the last block may be short."""
        short = -given.shape[-1] % self.block
        padded = np.pad(np.abs(given), [(0, 0)] * (given.ndim - 1) + [(0, short)])
        return padded.reshape(*given.shape[:-1], -1, self.block).max(axis=-1)

    def _powers(self, amax: Values) -> Codes:
        finite = np.isfinite(amax)
        exponent = np.frexp(np.where(finite, amax, 1.0))[1] - 1  # floor(log2): frexp's mantissa is 1/2 to 1
        power = np.where(amax > 0, exponent - int(np.frexp(self.element.largest)[1]) + 1, -self.scale.bias)
        codes: NDArray[np.int_] = np.clip(power + self.scale.bias, 0, len(self.scale.sizes) - 1)
        return np.where(finite, codes, len(self.scale.sizes)).astype(np.uint8)  # behind the largest stands NaN


_MX = "OCP Microscaling Formats (MX) Specification 1.0"
_NVFP4 = "Pretraining Large Language Models with NVFP4, arXiv 2509.25149"

_E8M0 = FORMATS["e8m0"]
_ROWS = (
    BlockFormat("MXFP8", FORMATS["e4m3fn"], _E8M0, 32, False, _MX),
    BlockFormat("MXFP4", FORMATS["e2m1"], _E8M0, 32, False, _MX),
    BlockFormat("NVFP4", FORMATS["e2m1"], FORMATS["e4m3fn"], 16, True, _NVFP4),
)
BLOCK_FORMATS: dict[str, BlockFormat] = {row.name: row for row in _ROWS}
"""The block formats of the course by name."""
