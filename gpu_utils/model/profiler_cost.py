"""What torch.profiler costs the program that it watches, in pairs: the same calls, watched and not, in turn."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.model.profiling import without_the_profilers_own_log

WAYS: dict[str, Callable[[], Any]] = {
    "not watched": contextlib.nullcontext,
    "profile()": torch.profiler.profile,
    "with_stack=True": lambda: torch.profiler.profile(with_stack=True),
}


def profiler_cost(call: Callable[[], Any], *, rounds: int = 7, calls: int = 10) -> dict[str, dict[str, Any]]:
    """Way -> the median microseconds of a call, and its time over that of the same round's unwatched calls.

    A round makes `calls` calls in each way, the ways in turn; starting and stopping the profiler, and the export of
    what it recorded, are outside of the times. Shown are the median of the rounds' ratios, the smallest and the largest
    """
    with without_the_profilers_own_log():
        for way in WAYS:
            _seconds(call, way, calls)  # the first use of each way loads things
        found = [{way: _seconds(call, way, calls) for way in WAYS} for _ in range(rounds)]
    rows = {}
    for way in WAYS:
        ratios = [each[way] / each["not watched"] for each in found]
        rows[way] = {
            "us a call": 1e6 * statistics.median(each[way] for each in found),
            "times the unwatched": statistics.median(ratios),
            "smallest": min(ratios),
            "largest": max(ratios),
        }
    return rows


def _seconds(call: Callable[[], Any], way: str, calls: int) -> float:
    with WAYS[way]():
        call()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls
