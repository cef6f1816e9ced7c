"""Which lanes arrive in a sum, and how often: seen by rows in which one lane holds 1 and all others 0."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def how_often(weights: Sequence[float]) -> str:
    """In words, how often each lane is counted.

    >>> how_often([1.0, 1.0, 0.0, 2.0])
    'lanes 0 to 1 once, lane 2 not at all, lane 3 twice'
    >>> how_often([1.0, 0.0, 1.0, 0.0, 1.0])
    'lanes 0, 2, 4 once, lanes 1, 3 not at all'
    """
    parts = []
    runs = [(weight, list(lanes)) for weight, lanes in groupby(range(len(weights)), key=lambda lane: weights[lane])]
    if len(runs) <= 4:
        return ", ".join(f"{_lanes(lanes)} {_times(weight)}" for weight, lanes in runs)
    for weight in sorted(set(weights), reverse=True):
        lanes = [lane for lane in range(len(weights)) if weights[lane] == weight]
        some = ", ".join(map(str, lanes[:6])) + (" ..." if len(lanes) > 6 else "")
        parts.append(f"lane{'s' * (len(lanes) > 1)} {some} {_times(weight)}")
    return ", ".join(parts[:4])


def _lanes(lanes: Sequence[int]) -> str:
    return f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {lanes[0]} to {lanes[-1]}"


def _times(weight: float) -> str:
    return {0.0: "not at all", 1.0: "once", 2.0: "twice"}.get(weight, f"{weight:g} times")
