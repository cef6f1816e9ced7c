"""Floating-point helpers with one rounding, on NumPy arrays."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable

import numpy as np

_HALF_ULP = np.uint64(0x1000_0000)  # the tie of a float64 that goes to a normal float32
_LOW = np.uint64(0x1FFF_FFFF)
_TINY = np.float64(2.0**-125)


def _odd_sum(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c in float64, rounded to odd, so that a second rounding to fewer bits is right."""
    s = p + c
    back = s - p
    error = (p - (s - back)) + (c - back)
    bits = s.view(np.int64)
    fix = (error != 0) & ((bits & 1) == 0) & np.isfinite(s)
    toward = np.where((error > 0) == (s > 0), 1, -1)
    return np.where(fix, bits + toward, bits).view(np.float64)


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 a * b + c with one rounding.

    >>> a = np.array([1 + 2**-12], np.float32); float(fma32(a, a, np.array([-1.0], np.float32))[0])
    0.0004883408546447754
    """
    wide = a.astype(np.float64) * b
    s = wide + c
    suspect = (s.view(np.uint64) & _LOW) == _HALF_ULP
    suspect |= (np.abs(s) < _TINY) & (s != 0)  # a sum of zero is exact
    if np.count_nonzero(suspect):
        wide, c = np.broadcast_to(wide, s.shape)[suspect], np.broadcast_to(c, s.shape)[suspect]
        s[suspect] = _odd_sum(wide, c.astype(np.float64))
    return s.astype(np.float32)


def fma16(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float16 a * b + c with one rounding."""
    wide = a.astype(np.float64) * b.astype(np.float64)
    wide, c = np.broadcast_arrays(wide, c.astype(np.float64))
    return _odd_sum(wide, c).astype(np.float16)


_libm = ctypes.CDLL(ctypes.util.find_library("m") or None)
_libm.fma.restype = ctypes.c_double
_libm.fma.argtypes = [ctypes.c_double] * 3


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = a * b
    split = 134217729.0
    ah = a * split - (a * split - a)
    bh = b * split - (b * split - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float64 a * b + c with one rounding."""
    a, b, c = np.broadcast_arrays(a, b, c)
    p, e = _two_product(a, b)
    s = p + c
    back = s - p
    t = (p - (s - back)) + (c - back)
    result = s + _odd_sum(e, t)
    size = np.abs(p)
    nothing = (a == 0) | (b == 0)
    if np.count_nonzero(nothing):
        result = np.where(nothing, p + c, result)
    unsafe = ~(((size > 1e-250) | nothing) & (size < 1e290))
    unsafe |= ~((np.abs(a) < 1e290) & (np.abs(b) < 1e290) & (np.abs(c) < 1e290))
    unsafe |= (np.abs(result) < 1e-250) & (result != 0)
    if unsafe.any():
        result = np.array(result)
        for at in map(tuple, np.argwhere(unsafe)):
            result[at] = _libm.fma(a[at], b[at], c[at])
    return result


def max_zero(function: np.ufunc, bits: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """fmax or fmin in which +0 is larger than -0; `bits` combines the bits of two zeros (and for max, or for min)."""

    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = function(a, b)
        if not np.count_nonzero(result == 0):
            return result
        zero = (a == 0) & (b == 0)
        if np.count_nonzero(zero):
            word = np.dtype(f"u{result.dtype.itemsize}")
            both = bits(np.ascontiguousarray(a).view(word), np.ascontiguousarray(b).view(word)).view(result.dtype)
            result = np.where(zero, both, result)
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


def f32_to_bf16(value: np.ndarray) -> np.ndarray:
    """float32 -> uint32 holding bfloat16 bits, round to nearest even, NaN kept quiet."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), bits >> np.uint32(16) | np.uint32(0x40), rounded)
