"""Floating-point helpers with one rounding, on NumPy arrays."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable

import numpy as np

from gpu_utils.virtual.halves import half_to_f32

_HALF_ULP = np.uint64(0x1000_0000)  # the tie of a float64 that goes to a normal float32
_LOW = np.uint64(0x1FFF_FFFF)
_HALF_OVERFLOW = np.float32(65520)
_LEAST_HALF = np.uint32(113 << 23)  # the exponent of 2^-14
_REBIAS_HALF = np.uint32(126 << 10)
_TINY = np.uint32(2 * 0x0080_0000 - 1)  # twice the bits of the least normal float32, less 1


def _odd_sum(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c of float64 or float32, rounded to odd, so that a second rounding to fewer bits is right."""
    s = p + c
    back = s - p
    error = (p - (s - back)) + (c - back)
    bits = s.view(f"i{s.dtype.itemsize}")
    fix = (error != 0) & ((bits & 1) == 0) & np.isfinite(s)
    toward = np.where((error > 0) == (s > 0), bits.dtype.type(1), bits.dtype.type(-1))
    return np.where(fix, bits + toward, bits).view(s.dtype)


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 a * b + c with one rounding.

    >>> a = np.array([1 + 2**-12], np.float32); float(fma32(a, a, np.array([-1.0], np.float32))[0])
    0.0004883408546447754
    """
    first, second = (b, a) if a.size < b.size else (a, b)
    s = first.astype(np.float64)
    if s.size < c.size or s.size < second.size:
        s = s * second + c
    else:
        s *= second
        s += c
    result = s.astype(np.float32)
    # A float64 half way between two float32, or one that becomes a denormal, may be rounded already; not so a sum that
    # becomes zero: it is exact.
    bits = s.view(np.uint64)
    bits &= _LOW
    suspect = bits == _HALF_ULP
    twice = result.view(np.uint32) << np.uint32(1)
    twice -= np.uint32(1)
    if twice.min(initial=_TINY + np.uint32(1)) <= _TINY:
        suspect |= twice <= _TINY
    if np.count_nonzero(suspect):
        a, b, c = (np.broadcast_to(x, s.shape)[suspect].astype(np.float64) for x in (a, b, c))
        result[suspect] = _odd_sum(a * b, c)
    return result


def fma16(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float16 a * b + c with one rounding: float32 holds a product."""
    first, second, third = (half_to_f32(x.view(np.uint16)) for x in (a, b, c))
    return f32_to_half(_odd_sum(first * second, third))


def on_halves(function: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A sum, difference or product of float16, as NumPy rounds it: float32 has room for a second rounding."""
    return lambda a, b: f32_to_half(function(half_to_f32(a.view(np.uint16)), half_to_f32(b.view(np.uint16))))


_libm = ctypes.CDLL(ctypes.util.find_library("m") or None)
_libm.fma.restype = ctypes.c_double
_libm.fma.argtypes = [ctypes.c_double] * 3


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a * b and what its rounding left out."""
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    error = ah * bh
    error -= p
    error += ah * bl
    error += al * bh
    error += al * bl
    return p, error


def _split(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The upper and the lower half of the digits of a float64."""
    moved = a * 134217729.0
    high = moved - a
    np.subtract(moved, high, out=high)
    return high, a - high


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float64 a * b + c with one rounding."""
    a, b, c = np.broadcast_arrays(a, b, c)
    p, e = _two_product(a, b)
    s = p + c
    back = s - p
    t = s - back
    np.subtract(p, t, out=t)
    np.subtract(c, back, out=back)
    t += back
    result = s + _odd_sum(e, t)
    size = np.abs(p)
    nothing = (a == 0) | (b == 0)
    if np.count_nonzero(nothing):
        result = np.where(nothing, p + c, result)
    unsafe = ~(((size > 1e-250) | nothing) & (size < 1e290))
    unsafe |= ~((np.abs(a) < 1e290) & (np.abs(b) < 1e290) & (np.abs(c) < 1e290))
    unsafe |= (np.abs(result) < 1e-250) & (result != 0)
    if np.count_nonzero(unsafe):
        result = np.array(result)
        result[unsafe] = _fused(a[unsafe], b[unsafe], c[unsafe])
    return result


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """`fma64` of a few numbers (n,), near the ends of the range or beyond it."""
    result = a * b + c
    for at in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        result[at] = _libm.fma(a[at], b[at], c[at])
    return result


def max_zero(function: np.ufunc, bits: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """fmax or fmin in which +0 is larger than -0; `bits` combines the bits of two zeros (and for max, or for min)."""

    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = function(a, b)
        if not np.count_nonzero(result == 0):
            return result
        word = np.dtype(f"u{result.dtype.itemsize}")
        first, second = np.ascontiguousarray(a).view(word), np.ascontiguousarray(b).view(word)
        unlike = (a == b) & (first != second)  # zeros of both signs
        if np.count_nonzero(unlike):
            result = np.where(unlike, bits(first, second).view(result.dtype), result)
        return result

    return apply


fmax, fmin = max_zero(np.fmax, np.bitwise_and), max_zero(np.fmin, np.bitwise_or)


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IEEE 754-2019 maximum: a NaN wins, +0 is larger than -0."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, fmax(a, b))


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IEEE 754-2019 minimum."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, fmin(a, b))


def median3(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Middle of three; with a NaN the smallest of the others."""
    if a.dtype.kind != "f":
        return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    top = fmax(fmax(a, b), c)
    middle = np.where(top == a, fmax(b, c), np.where(top == b, fmax(a, c), fmax(a, b)))
    bad = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(bad, fmin(fmin(a, b), c), middle) if bad.any() else middle


def to_int(value: np.ndarray, dtype: type) -> np.ndarray:
    """Truncating conversion that saturates and sends NaN to 0."""
    limits = np.iinfo(dtype)
    wide = np.trunc(value.astype(np.float64))
    with np.errstate(invalid="ignore"):
        result = np.clip(np.nan_to_num(wide, nan=0.0, posinf=limits.max, neginf=limits.min), limits.min, limits.max)
        if limits.bits == 64:
            high = wide >= float(limits.max)
            return np.where(high, limits.max, np.where(high, 0, result).astype(dtype))
        return result.astype(dtype)


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """uint16 (or wider) bit patterns of bfloat16 -> float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_half(value: np.ndarray) -> np.ndarray:
    """float32 -> float16 as `astype` does, several times faster.

    The sum with a power of two that has its last digit where the float16 has it rounds; the digits are below that.
    """
    size = np.abs(value)
    if not size.size or not size.max() < _HALF_OVERFLOW:  # also for NaN
        return value.astype(np.float16)
    bits = size.view(np.uint32)
    digit = bits & np.uint32(0x7F80_0000)
    np.maximum(digit, _LEAST_HALF, out=digit)
    digit += np.uint32(13 << 23)
    size += digit.view(np.float32)
    bits &= np.uint32(0x007F_FFFF)  # the digits, with the leading one of a normal number in bit 10
    digit >>= np.uint32(13)
    bits += digit
    bits -= _REBIAS_HALF
    word = (value.view(np.uint32) >> np.uint32(16)) & np.uint32(0x8000)
    word |= bits
    return word.astype(np.uint16).view(np.float16)


def f32_to_bf16(value: np.ndarray) -> np.ndarray:
    """float32 -> uint32 holding bfloat16 bits, round to nearest even, NaN kept quiet."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), bits >> np.uint32(16) | np.uint32(0x40), rounded)
