"""Tolerances from K and dtype, in one place.

An output that is a sum of K products, accumulated in a wider type and rounded once to its own type, is off by at most

    u(dtype) * |result|   +   gamma * u(accumulator) * sum |a_i b_i|

where u is half the machine epsilon. In the worst case gamma = K; for rounding errors that are independent it grows like
sqrt(K) (N. Higham and T. Mary, "A new approach to probabilistic rounding error analysis", 2019). We take 8 sqrt(K),
so that an honest kernel fails about never, and a sum in a type that is too narrow still does.
"""

from __future__ import annotations

import math
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
    atol = 8 * math.sqrt(k) * unit_roundoff(accumulator) * magnitude
    name = str(dtype).removeprefix("torch.")
    summed = f", sums of {k} in {str(accumulator).removeprefix('torch.')}" if k > 1 else ""
    return Tolerance(rtol, atol, f"{roundings} roundings to {name}{summed}")
