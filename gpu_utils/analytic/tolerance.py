"""Tolerances from K and dtype, in one place.

An output that is a sum of K products, accumulated in a wider type and rounded once to its own type, is off by

    u(dtype) * |result|   +   the rounding errors of K additions in the accumulator,

where u is half the machine epsilon. Products of either sign and of size near m have partial sums near sqrt(i) m. Each
addition rounds independently ("A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput., 2019),
so one after another they add up to a standard deviation of about 0.3 K u m, with long tails: partial sums of some rows
wander far. The largest of 100,000 was 3.3 K u m, with K of 256 and of 1,024. We allow 4 K u m: an honest kernel fails
about never, and a sum in a type that is too narrow still does.
Products of one sign have partial sums near i m; for them give a magnitude of sqrt(K) m.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tolerance:
    """|got - expected| <= atol + rtol * |expected|, and the argument for it in one phrase."""

    rtol: float
    atol: float
    why: str


EXACT = Tolerance(0.0, 0.0, "exact")


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number of the type.

    >>> unit_roundoff(torch.float16) == 2.0**-11
    True
    """
    return torch.finfo(dtype).eps / 2


def tolerance(
    dtype: torch.dtype,
    k: int = 1,
    magnitude: float = 1.0,
    accumulator: torch.dtype | None = None,
    roundings: int = 2,
) -> Tolerance:
    """Tolerance for outputs of type `dtype` that sum `k` products of typical size `magnitude`.

    accumulator  type of the running sum: float32 for narrower dtypes, the dtype itself otherwise
    roundings    how many times a value of the size of the result is rounded to `dtype` on the way

    >>> tolerance(torch.float32).rtol < 1e-6 < tolerance(torch.float16).rtol
    True
    """
    if accumulator is None:
        accumulator = torch.float32 if torch.finfo(dtype).bits < 32 else dtype
    rtol = 2 * roundings * unit_roundoff(dtype)
    atol = 4 * k * unit_roundoff(accumulator) * magnitude
    name = str(dtype).removeprefix("torch.")
    summed = f", sums of {k} in {str(accumulator).removeprefix('torch.')}" if k > 1 else ""
    times = "rounding" if roundings == 1 else "roundings"
    return Tolerance(rtol, atol, f"{roundings} {times} to {name}{summed}")
