"""A mean of a few differences and what it may be off by: the two-sided interval of Student's t.

Two runs with the same seed and the same batches form a pair; the pairs' differences are taken as independent and
roughly normal. A bound that few pairs give is wide, and says so: a difference smaller than it has not been shown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_utils.errors import BadArgument


@dataclass(frozen=True)
class Interval:
    """A mean, and the two ends between which it lies at the confidence asked for, in the unit of the values."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean of two or more values and its two-sided interval; NaN throughout where a value is not finite.

    >>> interval = mean_interval([1.0, 3.0])  # one degree of freedom: 12.7 standard errors
    >>> round(interval.mean, 3), round(interval.low, 3), round(interval.high, 3)
    (2.0, -10.706, 14.706)
    """
    if len(values) < 2:
        raise BadArgument(f"{len(values)} values have no spread; give two or more")
    if not all(map(math.isfinite, values)):
        return Interval(math.nan, math.nan, math.nan)
    mean = statistics.mean(values)
    half = t_quantile(confidence, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def t_quantile(confidence: float, degrees: int) -> float:
    """The t > 0 with P(|T| < t) = confidence for Student's T with so many degrees of freedom, by bisection."""
    if not 0 < confidence < 1 or degrees < 1:
        raise BadArgument(
            f"confidence {confidence} must lie between 0 and 1, degrees of freedom {degrees} be 1 or more"
        )
    low, high = 0.0, 1.0
    while _within(high, degrees) < confidence:
        high *= 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return high


def _within(t: float, degrees: int) -> float:
    """P(|T| < t): the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(degrees // 2):
        total += term
        term *= (2 * k + 1 + odd) / (2 * k + 2 + odd) * math.cos(angle) ** 2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
