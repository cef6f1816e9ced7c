"""Floats of 8, 6 and 4 bits: every code's value, and every value's code.

A format is a row of `FORMATS`: how many bits of exponent and mantissa, the bias, and which codes are no numbers. All
else derives from the table of its values, which has 256 entries at most. Values are float64, which holds each of them
and the middle between any two exactly; nothing here rounds twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpu_utils.errors import W2WError

Codes = NDArray[np.uint8]
Values = NDArray[np.float64]
Rounding = Literal["nearest", "zero", "stochastic"]
Specials = Literal["ieee", "fn", "fnuz", "finite", "power"]


class FormatError(W2WError):
    """A code or a value that a number format does not have."""


class Fields(NamedTuple):
    """The parts of a code, as whole numbers; sign is 0 in a format without one."""

    sign: int
    exponent: int
    mantissa: int


@dataclass(frozen=True)
class Format:
    """One format.

    specials  which codes are no numbers, and whether there is a negative zero:
              "ieee"    the largest exponent: infinity where the mantissa is 0, else NaN (E5M2)
              "fn"      finite, NaN: all ones but for the sign is NaN, and there is no infinity
              "fnuz"    finite, NaN, unsigned zero: the code of -0 is the one NaN, and there is no infinity
              "finite"  every code is a finite number
              "power"   a power of two, 2^(code - bias): no sign, no mantissa, no zero; all ones is NaN

    >>> fn = FORMATS["e4m3fn"]
    >>> fn.decode([0x38, 0x7E, 0x01, 0x7F]).tolist()
    [1.0, 448.0, 0.001953125, nan]
    >>> fn.encode([1.0, 500.0, 0.3]).tolist(), fn.rounded(0.3).item()
    ([56, 126, 42], 0.3125)
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: Specials
    source: str

    @property
    def signed(self) -> bool:
        return self.specials != "power"

    @property
    def bits(self) -> int:
        return self.signed + self.exponent_bits + self.mantissa_bits

    @cached_property
    def values(self) -> Values:
        """float64 value of each code: 2^bits of them, NaN and infinities included."""
        code = np.arange(1 << self.bits)
        if self.specials == "power":
            return np.where(code == code[-1], np.nan, np.ldexp(1.0, code - self.bias))
        size = code & (self._sign_bit - 1)
        field, mantissa = size >> self.mantissa_bits, size & ((1 << self.mantissa_bits) - 1)
        digits = mantissa + ((field > 0) << self.mantissa_bits)
        value = np.ldexp(digits.astype(np.float64), np.maximum(field, 1) - self.bias - self.mantissa_bits)
        if self.specials == "ieee":
            last = field == (1 << self.exponent_bits) - 1
            value = np.where(last, np.where(mantissa == 0, np.inf, np.nan), value)
        if self.specials == "fn":
            value = np.where(size == self._sign_bit - 1, np.nan, value)
        value = np.where(code >= self._sign_bit, -value, value)
        if self.specials == "fnuz":
            value[self._sign_bit] = np.nan
        return value

    @cached_property
    def sizes(self) -> Values:
        """The finite numbers without their sign, rising: the index is the code."""
        half = self.values[: self._sign_bit]
        return half[np.isfinite(half)]

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(self.sizes[-1])

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with the full precision of the format."""
        return float(self.sizes[0] if self.specials == "power" else self.sizes[1 << self.mantissa_bits])

    @property
    def smallest(self) -> float:
        """The smallest positive number."""
        return float(self.sizes[0] if self.specials == "power" else self.sizes[1])

    @property
    def nan(self) -> int | None:
        """The code that NaN becomes; None in a format without NaN."""
        if self.specials == "finite":
            return None
        return self._sign_bit if self.specials == "fnuz" else self._sign_bit - 1

    def decode(self, codes: ArrayLike) -> Values:
        """Codes -> float64 values of the same shape. FormatError for a code that has too many bits."""
        given = np.asarray(codes)
        if given.size and not 0 <= int(given.min()) <= int(given.max()) < 1 << self.bits:
            raise FormatError(
                f"the codes of {self.name} are 0 to {(1 << self.bits) - 1}, found {int(given.min())} to "
                f"{int(given.max())}; are two codes packed into one byte?"
            )
        return self.values[given]

    def encode(
        self,
        values: ArrayLike,
        rounding: Rounding = "nearest",
        saturate: bool = True,
        generator: np.random.Generator | None = None,
    ) -> Codes:
        """Values -> codes (uint8) of the same shape.

        rounding  "nearest": a tie goes to the even code, in a format of powers to the larger number. "zero": what is
                  left over is cut. "stochastic": up with the probability of the part left over, drawn from `generator`
        saturate  what is too large, infinity too, becomes the largest number. Else it becomes infinity, or NaN where
                  the format has none; where it has neither, and when rounding "zero", the largest number all the same
        NaN stays NaN, with its sign where there is one; FormatError in a format without NaN, and for a zero or a
        negative number where there is none (saturating, a zero becomes the smallest).
        """
        given = np.asarray(values, np.float64)
        self._refuse(given, saturate)
        size = np.abs(given)
        lower = np.clip(np.searchsorted(self.sizes, size, side="right") - 1, 0, len(self.sizes) - 1)
        code = lower + self._goes_up(size, lower, rounding, generator)
        beyond = code >= len(self.sizes)
        if rounding == "zero":
            beyond &= np.isinf(size)
        code = np.minimum(code, len(self.sizes) - 1)
        if not saturate:
            code = np.where(beyond, self._overflow, code)
        if self.nan is not None:
            code = np.where(np.isnan(given), self.nan, code)
        if self.specials == "fnuz":
            code = np.where((code > 0) & np.signbit(given), code | self._sign_bit, code)
        elif self.signed:
            code = np.where(np.signbit(given), code | self._sign_bit, code)
        return code.astype(np.uint8)

    def rounded(
        self,
        values: ArrayLike,
        rounding: Rounding = "nearest",
        saturate: bool = True,
        generator: np.random.Generator | None = None,
    ) -> Values:
        """What is left of values that have been stored in the format: encoded, and decoded."""
        return self.decode(self.encode(values, rounding, saturate, generator))

    def fields(self, code: int) -> Fields:
        """Sign, exponent and mantissa of a code, as whole numbers.

        >>> FORMATS["e4m3fn"].fields(0xBC)
        Fields(sign=1, exponent=7, mantissa=4)
        """
        size = code & (self._sign_bit - 1) if self.signed else code
        return Fields(int(size != code), size >> self.mantissa_bits, size & ((1 << self.mantissa_bits) - 1))

    def neighbours(self, value: float) -> tuple[float, float]:
        """The largest number that is not above the value and the smallest that is not below it; infinite where none is.

        >>> FORMATS["e2m1"].neighbours(2.5), FORMATS["e2m1"].neighbours(7.0)
        ((2.0, 3.0), (6.0, inf))
        """
        numbers = np.sort(self.values[np.isfinite(self.values)])
        below, above = numbers[numbers <= value], numbers[numbers >= value]
        return float(below[-1]) if below.size else -np.inf, float(above[0]) if above.size else np.inf

    @property
    def _sign_bit(self) -> int:
        """The code of the sign alone; in a format without sign the number of codes."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def _overflow(self) -> int:
        if self.specials == "ieee":
            return self._sign_bit - (1 << self.mantissa_bits)
        return len(self.sizes) - 1 if self.nan is None else self.nan

    def _goes_up(
        self, size: Values, lower: NDArray[np.intp], rounding: Rounding, generator: np.random.Generator | None
    ) -> NDArray[np.bool_]:
        """Whether a value goes to the next larger code; the number behind the largest is one step away from it."""
        steps = np.append(self.sizes, 2 * self.sizes[-1] - self.sizes[-2])
        below, gap = steps[lower], steps[lower + 1] - steps[lower]
        if self.specials == "power":
            gap = below
        with np.errstate(invalid="ignore"):
            part = np.nan_to_num((size - below) / gap, nan=0.0, posinf=np.inf)
        if rounding == "zero":
            return np.isinf(size)
        if rounding == "stochastic":
            drawn = (generator or np.random.default_rng()).random(size.shape)
            return part > drawn
        tied_up = np.full(size.shape, True) if self.specials == "power" else lower % 2 == 1
        return (part > 0.5) | ((part == 0.5) & tied_up)

    def _refuse(self, given: Values, saturate: bool) -> None:
        if self.nan is None and np.isnan(given).any():
            raise FormatError(f"{self.name} has no NaN, found {int(np.isnan(given).sum())} among the values")
        if not self.signed and ((given < 0).any() or (not saturate and (given == 0).any())):
            raise FormatError(f"{self.name} holds powers of two only, found {float(given.min())}; a scale is positive")


_OFP8 = "OCP 8-bit Floating Point Specification (OFP8) 1.0"
_FNUZ = "openxla/stablehlo rfcs/20230321-fp8_fnuz.md, after arXiv 2206.02915"
_MX = "OCP Microscaling Formats (MX) Specification 1.0"

_ROWS = (
    Format("e4m3fn", 4, 3, 7, "fn", _OFP8),
    Format("e4m3fnuz", 4, 3, 8, "fnuz", _FNUZ),
    Format("e5m2", 5, 2, 15, "ieee", _OFP8),
    Format("e5m2fnuz", 5, 2, 16, "fnuz", _FNUZ),
    Format("e3m2", 3, 2, 3, "finite", _MX),
    Format("e2m3", 2, 3, 1, "finite", _MX),
    Format("e2m1", 2, 1, 1, "finite", _MX),
    Format("e8m0", 8, 0, 127, "power", _MX),
)
FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
"""The formats of the course by name."""
