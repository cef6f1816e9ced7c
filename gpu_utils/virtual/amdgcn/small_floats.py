"""Floats of 8, 6 and 4 bits of the OCP microscaling formats (MX), as gfx950 has them: their values, rounding, packing.

The names are AMD's: fp8 is E4M3, bf8 E5M2, fp6 E2M3, bf6 E3M2, fp4 E2M1. Those of 6 and 4 bits have neither infinity
nor NaN: what is too large, infinite or NaN becomes the largest value. Source: OCP Microscaling Formats (MX)
specification 1.0; for rounding the manual of CDNA 4 and ROCm's emulation on the host (amd_hip_ocp_host.hpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpu_utils.virtual.amdgcn.fp8 import decode_table


@dataclass(frozen=True)
class SmallFloat:
    """A format: bits in all, of the exponent and of the mantissa.

    largest: code of the largest finite value. nan, overflow: codes that NaN and what is too large become, without the
    sign; with FP16_OVFL set what is too large becomes the largest value.
    """

    bits: int
    exponent: int
    mantissa: int
    largest: int
    nan: int
    overflow: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @cached_property
    def values(self) -> np.ndarray:
        """float32 value of each code."""
        if self.bits == 8:
            return decode_table(False, self.exponent)
        code = np.arange(1 << self.bits)
        size = code & ((1 << (self.bits - 1)) - 1)
        power, digits = np.maximum(size >> self.mantissa, 1), size & ((1 << self.mantissa) - 1)
        lead = (size >> self.mantissa > 0) << self.mantissa
        value = np.ldexp((digits + lead).astype(np.float32), power - self.bias - self.mantissa)
        return np.where(code > size, -value, value)

    def encode(
        self, value: np.ndarray, saturate: bool, noise: np.ndarray | None = None, noise_bits: int = 0
    ) -> np.ndarray:
        """float64 values -> codes (uint32), rounded to nearest even, or stochastically with `noise`.

        noise: uint32; the highest `noise_bits` of it are added below the last digit that is kept, then the rest is cut.
        """
        size = np.abs(value)
        finite = np.isfinite(value)
        size = np.where(finite, size, 0)
        smallest = 1 - self.bias
        exponent = np.where(size > 0, np.maximum(np.frexp(size)[1].astype(np.int64) - 1, smallest), smallest)
        digits = np.ldexp(size, self.mantissa - exponent)
        if noise is None:
            digits = np.rint(digits)
        else:
            kept = np.floor(digits)
            rest = np.floor(np.ldexp(digits - kept, noise_bits))
            digits = kept + (rest + (noise >> np.uint32(32 - noise_bits)) >= 2.0**noise_bits)
        code = ((exponent + self.bias - 1) << self.mantissa) + digits.astype(np.int64)
        code = np.where((code > self.largest) | ~finite, self.largest if saturate else self.overflow, code)
        code = np.where(np.isnan(value), self.nan, code)
        return (code | np.signbit(value).astype(np.int64) << (self.bits - 1)).astype(np.uint32)


FORMATS = {
    "fp8": SmallFloat(8, 4, 3, 0x7E, nan=0x7F, overflow=0x7F),
    "bf8": SmallFloat(8, 5, 2, 0x7B, nan=0x7F, overflow=0x7C),
    "fp6": SmallFloat(6, 2, 3, 0x1F, nan=0x1F, overflow=0x1F),
    "bf6": SmallFloat(6, 3, 2, 0x1F, nan=0x1F, overflow=0x1F),
    "fp4": SmallFloat(4, 2, 1, 0x07, nan=0x07, overflow=0x07),
}


def power(scale: np.ndarray) -> np.ndarray:
    """E8M0 scales as float64: 2 to the power of the code less 127; NaN for 255."""
    exponent = scale.astype(np.int32) - 127
    return np.where(exponent == 128, np.nan, np.ldexp(1.0, exponent))


def unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """Registers uint32 (count, waves, lanes) -> codes uint8 (waves, lanes, elements), the lowest bits first."""
    raw = np.ascontiguousarray(words.transpose(1, 2, 0)).view(np.uint8)
    if bits == 8:
        return raw
    if bits == 4:
        return np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:2], -1)
    three = raw.reshape(*raw.shape[:2], -1, 3).astype(np.uint32)
    group = three[..., 0] | three[..., 1] << np.uint32(8) | three[..., 2] << np.uint32(16)
    codes = group[..., None] >> np.array([0, 6, 12, 18], np.uint32) & np.uint32(63)
    return codes.astype(np.uint8).reshape(*raw.shape[:2], -1)


def pack6(codes: np.ndarray) -> np.ndarray:
    """32 codes of 6 bits (32, waves, lanes) -> six registers uint32 (6, waves, lanes)."""
    wide = codes.astype(np.uint64)
    registers = np.zeros((6, *codes.shape[1:]), np.uint32)
    for i, code in enumerate(wide):
        at, shift = divmod(6 * i, 32)
        moved = code << np.uint64(shift)
        registers[at] |= moved.astype(np.uint32)
        if shift > 26:
            registers[at + 1] |= (moved >> np.uint64(32)).astype(np.uint32)
    return registers
