"""What exercises of the unit share: queries, scores, references, and how far a right answer may be off."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case, Inputs

MOST_OF_A_PROGRAM = 8192
"""Bytes of a query, a length, that a program's lanes load beside the cache: up to 512 lanes, 16 bytes each."""


PEAK = 150.0
"""Size of the largest scores, of both signs, where a case has a peak."""


FALL = 32.0
"""First element of each query where scores fall from key to key; that of a key is its negative, and less."""


def fall(q: Tensor, k: Tensor) -> None:
    """Write first elements of q and k (..., positions, D): each score is about FALL * scale below the one before.

    The first is near -FALL^2 * scale, -256 for 16**-0.5: a later tile of keys lies far below, and a padded key above.
    """
    q[..., 0] = FALL
    k[..., 0] = -FALL - torch.arange(k.shape[-2])


def scores(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    """scale * q k^T in float64, -inf where a query does not see a key."""
    s = q.double() @ k.double().mT * scale
    hidden = torch.ones(s.shape[-2:], dtype=torch.bool).triu(1) & causal
    return s.masked_fill(hidden, -math.inf)


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of one query for each head, (heads, D), to keys and values (positions, heads, D), in float64."""
    s = torch.einsum("hd,shd->hs", q.double(), k.double()) / math.sqrt(q.shape[1])
    return torch.einsum("hs,shd->hd", s.softmax(1), v.double())


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


def tolerance_of_weights(v: Tensor) -> Tolerance:
    """Of means of values of size 0.5 to 1.5, in the type of v, to which each weight may be rounded.

    The sum of w u |v| is at most 1.5 u, as the weights sum to 1: 4 * 0.4 u.
    """
    return tolerance(v.dtype, magnitude=0.4, accumulator=v.dtype, roundings=1)


def tolerance_of_decoding(case: Case, inputs: Inputs) -> Tolerance:
    """`tolerance_of_attention` of one query for each sequence, with the peak of the case, if it has one."""
    # an absolute error of a score is a relative one of its weight: scores are rounded at the size of PEAK
    return tolerance_of_attention(inputs["q"].dtype, max(case["lengths"]) + (4 * int(PEAK) if case.get("peak") else 0))
