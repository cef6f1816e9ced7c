"""Float formats in exact arithmetic: Python ints and fractions only, no NumPy. The reference of the tests."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

# name -> (exponent bits, mantissa bits, has infinity)
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 10)}
NAN, INF = "nan", "inf"


def bits_of(name: str) -> int:
    return sum(FORMATS[name]) + 1


@lru_cache(maxsize=1 << 16)
def unpack(bits: int, name: str):
    """(sign, Fraction | "inf" | "nan")."""
    exponent_bits, mantissa_bits = FORMATS[name]
    bias = (1 << (exponent_bits - 1)) - 1
    sign = bits >> (exponent_bits + mantissa_bits) & 1
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return sign, (NAN if mantissa else INF)
    if exponent == 0:
        value = Fraction(mantissa) * Fraction(2) ** (1 - bias - mantissa_bits)
    else:
        value = Fraction(mantissa + (1 << mantissa_bits)) * Fraction(2) ** (exponent - bias - mantissa_bits)
    return sign, -value if sign else value


def round_integer(value: Fraction, mode: str) -> int:
    """A Fraction to an integer: rn (ties to even), rna (ties away), rz, rm, rp."""
    low = math.floor(value)
    rest = value - low
    if rest == 0:
        return low
    if mode == "rm":
        return low
    if mode == "rp":
        return low + 1
    if mode == "rz":
        return low if value > 0 else low + 1
    if rest == Fraction(1, 2):
        if mode == "rna":
            return low + 1 if value > 0 else low
        return low + (low & 1)
    return low + (rest > Fraction(1, 2))


def pack(value, name: str, mode: str = "rn", sign: int = 0) -> int:
    """The bits of a Fraction (or "inf", "nan") in a format, rounded once. `sign` is that of a zero or infinity."""
    exponent_bits, mantissa_bits = FORMATS[name]
    top = (1 << exponent_bits) - 1
    bias = (1 << (exponent_bits - 1)) - 1
    if value == NAN:
        return top << mantissa_bits | 1 << (mantissa_bits - 1)
    if value == INF:
        return sign << (exponent_bits + mantissa_bits) | top << mantissa_bits
    if value == 0:
        return sign << (exponent_bits + mantissa_bits)
    sign = int(value < 0)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    scale = Fraction(2) ** (exponent - mantissa_bits)
    inward = {"rm": "rz" if not sign else "rp", "rp": "rp" if not sign else "rz"}.get(mode, mode)
    units = round_integer(size / scale, inward)
    if units >= 1 << (mantissa_bits + 1):
        units >>= 1
        exponent += 1
    if exponent > bias:
        overflows = mode in ("rn", "rna") or (mode == "rp" and not sign) or (mode == "rm" and sign)
        code = top << mantissa_bits if overflows else (top << mantissa_bits) - 1
    elif units < 1 << mantissa_bits:
        code = units
    else:
        code = (exponent + bias) << mantissa_bits | (units - (1 << mantissa_bits))
    return sign << (exponent_bits + mantissa_bits) | code


def is_nan(bits: int, name: str) -> bool:
    return unpack(bits, name)[1] == NAN


def flush(bits: int, name: str) -> int:
    """A subnormal becomes a zero of its sign."""
    exponent_bits, mantissa_bits = FORMATS[name]
    if bits >> mantissa_bits & ((1 << exponent_bits) - 1):
        return bits
    return bits & 1 << (exponent_bits + mantissa_bits)


def _sum_sign(signs: list[int], mode: str) -> int:
    """The sign of an exact zero that a sum of terms with these signs gives."""
    if all(signs):
        return 1
    if not any(signs):
        return 0
    return int(mode == "rm")


def add(a: int, b: int, name: str, mode: str = "rn", negate: bool = False) -> int:
    (sa, x), (sb, y) = unpack(a, name), unpack(b, name)
    if negate:
        sb, y = 1 - sb, (y if isinstance(y, str) else -y)
    return _add(sa, x, sb, y, name, mode)


def _add(sa, x, sb, y, name, mode) -> int:
    if NAN in (x, y) or (x == INF and y == INF and sa != sb):
        return pack(NAN, name)
    if x == INF or y == INF:
        return pack(INF, name, sign=sa if x == INF else sb)
    return pack(x + y, name, mode, _sum_sign([sa, sb], mode))


def mul(a: int, b: int, name: str, mode: str = "rn") -> int:
    (sa, x), (sb, y) = unpack(a, name), unpack(b, name)
    sign = sa ^ sb
    if NAN in (x, y) or (x == INF and y == 0) or (y == INF and x == 0):
        return pack(NAN, name)
    if INF in (x, y):
        return pack(INF, name, sign=sign)
    return pack(x * y, name, mode, sign)


def fma(a: int, b: int, c: int, name: str, mode: str = "rn") -> int:
    (sa, x), (sb, y), (sc, z) = unpack(a, name), unpack(b, name), unpack(c, name)
    sign = sa ^ sb
    if NAN in (x, y, z) or (x == INF and y == 0) or (y == INF and x == 0):
        return pack(NAN, name)
    return _add(sign, INF if INF in (x, y) else x * y, sc, z, name, mode)


def div(a: int, b: int, name: str, mode: str = "rn") -> int:
    (sa, x), (sb, y) = unpack(a, name), unpack(b, name)
    sign = sa ^ sb
    if NAN in (x, y) or (x == INF and y == INF) or (x == 0 and y == 0):
        return pack(NAN, name)
    if x == INF or y == 0:
        return pack(INF, name, sign=sign)
    if y == INF:
        return pack(0, name, sign=sign)
    return pack(x / y, name, mode, sign)


def sqrt(a: int, name: str, mode: str = "rn") -> int:
    sign, x = unpack(a, name)
    if x == NAN or (sign and x != 0):
        return pack(NAN, name)
    if x == INF or x == 0:
        return a
    scale = 1 << 2 * 1200
    root = math.isqrt(x.numerator * scale * x.denominator * scale)
    exact = root * root == x.numerator * scale * x.denominator * scale
    value = Fraction(root, x.denominator * scale)
    return pack(value if exact else value + Fraction(1, x.denominator * scale * 4), name, mode)


def compare(a: int, b: int, name: str):
    """-1, 0, 1, or None when a NaN takes part."""
    (sa, x), (sb, y) = unpack(a, name), unpack(b, name)
    if NAN in (x, y):
        return None
    big = 1 << 5000
    x = (-big if sa else big) if x == INF else x
    y = (-big if sb else big) if y == INF else y
    return (x > y) - (x < y)


def convert(bits: int, source: str, target: str, mode: str = "rn") -> int:
    sign, value = unpack(bits, source)
    return pack(value, target, mode, sign)
