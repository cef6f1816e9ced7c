"""What the exercises on decoding share: queries, and how far a right answer may be off."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case

MOST_OF_A_PROGRAM = 8192
"""Bytes of a query, a length, that a program's lanes load beside the cache: up to 512 lanes, 16 bytes each."""


def dtype_of(case: Case) -> torch.dtype:
    """Number format of a case."""
    found: torch.dtype = getattr(torch, case["dtype"])
    return found


def drawn_queries(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Twice as large as keys, so that scores spread by 2 and no mean of all values is near the result."""
    return (2 * torch.randn(shape, generator=generator)).to(dtype)


def tolerance_of_attention(dtype: torch.dtype, most: int, roundings: int = 2, magnitude: float = 1.0) -> Tolerance:
    """Of means of at most `most` values of size 1, whose weights may be rounded to `dtype` before they multiply.

    magnitude  how many such errors of the weights add up: more than one where scores were rounded, too
    """
    of_weights = tolerance(dtype, magnitude=magnitude, accumulator=dtype, roundings=roundings)
    of_sums = tolerance(dtype, k=most)
    return Tolerance(of_weights.rtol, of_weights.atol + of_sums.atol, f"{of_weights.why}; weights rounded to it too")
