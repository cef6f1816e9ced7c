"""Float arithmetic with one rounding, in NumPy: fused multiply-add, bfloat16, directed modes, flushing.

The tool is *round to odd*: a float64 sum whose last bit records that something was lost can be rounded once more,
to any format at least two bits shorter, as if the exact sum had been (S. Boldo and G. Melquiond, "Emulation of FMA
and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers, 2008).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

F16, F32, F64 = np.float16, np.float32, np.float64
U16, U32, U64 = np.uint16, np.uint32, np.uint64
TINY = {dtype().dtype.char: np.finfo(dtype).tiny for dtype in (F16, F32, F64)}
_SPLIT = float((1 << 27) + 1)


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(s, e) with s = a + b rounded and s + e = a + b exactly; float64."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def to_odd(s: np.ndarray, e: np.ndarray) -> np.ndarray:
    """The float64 `s` with its last bit set when the error `e` is not zero: s + e rounded to odd."""
    bits = np.array(s, F64, ndmin=1).view(np.int64)
    move = (e != 0) & np.isfinite(s) & (e == e) & ((bits & 1) == 0)
    bits = bits + np.where(move, np.where((e > 0) == (s > 0), 1, -1), 0)
    # a sum of exactly zero has no error, so `bits` never steps below zero
    return bits.view(F64).reshape(np.shape(s))


def sum_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float64, rounded to odd."""
    return to_odd(*two_sum(a, b))


def f64_to_f32(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float64 (exact or rounded to odd) to float32: rn, rz, rm (down) or rp (up)."""
    near = x.astype(F32)
    if mode == "rn":
        return near
    wide = near.astype(F64)
    down = {"rz": np.signbit(x) == 0, "rm": np.ones(x.shape, bool), "rp": np.zeros(x.shape, bool)}[mode]
    low = np.nextafter(near, F32(-np.inf))
    high = np.nextafter(near, F32(np.inf))
    picked = np.where(down & (wide > x), low, np.where(~down & (wide < x), high, near))
    picked = np.where(np.isfinite(x) | np.isnan(x), picked, near)
    return np.where(picked == 0, np.copysign(F32(0), x), picked).astype(F32)


def f32_to_bf16(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float32 to the 16 bits of a bfloat16: rn (ties to even), rz, rm or rp. A NaN becomes 0x7FFF.

    >>> [hex(v) for v in f32_to_bf16(np.array([1.0, 1.00390625, float("nan")], np.float32))]
    ['0x3f80', '0x3f80', '0x7fff']
    """
    bits = np.ascontiguousarray(x, F32).view(U32)
    if mode == "rn":
        out = bits + (((bits >> U32(16)) & U32(1)) + U32(0x7FFF))
    elif mode == "rz":
        out = bits
    else:
        away = (bits >> U32(31) == 0) == (mode == "rp")
        out = np.where(away & np.isfinite(x), bits + U32(0xFFFF), bits)
    out = (out >> U32(16)).astype(U16)
    nan = np.isnan(x)
    if np.count_nonzero(nan):
        out = np.where(nan, U16(0x7FFF), out)
    return out.reshape(np.shape(x))


def bf16_to_f32(x: np.ndarray) -> np.ndarray:
    """The bits of bfloat16 values as float32; exact."""
    return (x.astype(U32) << U32(16)).view(F32)


def f64_to_bf16(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float64 (exact or rounded to odd) to bfloat16 bits with one rounding."""
    near = np.asarray(x.astype(F32))
    err = x - near.astype(F64)
    bits = near.reshape(-1).view(np.int32).reshape(near.shape)
    odd = (err != 0) & np.isfinite(near) & ((bits & 1) == 0)
    step = np.where(near == 0, 1, np.where((err > 0) == (near > 0), 1, -1))
    bits = np.where(odd, bits + step.astype(np.int32), bits).astype(np.int32)
    sign = np.signbit(x) & (near == 0)
    bits = np.where(sign, bits | np.int32(-(2**31)), bits).astype(np.int32)
    # an overflow to infinity is an overflow in bfloat16 too, except for the directed modes
    odd32 = bits.view(F32)
    if mode != "rn":
        big = np.isinf(near) & np.isfinite(x)
        odd32 = np.where(big, np.copysign(np.finfo(F32).max, x), odd32).astype(F32)
    return f32_to_bf16(odd32, mode)


def f64_to_f16(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float64 (exact or rounded to odd) to float16 with one rounding; modes as in f64_to_f32."""
    near = x.astype(F16)
    if mode == "rn":
        return near
    wide = near.astype(F64)
    down = {"rz": np.signbit(x) == 0, "rm": np.ones(x.shape, bool), "rp": np.zeros(x.shape, bool)}[mode]
    low, high = np.nextafter(near, F16(-np.inf)), np.nextafter(near, F16(np.inf))
    picked = np.where(down & (wide > x), low, np.where(~down & (wide < x), high, near))
    picked = np.where(np.isfinite(x) | np.isnan(x), picked, near)
    return np.where(picked == 0, np.copysign(F16(0), x.astype(F32)), picked).astype(F16)


def fma_odd(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of values with at most 24 significant bits, in float64 rounded to odd."""
    return sum_to_odd(a.astype(F64) * b.astype(F64), c.astype(F64))


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    """float32 fused multiply-add, rounded once to nearest even."""
    total = np.empty(out.shape, F64)
    np.multiply(a, b, total, dtype=F64)
    np.add(total, c, total)
    # A second rounding can differ only when float64 stands on the middle of two float32, or below their normal range.
    doubt = (total.view(U64) << U64(35)) == U64(1 << 63)
    tiny = np.abs(total) < 1.2e-38
    if np.count_nonzero(tiny):
        np.logical_and(tiny, total, tiny)
        doubt |= tiny
    if np.count_nonzero(doubt):
        a, b, c = (np.broadcast_to(x, out.shape)[doubt].astype(F64) for x in (a, b, c))
        total[doubt] = sum_to_odd(a * b, c)
    np.copyto(out, total, casting="same_kind")


def _exact_fma64(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if a == 0 or b == 0 or c == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    """float64 fused multiply-add, rounded once to nearest even."""
    a, b, c = (np.broadcast_to(x, out.shape) for x in (a, b, c))
    high = a * b
    big, other = a * _SPLIT, b * _SPLIT
    a1 = big - (big - a)
    b1 = other - (other - b)
    a2, b2 = a - a1, b - b1
    low = ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2
    th, tl = two_sum(c, low)
    vh, vl = two_sum(high, th)
    result = vh + to_odd(*two_sum(tl, vl))
    nothing = (a == 0) | (b == 0)
    if nothing.any():
        result = np.where(nothing, high + c, result)
    safe = [(np.abs(x) < 1e140) & ((np.abs(x) > 1e-140) | (x == 0)) for x in (a, b, c)]
    odd = ~(safe[0] & safe[1] & safe[2])
    if odd.any():
        for at in zip(*np.nonzero(odd), strict=True):
            result[at] = _exact_fma64(float(a[at]), float(b[at]), float(c[at]))
    out[...] = result


def flush(x: np.ndarray) -> np.ndarray:
    """Floats with subnormal values replaced by zero of their sign."""
    tiny = np.abs(x) < TINY[x.dtype.char]
    if np.count_nonzero(tiny):
        tiny = np.logical_and(tiny, x)
        if np.count_nonzero(tiny):
            return np.where(tiny, np.copysign(x.dtype.type(0), x), x)
    return x


def saturate(x: np.ndarray) -> np.ndarray:
    """Clamped to 0..1; NaN and -0 become +0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))
