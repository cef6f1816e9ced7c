"""Times that cannot be: taken off the events that carry them, and said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from gpu_utils.profiling.profile import ON_GPU, Event

_PAST = 10_000  # ns past the next start: more than rounding, and than a kernel that may begin while its forerunner ends


def without_impossible(events: Sequence[Event]) -> list[str]:
    """Remarks on events with times that cannot be; these lose their end (and a start of 0), and so their duration.

    Three kinds: the end lies before the start; work of the GPU that starts and ends at 0; a kernel that lasts far past
    the start of the next one on its stream, where streams work in order. Kernels of one graph launch are no such case.

    >>> first, second = (Event("kernel", "a", start, 900_000, "stream 7", "0") for start in (0, 895_000))
    >>> without_impossible([first, second])
    []
    >>> second.start = 5_000
    >>> print(*without_impossible([first, second]))
    1 of 2 kernels ends long after the next one on its stream began, which cannot be: 0.90 of 1.79 ms; it is in no total
    >>> first.duration is None
    True
    """
    remarks = []
    timed = [event for event in events if event.start is not None and event.end is not None]
    reverse = [event for event in timed if _end(event) < _start(event)]
    for event in reverse:
        event.end = None
    if reverse:
        remarks.append(f"{_number(reverse, 'event')} with an end before the start: no duration, and in no total")
    empty = [event for event in events if event.kind in ON_GPU and event.start == 0 and event.end == 0]
    for event in empty:
        event.start = event.end = None
    if empty:
        starts = "starts and ends" if len(empty) == 1 else "start and end"
        remarks.append(f"{_number(empty, 'event')} of the GPU {starts} at 0: the profiler has no times; in no total")
    return remarks + _too_long([event for event in events if event.kind == "kernel" and event.duration])


def _too_long(kernels: list[Event]) -> list[str]:
    lanes: dict[tuple[str, str, int | None], list[Event]] = defaultdict(list)
    for kernel in kernels:
        lanes[kernel.device, kernel.lane, kernel.process].append(kernel)
    found = []
    for lane in lanes.values():
        for kernel, following in pairwise(sorted(lane, key=_start)):
            past = _end(kernel) - _start(following)
            graph = kernel.correlation is not None and kernel.correlation == following.correlation
            if past > _PAST and 2 * past > _end(kernel) - _start(kernel) and not graph:
                found.append(kernel)
    if not found:
        return []
    if len(found) > max(1, len(kernels) // 10):
        return [
            f"{len(found):,} of {len(kernels):,} kernels run beside the next one on their stream: what is shown as one "
            "stream holds several, so durations add up to more than the time in which the GPU was busy"
        ]
    total, impossible = (sum(_end(one) - _start(one) for one in some) / 1e6 for some in (kernels, found))
    for kernel in found:
        kernel.end = None
    ends, its, it = ("ends", "its", "it is") if len(found) == 1 else ("end", "their", "they are")
    return [
        f"{len(found):,} of {len(kernels):,} kernels {ends} long after the next one on {its} stream began, which "
        f"cannot be: {impossible:.2f} of {total:.2f} ms; {it} in no total"
    ]


def _start(event: Event) -> int:
    return event.start or 0


def _end(event: Event) -> int:
    return event.end or 0


def _number(found: Sequence[object], what: str) -> str:
    return f"{len(found):,} {what}" if len(found) == 1 else f"{len(found):,} {what}s"
