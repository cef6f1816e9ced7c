"""How far two values of two recordings lie apart, beside what rounding may do to them.

An element may differ by the roundings of the operators between the last equal values and this one, by the error of
sums of K terms in the accumulator (`gpu_utils.analytic.tolerance`), both relative to the size of the whole, and by four
times what rounding errors of the inputs really do to it, where that was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance

_MASKED = -1e4
"""A score below is masked, in whatever way it is written."""


@dataclass(frozen=True)
class Rounding:
    """What may lie between two right values: the narrowest type, the longest sum, and roundings one after another."""

    dtype: torch.dtype
    k: int
    roundings: int


@dataclass(frozen=True)
class Apart:
    """The worst element: its difference and bound over the root mean square of A's value, and its difference in units
    in the last place of the narrowest type at that size. `error` is inf where shapes or kinds do not fit."""

    error: float
    bound: float
    ulps: float

    @property
    def holds(self) -> bool:
        return self.error <= self.bound


SAME = Apart(0.0, 0.0, 0.0)
DIFFERENT = Apart(math.inf, 0.0, math.inf)


def apart(a: Tensor, b: Tensor, rounding: Rounding, noise: float = 0.0) -> Apart:
    """The worst element of b against a.

    noise  how far the value moved when its inputs were moved by a rounding each

    >>> apart(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.1]), Rounding(torch.float32, 1, 2)).holds
    False
    """
    if a.dtype == torch.bool or b.dtype == torch.bool:
        a, b = _visible(a), _visible(b)
    if a.shape != b.shape:
        return DIFFERENT
    if not (a.is_floating_point() or b.is_floating_point()):
        return SAME if torch.equal(a, b) else DIFFERENT
    a, b = a.double(), b.double()
    equal = (a == b) | (a.isnan() & b.isnan())
    if bool(equal.all()):
        return SAME
    if not bool((equal | (a.isfinite() & b.isfinite())).all()):
        return DIFFERENT
    difference = (a - b).masked_fill(equal, 0.0).abs()
    size = a.masked_fill(~a.isfinite(), 0.0)
    scale = float(size.abs().max())  # squares of the lowest float32 are beyond float32, not beyond this
    rms = scale * float((size / scale).square().mean().sqrt()) if scale else 0.0
    allowed = tolerance(rounding.dtype, rounding.k, rms / math.sqrt(rounding.k), roundings=rounding.roundings)
    limit = allowed.rtol * (size.abs() + rms) + allowed.atol + 4 * noise
    worst = int((difference / limit.clamp_min(torch.finfo(torch.float64).tiny)).argmax())
    off, bound, at = (float(one.flatten()[worst]) for one in (difference, limit, size.abs()))
    rms = rms or 1.0
    return Apart(off / rms, bound / rms, off / _ulp(max(at, off), rounding.dtype))


def _ulp(size: float, dtype: torch.dtype) -> float:
    """The distance of two neighbours at this size."""
    return torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(max(size, torch.finfo(dtype).tiny)))


def _visible(mask: Tensor) -> Tensor:
    """A mask of scores as True where one may look."""
    return mask if mask.dtype == torch.bool else mask > _MASKED if mask.is_floating_point() else mask != 0


def narrowest(*types: torch.dtype) -> torch.dtype:
    """The floating type with the fewest digits; float64 where none is floating."""
    floating = [one for one in types if one.is_floating_point]
    return max(floating, key=lambda one: torch.finfo(one).eps, default=torch.float64)
