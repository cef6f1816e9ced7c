"""A profile as a timeline: what the host did, what ran in each stream, and where the GPU had nothing to do.

Not drawn: arrows from every launch (only where few are in view), operators inside of others, counters.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_utils.errors import BadArgument
from gpu_utils.profiling.busy import DeviceBusy, Gap, busy
from gpu_utils.profiling.profile import ON_GPU, Event, Profile
from gpu_utils.ui.explore.drawing import Picture, box, count, path, percent, picture, svg, table, text

HOST = ("launch", "sync", "api")
_KINDS = {
    "kernel": "even",
    "copy": "odd",
    "fill": "odd",
    "launch": "room",
    "api": "room",
    "sync": "ring",
    "op": "empty",
}
_LEGEND = (
    ("op", "operator"),
    ("launch", "call"),
    ("sync", "call that waits"),
    ("kernel", "kernel"),
    ("copy", "copy"),
    ("gap", "GPU idle"),
)
_LEFT, _WIDE, _ROW, _BAR = 112.0, 880.0, 24.0, 18.0
_PITCH = 6.2  # of a letter at size 10, roughly
_TIES, _NAME = 12, 17
_SHOWN = 6
_HEAD = ("why the GPU was idle", "gaps", "together", "of the time", "the longest", "the host in it")
_TICKS = tuple(base * 10**power for power in range(9) for base in (1_000, 2_000, 5_000))


def trace_figure(profile: Profile, *, start: int | None = None, end: int | None = None, causes: bool = True) -> Picture:
    """The timeline of one host and one GPU, as the last line of a cell.

    profile     the device that worked longest is drawn, with the host's threads
    start, end  ns from the first event: what is in view; all of it by default
    causes      whether a table says why there are gaps, and what the host did in the longest

    Lanes: for each thread of the host its outermost operators and under them its calls; for each stream what ran in it;
    at the foot the gaps in which the GPU did nothing, the longest of them numbered.
    Errors: BadArgument where nothing with times ran on a GPU, and for a view that is empty.
    """
    devices = busy(profile).devices
    if not devices:
        raise BadArgument("this profile has no work on a GPU with its times; expected kernels or copies")
    device = max(devices, key=lambda one: one.busy)
    timed = [
        event
        for event in profile.of(*ON_GPU, *HOST, "op")
        if event.start is not None and event.end is not None and (not event.device or event.device == device.device)
    ]
    first = min(event.start for event in timed if event.start is not None)
    last = max(event.end for event in timed if event.end is not None)
    low, high = first + (start or 0), last if end is None else first + end
    if high <= low:
        raise BadArgument(f"the view from {start} to {end} ns is empty; expected an end after its start")
    scale = _Scale(low, high)
    inside = [event for event in timed if _start(event) < high and _end(event) > low]
    lanes = _lanes(timed)
    numbered = numbered_gaps(device)
    tops = {name: 26.0 + row * _ROW for row, name in enumerate([*lanes, "idle"])}
    foot = 26.0 + (len(lanes) + 1) * _ROW
    parts = [*_legend(), *_axis(scale, first, foot), *_ties(inside, tops, scale)]
    for name, kinds in lanes.items():
        shown = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
        parts.append(text(_LEFT - 8, tops[name] + 13, shown, size=11, at="end"))
        parts += _bars(
            name, [event for event in inside if _lane(event) == name and event.kind in kinds], tops[name], scale
        )
    parts.append(text(_LEFT - 8, tops["idle"] + 13, "GPU idle", size=11, at="end"))
    parts += _gaps(device, numbered, tops["idle"], scale)
    words = says(device, last - first, numbered, causes)
    after = table(_HEAD, _rows(device, numbered, first)) if causes and numbered else ""
    return picture(_vendor(profile, device), words, svg(_WIDE, foot + 24, parts, words, least=560), after=after)


def says(device: DeviceBusy, whole: int, numbered: Sequence[tuple[int, Gap]], causes: bool = True) -> str:
    """The figures of a device in a sentence or two. whole: ns from the first event of the profile to the last."""
    shares = ", ".join(
        f"{what} {percent(ns / max(device.window, 1))}"
        for what, ns in (("kernels", device.kernels), ("copies", device.copies), ("both at once", device.overlapped))
    )
    words = (
        f"{micro(whole)} in all. From its first work to its last the GPU works {percent(1 - device.idle_share)} of "
        f"{micro(device.window)}: {shares}. "
    )
    if not numbered:
        return words + "It is never idle in between."
    longest = max((gap for _, gap in numbered), key=lambda gap: gap.ns)
    why = f": {longest.cause}" if causes else ""
    return words + f"{count(len(device.gaps), 'gap')}; the longest lasts {micro(longest.ns)}{why}."


def micro(ns: float) -> str:
    """
    >>> micro(1234), micro(1_234_000), micro(45_000)
    ('1.23 µs', '1,234 µs', '45 µs')
    """
    value = ns / 1000
    return f"{value:,.0f} µs" if value >= 1000 else f"{value:.3g} µs"


def numbered_gaps(device: DeviceBusy) -> list[tuple[int, Gap]]:
    """The longest gaps of a device with their numbers, in the order of time."""
    longest = sorted(device.gaps, key=lambda gap: -gap.ns)[:_SHOWN]
    return list(enumerate(sorted(longest, key=lambda gap: gap.start), start=1))


class _Scale:
    """From ns to places on the page."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.each = (_WIDE - _LEFT - 8) / (high - low)

    def x(self, ns: int) -> float:
        return _LEFT + (min(max(ns, self.low), self.high) - self.low) * self.each


def _start(event: Event) -> int:
    assert event.start is not None
    return event.start


def _end(event: Event) -> int:
    assert event.end is not None
    return event.end


def _vendor(profile: Profile, device: DeviceBusy) -> str:
    found = profile.devices.get(device.device)
    return (found.vendor if found else None) or ""


def _lane(event: Event) -> str:
    """Operators and calls of a thread have a lane each."""
    return f"{event.lane}: ops" if event.kind == "op" else event.lane or event.kind


def _lanes(events: Sequence[Event]) -> dict[str, tuple[str, ...]]:
    """Names of lanes with the kinds in them: the host's before the GPU's."""
    host: dict[str, tuple[str, ...]] = {}
    for thread in sorted({event.lane for event in events if event.kind not in ON_GPU}):
        here = {event.kind for event in events if event.lane == thread and event.kind not in ON_GPU}
        host |= {f"{thread}: ops": ("op",)} if "op" in here else {}
        host |= {thread: HOST} if here & set(HOST) else {}
    streams = sorted({_lane(event) for event in events if event.kind in ON_GPU}, key=lambda name: (len(name), name))
    return host | dict.fromkeys(streams, ON_GPU)


def _bars(lane: str, events: Sequence[Event], top: float, scale: _Scale) -> list[str]:
    """Boxes with their names where there is room; what is narrower than a pixel is drawn with its neighbour."""
    parts, drawn, until = [path([(_LEFT, top + _BAR), (_WIDE - 8, top + _BAR)], "grid")], 0.0, -1
    for event in events:
        if event.kind == "op" and _end(event) <= until:
            continue  # inside of another operator
        until = max(until, _end(event))
        left, right = scale.x(_start(event)), scale.x(_end(event))
        if right - left < 1 and right - drawn < 1:
            continue
        drawn = right
        parts.append(box(left, top, max(right - left - 0.5, 0.8), _BAR, _KINDS[event.kind]))
        room = int((right - left - 6) / _PITCH)
        if room >= min(len(event.name), 6):
            name = event.name if len(event.name) <= room else event.name[: room - 1] + "…"
            parts.append(text(left + 3, top + 12.5, name, size=10))
    return parts


def _gaps(device: DeviceBusy, numbered: Sequence[tuple[int, Gap]], top: float, scale: _Scale) -> list[str]:
    parts = [path([(_LEFT, top + _BAR), (_WIDE - 8, top + _BAR)], "grid")]
    for gap in device.gaps:
        left, right = scale.x(gap.start), scale.x(gap.end)
        if right > left:
            parts.append(box(left, top, max(right - left, 0.8), _BAR, "done" if right - left > 5 else "empty"))
    for number, gap in numbered:
        left, right = scale.x(gap.start), scale.x(gap.end)
        if right - left >= 8:
            shown = f"{number}: {micro(gap.ns)}"
            fits = right - left >= _PITCH * len(shown) + 6
            parts.append(text((left + right) / 2, top + 13, shown if fits else number, size=10, at="middle"))
    return parts


def _ties(events: Sequence[Event], tops: dict[str, float], scale: _Scale) -> list[str]:
    """Lines from the end of a launching call to the start of what it started, where few are in view."""
    calls = {event.correlation: event for event in events if event.kind in HOST}
    tied = [event for event in events if event.kind in ON_GPU and event.correlation is not None]
    ties = [(calls.get(event.correlation), event) for event in tied]
    found = []
    for call, event in ties if len(ties) <= _TIES else ():
        ready = min(_end(call), _start(event)) if call else scale.high
        if call and scale.low <= ready and _start(event) <= scale.high:
            line = [(scale.x(ready), tops[_lane(call)] + _BAR), (scale.x(_start(event)), tops[_lane(event)])]
            found.append(path(line, "line", "2 2"))
    return found


def _rows(device: DeviceBusy, numbered: Sequence[tuple[int, Gap]], first: int) -> list[tuple[str, ...]]:
    """The gaps by their cause, the costliest cause first, each with the longest of them."""
    rows: list[tuple[str, ...]] = []
    for cause, ns in device.idle_by_cause.items():
        same = [gap for gap in device.gaps if gap.cause == cause]
        longest = max(same, key=lambda gap: gap.ns)
        number = next((f"{number}: " for number, gap in numbered if gap is longest), "")
        did = "; ".join(f"{part.name} {micro(part.ns)}" for part in longest.host) or "nothing recorded"
        at = f"{number}{micro(longest.ns)} at {micro(longest.start - first)}"
        rows.append((cause, f"{len(same):,}", micro(ns), percent(ns / max(device.window, 1)), at, did))
    return rows


def _legend() -> list[str]:
    parts, x = [], _LEFT
    for kind, words in _LEGEND:
        parts += [box(x, 2, 18, 12, _KINDS.get(kind, "done")), text(x + 23, 12, words, size=11)]
        x += 44 + 6 * len(words)
    return parts


def _axis(scale: _Scale, first: int, foot: float) -> list[str]:
    """Microseconds from the first event, with a faint line at each tick."""
    span = scale.high - scale.low
    tick = next((one for one in _TICKS if span / one <= 10), span)
    parts = [text(_LEFT - 8, foot + 14, "µs", size=11, at="end")]
    for number in range(-(-(scale.low - first) // tick), (scale.high - first) // tick + 1):
        x = scale.x(first + number * tick)
        parts += [path([(x, 22), (x, foot + 2)], "grid"), text(x, foot + 14, f"{number * tick // 1000:,}", at="middle")]
    return parts
