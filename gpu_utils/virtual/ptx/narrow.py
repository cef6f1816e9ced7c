"""Floats of 8, 6 and 4 bits that matrix instructions take, as tables from code to float32, and the scales of blocks.

A format is (exponent bits, mantissa bits, bias). E2M3, E3M2 and E2M1 have neither infinity nor NaN (OCP Microscaling
Formats specification 1.0). A scale is UE8M0, a power of two, or UE4M3, the E4M3 number without its sign.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.virtual.ptx.cvt import FP8

F32, F64 = np.float32, np.float64
_FINITE = {"e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e2m1": (2, 1, 1)}
BITS = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}
"""Format -> bits of one element."""


def _table(exponent_bits: int, mantissa_bits: int, bias: int) -> np.ndarray:
    """float32 of every code of a format without infinity and NaN, in the order of the codes."""
    code = np.arange(1 << (1 + exponent_bits + mantissa_bits))
    size = code & (len(code) // 2 - 1)
    exponent, mantissa = size >> mantissa_bits, size & ((1 << mantissa_bits) - 1)
    digits = mantissa + ((exponent > 0) << mantissa_bits)
    value = np.ldexp(digits.astype(F64), np.maximum(exponent, 1) - bias - mantissa_bits)
    return np.where(code == size, value, -value).astype(F32)


TABLES = {kind: FP8[kind].astype(F32) for kind in FP8} | {kind: _table(*row) for kind, row in _FINITE.items()}
"""Format -> float32 by code."""

_powers = np.ldexp(1.0, np.arange(256) - 127)
_powers[255] = np.nan
SCALES = {"ue8m0": _powers, "ue4m3": np.tile(FP8["e4m3"][:128].astype(F64), 2)}
"""Type of a scale -> float64 by byte."""


def in_containers(codes: np.ndarray, kind: str) -> np.ndarray:
    """float32 of elements that stand each in a byte: of 8 and 6 bits in its low bits, of 4 bits in bits 2 to 5.

    Where 4 bits stand is CUTLASS's word (mma_traits_sm120.hpp, "0b0000ABCD --> 0b00ABCD00").

    >>> in_containers(np.array([0x08, 0x28], np.uint8), "e2m1").tolist()
    [1.0, -1.0]
    """
    if kind == "e2m1":
        codes = codes >> np.uint8(2)
    return TABLES[kind].take(codes & np.uint8((1 << BITS[kind]) - 1))


def nibbles(raw: np.ndarray) -> np.ndarray:
    """Two codes of 4 bits from each byte, the low one first: (..., n) uint8 -> (..., 2 n)."""
    parts = np.empty((*raw.shape, 2), np.uint8)
    parts[..., 0], parts[..., 1] = raw & np.uint8(15), raw >> np.uint8(4)
    return parts.reshape(*raw.shape[:-1], -1)


def expand(raw: np.ndarray, bits: int) -> np.ndarray:
    """Codes of 4 or 6 bits, 16 of them at the start of each 16 bytes, as a byte each: uint8 (..., 16 n) both ways.

    The formats b4x16_p64 and b6x16_p32 of the PTX manual: 8 or 12 bytes of elements, then padding.

    >>> expand(np.array([[0x21, 0x43] + [0] * 14], np.uint8), 4)[0, :4].tolist()
    [1, 2, 3, 4]
    """
    groups = raw.reshape(*raw.shape[:-1], -1, 16)
    if bits == 4:
        codes = nibbles(groups[..., :8])
    else:
        a, b, c = (groups[..., i:12:3].astype(np.uint32) for i in range(3))
        word = a | b << np.uint32(8) | c << np.uint32(16)
        codes = np.stack([(word >> np.uint32(6 * i)) & np.uint32(63) for i in range(4)], axis=-1).astype(np.uint8)
    return codes.reshape(raw.shape)
