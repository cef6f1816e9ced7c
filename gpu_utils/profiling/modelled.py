"""A timeline that is modelled: one host thread, in-order streams of one GPU, and stated costs. No clock is read.

    host = Modelled("amd")
    with host.op("aten::mm"):
        host.launch("matmul", 40_000)               # ns on the GPU; the host is free again after 5_000
    host.item()                                     # one number comes back: the host waits for the stream
    profile = host.profile()                        # the events that a trace would hold, its origin says "modelled"

What it knows: a call costs the host time, and nothing that it starts begins before the call is over; a stream runs what
it holds in order; a kernel needs a least time; one link in each direction, so two copies of one direction take turns;
waiting. What it does not know: two kernels that share the GPU (each runs as if alone), full queues, changing clocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpu_utils.profiling.profile import Device, Event, Origin, Profile

CALLS = {
    "nvidia": {
        "launch": "cudaLaunchKernel",
        "copy": "cudaMemcpyAsync",
        "device": "cudaDeviceSynchronize",
        "stream": "cudaStreamSynchronize",
        "graph": "cudaGraphLaunch",
    },
    "amd": {
        "launch": "hipLaunchKernel",
        "copy": "hipMemcpyAsync",
        "device": "hipDeviceSynchronize",
        "stream": "hipStreamSynchronize",
        "graph": "hipGraphLaunch",
    },
}
"""The calls of the runtime, as a trace of each vendor names them."""

DIRECTIONS = {"HtoD": "host to device", "DtoH": "device to host"}
SOURCE = "modelled"


@dataclass(frozen=True)
class Costs:
    """What things cost, in ns. Stated, not measured: round figures of the order that traces of both vendors show.

    launch     of the host, for each call that starts work on the GPU
    least      of the GPU, for a kernel however little it does
    sync       of the host, for a call that waits and finds nothing to wait for
    latency    of a copy, before its first byte
    bandwidth  of the link between host and GPU: bytes in a ns, which is GB/s
    """

    launch: int = 5_000
    least: int = 2_000
    sync: int = 2_000
    latency: int = 8_000
    bandwidth: float = 25.0

    def copied(self, size: int) -> int:
        """ns that a copy of so many bytes takes.

        >>> Costs().copied(1_000_000)
        48000
        """
        return self.latency + round(size / self.bandwidth)


class Modelled:
    """A host thread that works, launches, copies and waits. `now` is its time, in ns.

    >>> host = Modelled("nvidia")
    >>> first, second = host.launch("a", 40_000), host.launch("b", 40_000)
    >>> host.now, (first.start, first.end), (second.start, second.end)
    (10000, (5000, 45000), (45000, 85000))
    >>> host.sync().end
    85000
    """

    def __init__(self, vendor: str = "nvidia", costs: Costs = Costs(), *, stream: int | None = None) -> None:
        """stream: the number of the default one; without it 7 or 0, as traces of the two vendors show it."""
        self.vendor, self.costs, self.now = vendor, costs, 0
        self.stream = (7 if vendor == "nvidia" else 0) if stream is None else stream
        self.events: list[Event] = []
        self._calls = CALLS[vendor]
        self._free: dict[int, int] = defaultdict(int)  # when what a stream holds is done
        self._link: dict[str, int] = defaultdict(int)  # when the last copy of a direction is done
        self._correlation = 0
        self._operator = 0
        self._inside: list[int] = []

    def work(self, ns: int, name: str = "python") -> Event:
        """The host computes; the GPU goes on with what it has."""
        self.now += ns
        return self._numbered(Event("op", name, self.now - ns, self.now, "thread 1"))

    @contextmanager
    def op(self, name: str, ns: int = 0) -> Iterator[Event]:
        """An operator of torch around the calls in it; ns: what it costs the host before the first of them."""
        event = self._numbered(Event("op", name, self.now, None, "thread 1"))
        self._inside.append(self._operator)
        self.now += ns
        yield event
        self._inside.pop()
        event.end = self.now

    def launch(self, name: str, ns: int, stream: int | None = None) -> Event:
        """Start a kernel of so many ns (at least `costs.least`); its event comes back, for figures to be noted in."""
        self._call("launch")
        return self._queue("kernel", name, max(ns, self.costs.least), stream)

    def graph(self, kernels: list[tuple[str, int]], stream: int | None = None) -> list[Event]:
        """Start many kernels, (name, ns) each, by one call: a CUDA graph or HIP graph."""
        self._call("graph")
        return [self._queue("kernel", name, max(ns, self.costs.least), stream) for name, ns in kernels]

    def copy(self, size: int, direction: str = "HtoD", stream: int | None = None, *, blocking: bool = False) -> Event:
        """Copy so many bytes, "HtoD" or "DtoH". blocking: the call returns when the copy is done (pageable memory)."""
        call = self._call("copy")
        stream = self.stream if stream is None else stream
        self._free[stream] = max(self._free[stream], self._link[direction])
        memory = "Pageable" if blocking else "Pinned"
        ends = (memory, "Device") if direction == "HtoD" else ("Device", memory)
        event = self._queue("copy", f"Memcpy {direction} ({' -> '.join(ends)})", self.costs.copied(size), stream)
        event.note("bytes", size, SOURCE)
        event.note("direction", DIRECTIONS[direction], SOURCE)
        self._link[direction] = self._free[stream]
        if blocking:
            self.now = call.end = max(self.now, self._free[stream])
        return event

    def sync(self, stream: int | None = None) -> Event:
        """Wait for one stream, or for all of them."""
        held = self._free.values() if stream is None else [self._free[stream]]
        start, until = self.now, max([self.now + self.costs.sync, *held])
        self.now = until
        name = self._calls["device" if stream is None else "stream"]
        return self._add(Event("sync", name, start, until, "thread 1"))

    def item(self, stream: int | None = None) -> Event:
        """`tensor.item()`: four bytes come back, and the host waits for them, so for all that the stream holds."""
        stream = self.stream if stream is None else stream
        with self.op("aten::item"):
            self.copy(4, "DtoH", stream)
            return self.sync(stream)

    def record(self, stream: int | None = None) -> int:
        """An event on a stream: the time at which all is done that the stream holds now."""
        return self._free[self.stream if stream is None else stream]

    def wait(self, recorded: int, stream: int | None = None) -> None:
        """What a stream gets from now on starts after that event. The host does not wait."""
        stream = self.stream if stream is None else stream
        self._free[stream] = max(self._free[stream], recorded)

    def profile(self, name: str = "modelled run", device: Device | None = None) -> Profile:
        """What a trace would hold. device: what it ran on; its name says that it is modelled."""
        device = device or Device(f"modelled {self.vendor.upper()} GPU", self.vendor, virtual=True)
        costs = self.costs
        said = (
            f"modelled, not measured: a launch costs the host {costs.launch:,} ns, a kernel lasts at least "
            f"{costs.least:,} ns, a copy {costs.latency:,} ns and a ns for {costs.bandwidth:g} bytes"
        )
        return Profile(list(self.events), [Origin(name, "model", "modelled run", remarks=(said,))], {"0": device})

    def _add(self, event: Event) -> Event:
        self.events.append(event)
        return event

    def _numbered(self, event: Event) -> Event:
        """An operator, with an External id of its own."""
        self._operator += 1
        event.note("External id", self._operator, SOURCE)
        return self._add(event)

    def _call(self, what: str) -> Event:
        """A call that starts work on the GPU, with a correlation of its own."""
        self._correlation += 1
        start, self.now = self.now, self.now + self.costs.launch
        return self._tied(
            Event("launch", self._calls[what], start, self.now, "thread 1", correlation=self._correlation)
        )

    def _queue(self, kind: str, name: str, ns: int, stream: int | None) -> Event:
        """Work behind what the stream holds, not before the host's call is over."""
        stream = self.stream if stream is None else stream
        start = max(self.now, self._free[stream])
        self._free[stream] = start + ns
        event = Event(kind, name, start, start + ns, f"stream {stream}", "0", correlation=self._correlation)
        return self._tied(event)

    def _tied(self, event: Event) -> Event:
        if self._inside:
            event.note("External id", self._inside[-1], SOURCE)
        return self._add(event)
