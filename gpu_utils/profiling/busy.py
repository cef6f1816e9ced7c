"""Is the GPU busy: its working time as a union of intervals, the gaps in it, and what the host did meanwhile.

All times are whole ns of the profile's own clock. Only what has a start and an end counts; the rest is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low

from gpu_utils.profiling.intervals import Span, Spans, length, overlap, union
from gpu_utils.profiling.profile import ON_GPU, Event, Profile

SLOW_HOST = "host launches too slowly"
SYNC = "host waited for the GPU (sync)"
COPY = "host was in a copy call"
QUEUED = "launched before: the GPU waited"
UNKNOWN = "nothing recorded"
CAUSES = (SLOW_HOST, SYNC, COPY, QUEUED, UNKNOWN)
"""Why a gap is there, by the host's events in it. QUEUED: what ends the gap was launched long before, so the host
was not late: it depended on other work, or the GPU takes this long from one piece of work to the next."""

SERIAL = "kernels ran one at a time while counters were collected"

LAUNCH_BOUND_IDLE = 0.10
"""Idle share from which a program can be called launch-bound: with less, quicker launches could not win a tenth."""

LAUNCH_BOUND_CALLS = 10
"""Launches further apart than so many times the call itself: the host does something else between, and launches are not
what it is slow at. Eager PyTorch spends a few calls' time on each operator."""

_COPY_SHARE = 0.5
"""Of a gap that calls which copy must fill to be its cause."""
_LONG_AGO = 2
"""A launch was early when its work started later than so many times the smallest delay of the device."""
_CALLS = ("launch", "sync", "api")
_HOST_KINDS = (*_CALLS, "op", "range")


@dataclass(frozen=True)
class HostPart:
    """What the host did of one kind ("sync", "copy", "launch", "api", "op", "range") in a gap.

    calls  that overlap the gap; ns: of the gap in which at least one was open; name: of the one that ended last
    """

    kind: str
    calls: int
    ns: int
    name: str


@dataclass(frozen=True)
class Gap:
    """A time in which a device did nothing, between two pieces of work.

    cause         one of CAUSES
    after, before names of the work that ended before the gap, and of the work that ended it
    host          what the host did meanwhile
    """

    start: int
    end: int
    cause: str
    after: str
    before: str
    host: tuple[HostPart, ...]

    @property
    def ns(self) -> int:
        return self.end - self.start

    @property
    def words(self) -> str:
        """Cause and evidence, one phrase."""
        parts = [f"{part.calls} {part.kind} ({part.name}) for {part.ns:,} ns" for part in self.host]
        return f"{self.cause}: {'; '.join(parts)}" if parts else self.cause


@dataclass(frozen=True)
class Lane:
    """One stream or queue: busy: union of what ran in it; events: how many."""

    name: str
    busy: int
    events: int


@dataclass(frozen=True)
class DeviceBusy:
    """One device from the start of its first work to the end of its last.

    kernels, copies  ns: unions of the times of kernels, and of copies and fills
    overlapped       ns in which kernels and copies ran at once
    gaps             in their order
    delays           from the start of a launching call to the start of its work, ns, in order of the work
    unlaunched       pieces of work whose launch is not recorded
    kernel_ns        median time of a kernel; launch_ns: median time between starts of launches of one host thread
    launch_bound     None where no launches are recorded
    why              one sentence with the figures behind launch_bound
    serial           the times were taken while counters were collected: kernels ran one at a time, and neither the busy
                     share nor the gaps are those of the program
    """

    device: str
    start: int
    end: int
    busy: int
    kernels: int
    copies: int
    overlapped: int
    gaps: tuple[Gap, ...]
    lanes: tuple[Lane, ...]
    delays: tuple[int, ...]
    unlaunched: int
    kernel_ns: int | None
    launch_ns: int | None
    launch_bound: bool | None
    why: str
    serial: bool = False

    @property
    def window(self) -> int:
        return self.end - self.start

    @property
    def idle(self) -> int:
        return self.window - self.busy

    @property
    def idle_share(self) -> float:
        return self.idle / self.window if self.window else 0.0

    @property
    def idle_by_cause(self) -> dict[str, int]:
        """Cause -> ns of its gaps, the largest first."""
        found: dict[str, int] = defaultdict(int)
        for gap in self.gaps:
            found[gap.cause] += gap.ns
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def delay(self) -> int | None:
        """Median of `delays`; None without any."""
        return median_low(self.delays) if self.delays else None


@dataclass(frozen=True)
class Busy:
    """devices: in order of their names, those with timed work; untimed: pieces of GPU work without times."""

    devices: tuple[DeviceBusy, ...] = ()
    untimed: int = 0

    def of(self, device: str) -> DeviceBusy | None:
        return next((one for one in self.devices if one.device == device), None)


@dataclass
class _Host:
    """The host's events by what they are, and launches by what they start."""

    spans: dict[str, tuple[Spans, list[Event]]] = field(default_factory=dict)
    launches: dict[tuple[int | None, int], Event] = field(default_factory=dict)

    def last(self, kind: str, start: int, end: int) -> Event | None:
        """The event of a kind that ends last of those that overlap a span."""
        if kind not in self.spans:
            return None
        spans, events = self.spans[kind]
        number = spans.longest(start, end)
        return None if number is None else events[number]

    def parts(self, gap: Span) -> tuple[HostPart, ...]:
        found = []
        for kind, (spans, events) in self.spans.items():
            if (number := spans.longest(*gap)) is not None:
                found.append(HostPart(kind, spans.count(*gap), spans.covered(*gap), events[number].name))
        return tuple(found)


def busy(profile: Profile) -> Busy:
    """How busy each device was, and why it was not.

    >>> from gpu_utils.profiling.profile import Event
    >>> two = busy(Profile([Event("kernel", "a", 0, 40), Event("kernel", "b", 30, 50), Event("kernel", "c", 90, 100)]))
    >>> [(one.busy, one.idle, [(gap.start, gap.end, gap.cause) for gap in one.gaps]) for one in two.devices]
    [(60, 40, [(50, 90, 'nothing recorded')])]
    """
    work = profile.of(*ON_GPU)
    timed = [event for event in work if _is_timed(event)]
    by_device: dict[str, list[Event]] = defaultdict(list)
    for event in timed:
        by_device[event.device].append(event)
    host = _host(profile, timed)
    devices = tuple(_device(name, by_device[name], host, name in profile.serial) for name in sorted(by_device))
    return Busy(devices, len(work) - len(timed))


def _is_timed(event: Event) -> bool:
    return event.start is not None and event.end is not None and event.end >= event.start


def _span(event: Event) -> Span:
    assert event.start is not None
    assert event.end is not None
    return event.start, event.end


def _host(profile: Profile, work: Iterable[Event]) -> _Host:
    started = {key: event for event in work if (key := _key(event)) is not None}
    kinds: dict[str, list[Event]] = defaultdict(list)
    host = _Host()
    for event in profile.of(*_HOST_KINDS):
        key = _key(event) if event.kind in _CALLS else None
        if key is not None and event.start is not None and (event.kind == "launch" or key in started):
            host.launches.setdefault(key, event)
        if _is_timed(event):
            kinds[_part(event, started.get(key) if key is not None else None)].append(event)
    for kind in ("sync", "copy", "launch", "api", "op", "range"):
        if events := kinds[kind]:
            host.spans[kind] = Spans([_span(event) for event in events]), events
    return host


def _part(event: Event, work: Event | None) -> str:
    """The kind of HostPart of a host event; work: what it started on the GPU.

    A call that copies and waits is a sync where it brings results to the host, and a copy the other way.
    """
    copies = work.kind != "kernel" if work is not None else _copies(event.name)
    if event.kind not in _CALLS or not copies:
        return event.kind
    waits = event.kind == "sync" and (work is None or _to_host(work))
    return "sync" if waits else "copy"


def _to_host(copy: Event) -> bool:
    return copy.value("direction") == "device to host" or "dtoh" in copy.name.lower()


def _copies(call: str) -> bool:
    """Whether a call of the runtime copies: cudaMemcpyAsync, hipMemcpyWithStream."""
    return "memcpy" in call.lower()


def _key(event: Event) -> tuple[int | None, int] | None:
    return None if event.correlation is None else (event.process, event.correlation)


def _launch(host: _Host, event: Event) -> Event | None:
    key = _key(event)
    if key is None:
        return None
    return host.launches.get(key) or (host.launches.get((None, key[1])) if key[0] is not None else None)


def _device(name: str, work: Sequence[Event], host: _Host, serial: bool) -> DeviceBusy:
    """work: timed, in order of its start."""
    spans = [_span(event) for event in work]
    kernels = union(span for event, span in zip(work, spans, strict=True) if event.kind == "kernel")
    copies = union(span for event, span in zip(work, spans, strict=True) if event.kind != "kernel")
    whole = union(spans)
    start, end = (whole[0][0], whole[-1][1]) if whole else spans[0]
    launches = [_launch(host, event) for event in work]
    delays = tuple(
        delay
        for span, launch in zip(spans, launches, strict=True)
        if launch is not None and (delay := span[0] - _start(launch)) >= 0
    )
    by_lane: dict[str, list[Span]] = defaultdict(list)
    for event, span in zip(work, spans, strict=True):
        by_lane[event.lane].append(span)
    times = [span[1] - span[0] for event, span in zip(work, spans, strict=True) if event.kind == "kernel"]
    kernel_ns = median_low(times) if times else None
    launch_ns = _between([launch for launch in launches if launch is not None])
    gaps = _gaps(work, spans, launches, whole, host, min(delays, default=0))
    idle_share = (end - start - length(whole)) / (end - start) if end > start else 0.0
    calls = [_span(launch) for launch in launches if launch is not None and _is_timed(launch)]
    call_ns = median_low(end - start for start, end in calls) if calls else 0
    verdict, why = (None, SERIAL) if serial else _launch_bound(kernel_ns, launch_ns, call_ns, idle_share, gaps)
    return DeviceBusy(
        name,
        start,
        end,
        length(whole),
        length(kernels),
        length(copies),
        overlap(kernels, copies),
        gaps,
        tuple(Lane(lane, length(union(spans)), len(spans)) for lane, spans in sorted(by_lane.items())),
        delays,
        sum(launch is None for launch in launches),
        kernel_ns,
        launch_ns,
        verdict,
        why,
        serial,
    )


def _start(event: Event) -> int:
    assert event.start is not None
    return event.start


def _gaps(
    work: Sequence[Event],
    spans: Sequence[Span],
    launches: Sequence[Event | None],
    whole: Sequence[Span],
    host: _Host,
    delay: int,
) -> tuple[Gap, ...]:
    """delay: the smallest from a launch to its work."""
    found, at, last = [], 0, 0
    for (began, start), (end, _) in pairwise(whole):
        while spans[at][0] < end:  # the work before the gap; the one that ends last of it
            if spans[at][1] >= spans[last][1]:
                last = at
            at += 1
        parts = host.parts((start, end))
        early = _LONG_AGO * delay
        cause = _cause((start, end), start - began, parts, launches[at], host, early)
        found.append(Gap(start, end, cause, work[last].name, work[at].name, parts))
    return tuple(found)


def _cause(gap: Span, worked: int, parts: Sequence[HostPart], launch: Event | None, host: _Host, early: int) -> str:
    """worked: ns that the device worked just before.

    After a sync the host needs time of its own before the next launch. Where that is longer than the work that it
    waited for, the host would be late without the sync, too.
    """
    start, end = gap
    if launch is not None and (launch.end or _start(launch)) <= start and end - _start(launch) > early:
        return QUEUED
    if (sync := host.last("sync", start - 1, end)) is not None:  # one that ended as the gap began counts
        own = (end if launch is None else _start(launch)) - max(_span(sync)[1], start)
        if own <= max(worked, (end - start) // 2):
            return SYNC
    copying = sum(part.ns for part in parts if part.kind == "copy")
    if copying >= _COPY_SHARE * (end - start):
        return COPY
    return SLOW_HOST if parts or launch is not None else UNKNOWN


def _between(launches: Iterable[Event]) -> int | None:
    """Median time between the starts of neighbouring launches of one host thread; None with fewer than two."""
    threads: dict[tuple[int | None, str], list[int]] = defaultdict(list)
    for launch in launches:
        threads[launch.process, launch.lane].append(_start(launch))
    times = [later - earlier for starts in threads.values() for earlier, later in pairwise(sorted(starts))]
    return median_low(times) if times else None


def _launch_bound(
    kernel_ns: int | None, launch_ns: int | None, call_ns: int, idle_share: float, gaps: Sequence[Gap]
) -> tuple[bool | None, str]:
    if kernel_ns is None or launch_ns is None:
        return None, "no launches are recorded beside the kernels"
    slow = sum(gap.ns for gap in gaps if gap.cause == SLOW_HOST)
    idle = sum(gap.ns for gap in gaps)
    figures = (
        f"the median kernel takes {kernel_ns:,} ns, launches are {launch_ns:,} ns apart, "
        f"and the GPU is idle for {idle_share:.0%} of the time"
    )
    late = kernel_ns < launch_ns and idle_share >= LAUNCH_BOUND_IDLE and 2 * slow >= idle
    if late and call_ns and launch_ns > LAUNCH_BOUND_CALLS * call_ns:
        return False, f"{figures}; a launching call takes {call_ns:,} ns, so the host does something else between"
    return late, figures
