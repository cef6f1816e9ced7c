"""Measuring time: median and spread, warm caches excluded, and ratios that a busy machine cannot spoil.

An absolute time means nothing without the device and the versions, so a Timing carries and prints them. To say that
one thing is faster than another, measure both in one run with `against`: the two alternate, and each pair of
neighbouring runs gives one ratio, so that a machine that slows down slows both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpu_utils.chips import probe

FLUSH_FACTOR = 4
"""The buffer that pushes a kernel's data out of a GPU's cache is this many times its L2 cache."""

AHEAD_CYCLES = 500_000
"""For so many cycles, about a quarter of a millisecond, a GPU is kept busy before a run: the host is then ahead of it,
and its launching is not timed. A call that launches for longer is timed with what the host takes."""

MALL_BYTES = 256 << 20
"""AMD's Infinity Cache sits behind the L2 and torch does not report it: the largest in the registry of chips."""


@dataclass(frozen=True)
class Timing:
    """Times of one callable.

    median, low, high  seconds: the median and the quartiles
    runs               how many calls were timed
    device             "cuda" or "cpu"
    where              the device and the versions that the times belong to
    """

    median: float
    low: float
    high: float
    runs: int
    device: str
    where: str

    def __str__(self) -> str:
        return (
            f"{_seconds(self.median)} (quartiles {_seconds(self.low)} to {_seconds(self.high)}, {self.runs} runs)\n"
            f"on {self.where}"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class Ratio:
    """How much faster `fn` is than `against`, from runs of both in turn.

    ratio, low, high  time of `against` over time of `fn`: median and quartiles over the pairs of runs
    fn, against       the two timings
    """

    ratio: float
    low: float
    high: float
    fn: Timing
    against: Timing

    def __str__(self) -> str:
        word = "faster" if self.ratio >= 1 else "slower"
        times = self.ratio if self.ratio >= 1 else 1 / self.ratio
        found = f"{times:.2f}x {word}" if self.low > 1 or self.high < 1 else "no difference seen"
        return (
            f"{found}: ratio {self.ratio:.2f}, quartiles {self.low:.2f} to {self.high:.2f}, of runs in turn\n"
            f"{_seconds(self.fn.median)} against {_seconds(self.against.median)}, {self.fn.runs} runs each\n"
            f"on {self.fn.where}"
        )

    __repr__ = __str__


def bench(
    fn: Callable[[], Any],
    *,
    against: Callable[[], Any] | None = None,
    seconds: float = 0.5,
    device: str | None = None,
    before: Callable[[], None] | None = None,
) -> Timing | Ratio:
    """Time a callable without arguments; with `against`, compare two.

    fn       called many times; it may launch kernels or run on the CPU
    against  a second callable: the result is then a Ratio from runs that alternate
    seconds  about how long to measure each callable, warm-up apart; at least 5 and at most 1000 runs
    device   "cuda" or "cpu"; default: "cuda" when torch has a GPU
    before   called untimed before the warm-up and before each run or pair of runs: makes new inputs, looks at results

    On a GPU each run is timed by events on the device, after its caches hold other data (a buffer larger than the L2
    cache is written before every run) and while the host is ahead of it. On a CPU the clock is time.perf_counter, and
    the caches are left as the runs before leave them. Absolute times are of one device and one set of versions, which
    the result prints; compare across machines by ratios. The garbage collector is left as it is.

    >>> result = bench(lambda: sum(range(1000)), seconds=0.01, device="cpu")
    >>> result.low <= result.median <= result.high
    True
    """
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    clock = _gpu_clock() if device == "cuda" else _cpu_clock
    callables = [fn] if against is None else [fn, against]
    before = before or (lambda: None)
    before()
    slowest = max(_warm_up(clock, call) for call in callables)
    runs = int(min(1000, max(5, seconds / max(slowest, 1e-9))))
    samples: list[list[float]] = [[] for _ in callables]
    for run in range(runs):
        before()
        order = list(zip(callables, samples, strict=True))
        for call, kept in order if run % 2 == 0 else reversed(order):
            kept.append(clock(call))
    where = _where(device)
    timings = [_timing(kept, device, where) for kept in samples]
    if against is None:
        return timings[0]
    ratios = [other / own for own, other in zip(*samples, strict=True)]
    low, middle, high = _quartiles(ratios)
    return Ratio(middle, low, high, timings[0], timings[1])


def _warm_up(clock: Callable[[Callable[[], Any]], float], call: Callable[[], Any]) -> float:
    """Seconds of a run once compiling, autotuning and cold caches are behind it."""
    clock(call)
    return min(clock(call), clock(call))


def _cpu_clock(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _gpu_clock() -> Callable[[Callable[[], Any]], float]:
    import torch

    flush = torch.empty(flush_bytes() // 4, dtype=torch.int32, device="cuda")

    def clock(call: Callable[[], Any]) -> float:
        flush.zero_()
        torch.cuda._sleep(AHEAD_CYCLES)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000

    return clock


def flush_bytes() -> int:
    """Bytes to write so that nothing of a run before is left in the caches of the first GPU."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    behind = MALL_BYTES if torch.version.hip is not None else 0
    return FLUSH_FACTOR * int(getattr(properties, "L2_cache_size", 0) or 64 << 20) + behind


def _timing(samples: Sequence[float], device: str, where: str) -> Timing:
    low, middle, high = _quartiles(samples)
    return Timing(middle, low, high, len(samples), device, where)


def _quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


@cache
def _where(device: str) -> str:
    found = probe()
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    if device == "cuda":
        return f"{found.name} ({found.target}), {versions}"
    return f"CPU of this machine, {versions}"


def _seconds(value: float) -> str:
    """A time with three digits and a unit that a reader can say.

    >>> _seconds(0.00001234)
    '12.3 us'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
