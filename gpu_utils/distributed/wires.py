"""A process group around gloo's that counts what a rank sends, and that can be as slow as a network.

gloo does the work. What passes here is counted: bytes for each destination, calls of each collective, and for each of
them an event with its times. With `Wires` a message waits on its sender's side, in a queue for each link, until a real
network would have carried it; the caller goes on meanwhile, so what is asynchronous can be hidden behind work.
"""

# mypy: disable-error-code="override,assignment,call-arg,misc,attr-defined"
from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor

NAME = "counted_gloo"
"""The name of the backend, as `torch.distributed.get_backend()` says it."""

_OWN_TAGS = 1 << 24
"""Tags from here on are for the messages of an all-to-all that is slowed down."""


@dataclass(frozen=True)
class Wires:
    """How slow the wires between ranks are. A message of n bytes takes latency + n * seconds_per_byte on its link.

    latency           seconds of a message
    seconds_per_byte  of a link: the inverse of its bandwidth
    nodes             number of the node of each rank; () where all are on one
    across            latency and seconds_per_byte between nodes are so many times larger
    slow              (source, destination) -> so many times slower still; source None means every link to the rank

    >>> Wires(latency=1e-3, seconds_per_byte=1e-6, nodes=(0, 0, 1, 1), across=10).seconds(1, 2, 1000)
    0.02
    """

    latency: float = 0.0
    seconds_per_byte: float = 0.0
    nodes: Sequence[int] = ()
    across: float = 1.0
    slow: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def seconds(self, source: int, destination: int, size: int) -> float:
        """What a message of `size` bytes takes; nothing within a rank."""
        if source == destination:
            return 0.0
        apart = bool(self.nodes) and self.nodes[source] != self.nodes[destination]
        times = (self.across if apart else 1.0) * self.slow.get((source, destination), 1.0)
        return times * (self.latency + size * self.seconds_per_byte)


@dataclass
class Traffic:
    """What a rank did through torch.distributed.

    sent    global rank -> bytes that were sent there by send and all-to-all; to itself nothing is sent
    calls   collective, "send" or "recv" -> times
    events  each call: {"name", "bytes", "issued", "done", "waited", "returned"}, times in seconds of one clock for all
            ranks; "waited" and "returned" say from when to when somebody waited for it, and are None if nobody did.
            A message also says "to" or "source", a collective the "ranks" of its group; "places" are the stretches of
            memory, from and until, that a recv or an all-to-all fills
    """

    sent: Counter[int] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    events: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, name: str, size: int, **more: Any) -> dict[str, Any]:
        self.calls[name] += 1
        self.events.append(event := _event(name, size, **more))
        return event


def _event(name: str, size: int, **more: Any) -> dict[str, Any]:
    times = {"issued": time.monotonic(), "done": None, "waited": None, "returned": None}
    return {"name": name, "bytes": size, **more, **times}


class _Work(dist.Work):
    """What is under way: a work of gloo's, or what a thread does. Waiting is noted in the event."""

    def __init__(self, event: dict[str, Any], works: Sequence[Any] = (), done: threading.Event | None = None) -> None:
        super().__init__()
        self._event, self._works, self._done = event, list(works), done
        self._watcher: threading.Thread | None = None
        self.problem: BaseException | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        event = self._event
        if event["returned"] is not None:  # gloo would wait for another message
            return True
        if event["waited"] is None:
            event["waited"] = time.monotonic()
        if self._watcher is None:
            self._finish()
        else:
            self._watcher.join()
        if self.problem is not None:
            raise self.problem
        event["returned"] = event["returned"] or time.monotonic()
        return True

    def _finish(self) -> None:
        try:
            if self._done is not None:
                self._done.wait()
            for work in self._works:
                work.wait()
        except BaseException as problem:
            self.problem = problem
        self._event["done"] = self._event["done"] or time.monotonic()

    def is_completed(self) -> bool:
        """gloo's works end when somebody waits for them: who only asks has a thread that waits."""
        if self._event["returned"] is not None:
            return True
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._finish, daemon=True)
            self._watcher.start()
        return not self._watcher.is_alive()

    def is_success(self) -> bool:
        return self.is_completed() and self.problem is None

    def exception(self) -> Any:
        return self.problem


class _Link:
    """A queue of what one rank sends over one link, or of its collectives: one after the other, each takes its time."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[float, Callable[[], Any], _Work, threading.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def put(self, seconds: float, start: Callable[[], Any], event: dict[str, Any]) -> _Work:
        done = threading.Event()
        work = _Work(event, done=done)
        self._jobs.put((seconds, start, work, done))
        return work

    def _serve(self) -> None:
        while True:
            seconds, start, work, done = self._jobs.get()
            try:
                time.sleep(seconds)
                start().wait()
                work._event["done"] = time.monotonic()
            except BaseException as problem:
                work.problem = problem
            done.set()


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _places(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors]


class CountedGroup(dist.ProcessGroup):
    """A group of ranks. `ranks` are their global numbers, `own` the one of this process."""

    def __init__(self, gloo: Any, ranks: Sequence[int], number: int, traffic: Traffic, wires: Wires | None) -> None:
        super().__init__(number, len(ranks))
        self._gloo, self._ranks, self._number = gloo, list(ranks), number
        self._traffic, self._wires = traffic, wires
        self._links: dict[Any, _Link] = {}
        self._tag = _OWN_TAGS
        self._begun: list[_Work] = []  # gloo forgets what nobody holds: its message would block the link behind it

    def getBackendName(self) -> str:  # noqa: N802  torch's own name
        return NAME

    def _seconds(self, destination: int, size: int) -> float:
        if self._wires is None:
            return 0.0
        return self._wires.seconds(self._ranks[self._number], self._ranks[destination], size)

    def _put(self, link: Any, seconds: float, start: Callable[[], Any], event: dict[str, Any]) -> _Work:
        if link not in self._links:
            self._links[link] = _Link()
        return self._links[link].put(seconds, start, event)

    # --- from one rank to another

    def _note(self, destination: int, size: int) -> None:
        if destination != self._number:
            self._traffic.sent[self._ranks[destination]] += size

    def send(self, tensors: list[Tensor], destination: int, tag: int) -> _Work:
        size = _bytes(tensors)
        self._note(destination, size)
        event = self._traffic.begin("send", size, to=self._ranks[destination])
        if self._wires is None:
            return _Work(event, [self._gloo.send(tensors, destination, tag)])
        seconds = self._seconds(destination, size)
        return self._put(destination, seconds, lambda: self._gloo.send(tensors, destination, tag), event)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> _Work:
        event = self._traffic.begin("recv", _bytes(tensors), source=self._ranks[source], places=_places(tensors))
        return _Work(event, [self._gloo.recv(tensors, source, tag)])

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> _Work:
        event = self._traffic.begin("recv", _bytes(tensors), places=_places(tensors))
        return _Work(event, [self._gloo.recv_anysource(tensors, tag)])

    # --- all to all

    def alltoall_base(
        self, out: Tensor, x: Tensor, out_splits: list[int], splits: list[int], opts: Any = None
    ) -> _Work:
        world = len(self._ranks)
        parts = list(x.split(splits or [len(x) // world] * world))
        for destination, part in enumerate(parts):
            self._note(destination, _bytes([part]))
        event = self._traffic.begin("all_to_all_single", _bytes([x]), ranks=self._ranks, places=_places([out]))
        if self._wires is None:
            return _Work(event, [self._gloo.alltoall_base(out, x, out_splits, splits, opts or dist.AllToAllOptions())])
        return self._all_to_all(list(out.split(out_splits or [len(out) // world] * world)), parts, event)

    def alltoall(self, outs: list[Tensor], parts: list[Tensor], opts: Any = None) -> _Work:
        for destination, part in enumerate(parts):
            self._note(destination, _bytes([part]))
        event = self._traffic.begin("all_to_all", _bytes(parts), ranks=self._ranks, places=_places(outs))
        return self._all_to_all(outs, parts, event)

    def _all_to_all(self, outs: list[Tensor], parts: list[Tensor], event: dict[str, Any]) -> _Work:
        """One message for each pair of ranks; gloo itself has no all-to-all of lists."""
        self._tag += 1
        tag, own = self._tag, self._number
        outs[own].copy_(parts[own])
        others = [rank for rank in range(len(self._ranks)) if rank != own]
        works: list[Any] = [self._gloo.recv([outs[rank]], rank, tag) for rank in others if outs[rank].numel()]
        for rank in others:
            if not parts[rank].numel():
                continue
            part = [parts[rank].contiguous()]
            if self._wires is None:
                works.append(self._gloo.send(part, rank, tag))
            else:
                seconds = self._seconds(rank, _bytes(part))
                message = _event("message", _bytes(part))
                works.append(self._put(rank, seconds, lambda to=rank, x=part: self._gloo.send(x, to, tag), message))
        self._begun.append(work := _Work(event, works))
        return work

    # --- what gloo does inside: counted as calls; slowed down as a ring would be

    def _inside(self, name: str, tensors: Sequence[Tensor], times: float, start: Callable[[], Any]) -> _Work:
        size = _bytes(tensors)
        event = self._traffic.begin(name, size, ranks=self._ranks)
        if self._wires is None:
            return _Work(event, [start()])
        world = len(self._ranks)
        steps = round(times * (world - 1))
        seconds = steps * max((self._seconds(rank, size // world) for rank in range(world)), default=0.0)
        return self._put("inside", seconds, start, event)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> _Work:
        start = lambda: self._gloo.allreduce(tensors, opts or dist.AllreduceOptions())  # noqa: E731
        return self._inside("all_reduce", tensors, 2, start)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> _Work:
        return self._inside("broadcast", tensors, 1, lambda: self._gloo.broadcast(tensors, opts))

    def reduce(self, tensors: list[Tensor], opts: Any) -> _Work:
        return self._inside("reduce", tensors, 1, lambda: self._gloo.reduce(tensors, opts))

    def allgather(self, outs: list[list[Tensor]], tensors: list[Tensor], opts: Any = None) -> _Work:
        start = lambda: self._gloo.allgather(outs, tensors, opts or dist.AllgatherOptions())  # noqa: E731
        return self._inside("all_gather", outs[0], 1, start)

    def _allgather_base(self, out: Tensor, x: Tensor, opts: Any = None) -> _Work:
        start = lambda: self._gloo._allgather_base(out, x, opts or dist.AllgatherOptions())  # noqa: E731
        return self._inside("all_gather", [out], 1, start)

    all_gather_single = _allgather_base
    """Its name in newer releases of torch."""

    def gather(self, outs: list[list[Tensor]], tensors: list[Tensor], opts: Any) -> _Work:
        return self._inside("gather", tensors, 1, lambda: self._gloo.gather(outs, tensors, opts))

    def scatter(self, outs: list[Tensor], tensors: list[list[Tensor]], opts: Any) -> _Work:
        return self._inside("scatter", outs, 1, lambda: self._gloo.scatter(outs, tensors, opts))

    def reduce_scatter(self, outs: list[Tensor], tensors: list[list[Tensor]], opts: Any = None) -> _Work:
        start = lambda: self._gloo.reduce_scatter(outs, tensors, opts or dist.ReduceScatterOptions())  # noqa: E731
        return self._inside("reduce_scatter", tensors[0], 1, start)

    def _reduce_scatter_base(self, out: Tensor, x: Tensor, opts: Any = None) -> _Work:
        start = lambda: self._gloo._reduce_scatter_base(out, x, opts or dist.ReduceScatterOptions())  # noqa: E731
        return self._inside("reduce_scatter", [x], 1, start)

    reduce_scatter_single = _reduce_scatter_base
    """Its name in newer releases of torch."""

    def barrier(self, opts: Any = None) -> _Work:
        return self._inside("barrier", (), 2, lambda: self._gloo.barrier(opts or dist.BarrierOptions()))


def register(traffic: Traffic, wires: Wires | None) -> None:
    """Make the backend known to torch.distributed in this process; all its groups count into `traffic`."""

    def create(given: Any, _options: Any) -> CountedGroup:
        ranks = list(given.global_ranks_in_group) or list(range(given.group_size))
        gloo = dist.ProcessGroupGloo(given.store, given.group_rank, given.group_size, timeout=given.timeout)
        return CountedGroup(gloo, ranks, given.group_rank, traffic, wires)

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
