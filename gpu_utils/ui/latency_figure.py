"""Waves that hide latency: while one waits for memory, others compute, as a timeline."""

from __future__ import annotations

import math

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, count, path, picture, svg, text

_LEFT, _WIDTH, _BUSY = 84.0, 600.0, 16.0
_MOST_HIGH = 150.0


def waves_needed(compute: float, latency: float) -> int:
    """The least number of waves for which a SIMD never waits: each computes, then waits, and starts again.

    compute, latency  in cycles of one wave: between two accesses, and until an access has its answer

    >>> waves_needed(40, 400), waves_needed(100, 50)
    (11, 2)
    """
    return 1 + math.ceil(latency / compute)


def latency_figure(compute: int, latency: int, *waves: int) -> Picture:
    """A timeline for each number of waves on one SIMD (NVIDIA: a partition of the SM), which issues for one at a time.

    compute  cycles that a wave computes between two accesses to memory
    latency  cycles until an access has its answer
    waves    numbers of waves to draw below each other; none: one, half of those needed, and those needed

    Every wave repeats the same: compute, wait. Filled: it computes; a line: it waits for memory; nothing: its data is
    there and another wave has the SIMD. Raises BadArgument for numbers below 1, and for more than 128 waves.

    >>> latency_figure(50, 400, 1, 9)
    50 cycles of work, then 400 of waiting. 1 wave: the SIMD works 11% of the time. 9 waves: all of the time.
    """
    if min(compute, latency, *waves, 128) < 1 or max(waves, default=0) > 128:
        raise BadArgument("cycles and waves are 1 or more, and at most 128 waves are drawn; give smaller numbers")
    needed = waves_needed(compute, latency)
    numbers = waves or tuple(dict.fromkeys((1, max(1, needed // 2), needed)))
    span = 2.4 * (compute + latency)
    said, parts, y = [f"{compute} cycles of work, then {latency} of waiting."], [], 0.0
    for number in numbers:
        period = max(compute * number, compute + latency)
        busy = number * compute / period
        share = "all of the time" if busy >= 1 else f"{busy:.0%} of the time"
        said.append(f"{count(number, 'wave')}: {'the SIMD works ' if len(said) == 1 else ''}{share}.")
        rows, y = _panel(number, compute, latency, period, span, y)
        parts += [*rows, text(_LEFT + _WIDTH + 8, y - 12, f"{busy:.0%} busy", size=11, bold=True)]
        y += 14
    words = " ".join(said)
    return picture("", words, svg(_LEFT + _WIDTH + 76, y, parts, words, least=480))


def _panel(number: int, compute: int, latency: int, period: float, span: float, top: float) -> tuple[list[str], float]:
    """The rows of some waves and, below them, when the SIMD works; and where the next panel starts."""
    high = min(14.0, _MOST_HIGH / number)
    scale = _WIDTH / span
    parts = [text(0, top + 12, count(number, "wave"), bold=True)]
    top += 18
    for wave in range(number):
        y = top + wave * high
        if high >= 9:
            parts.append(text(_LEFT - 8, y + high - 3, f"wave {wave}", size=10, at="end"))
        start = float(wave * compute)
        while start < span:
            end, back = min(start + compute, span), min(start + compute + latency, span)
            parts.append(box(_LEFT + start * scale, y + 1, (end - start) * scale, high - 2, "even"))
            if back > end:
                parts.append(path([(_LEFT + end * scale, y + high / 2), (_LEFT + back * scale, y + high / 2)]))
            start += period
    y = top + number * high + 3
    parts.append(text(_LEFT - 8, y + 12, "SIMD", size=11, at="end", bold=True))
    parts.append(box(_LEFT, y, _WIDTH, _BUSY, "room"))
    round_start = 0.0
    while round_start < span:
        end = min(round_start + number * compute, span)
        parts.append(box(_LEFT + round_start * scale, y, (end - round_start) * scale, _BUSY, "even"))
        round_start += period
    return parts, y + _BUSY
