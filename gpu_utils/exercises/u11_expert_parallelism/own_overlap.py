"""Real ranks on slow wires: a learner's overlap beside one exchange after the other, and timelines as they happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_utils.distributed import Ranks, Wires, run_ranks
from gpu_utils.exercises.u11_expert_parallelism import overlap_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.recorded_compute import RecordedCompute

Lane = list[tuple[str, float, float]]

WIRE, WORK, BATCHES, RANKS = 0.08, 0.1, 4, 4
CLOCKS = (0.0, 35.0, -12.0, 3.0)
"""Seconds by which the clocks of recorded ranks differ, as those of machines do."""


@dataclass(frozen=True)
class Overlapped:
    """Two ways through the same batches, on rank 0.

    seconds  name -> from the first exchange to the last result
    lanes    name -> lane -> (label, start, end) in seconds from the start: what the figure draws
    compute  seconds of compute in each
    """

    seconds: dict[str, float]
    lanes: dict[str, dict[str, Lane]]
    compute: float

    @property
    def hidden(self) -> float:
        """Share of the time for exchanges that compute hid: 0 where nothing was, 1 where all of it."""
        apart, over = self.seconds.values()
        return (apart - over) / (apart - self.compute)


def _on_a_rank(answer: Any, batches: int, work: float) -> dict[str, Any]:
    compute = RecordedCompute(dist.get_rank(), work)
    given = [torch.ones(4 * dist.get_world_size(), 8) for _ in range(batches)]
    dist.barrier()
    start = time.monotonic()
    answer(batches=given, compute=compute)
    return {"start": start, "end": time.monotonic(), "computes": compute.calls}


def _named(events: Sequence[dict[str, Any]], firsts: Sequence[float]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Each exchange as ("out", 1, event): a way back begins after a compute whose result has not gone yet."""
    counts = {"out": 0, "back": 0}
    for event in events:
        way = "back" if sum(first < event["issued"] for first in firsts) > counts["back"] else "out"
        counts[way] += 1
        yield way, counts[way], event


def _lanes(found: Ranks, latency: float) -> dict[str, Lane]:
    """What rank 0 did, and its link to rank 1: one message after the other, each for `latency` seconds."""
    own, start = found.values[0], found.values[0]["start"]
    computes: Lane = [
        (f"compute {at}", call["start"] - start, call["end"] - start) for at, call in enumerate(own["computes"], 1)
    ]
    firsts = [call["start"] for call in own["computes"]]
    lanes: dict[str, Lane] = {"experts": computes, "out": [], "back": [], "link to rank 1": []}
    exchanges = [event for event in found.events[0] if event["name"].startswith("all_to_all")]
    came = exchanges or [event for event in found.events[0] if event.get("source") == 1]
    sent = exchanges or [event for event in found.events[0] if event.get("to") == 1]
    for way, number, event in _named(came, firsts):
        lanes[way].append((f"{way} {number}", event["issued"] - start, event["returned"] - start))
    free = 0.0
    for way, number, event in _named(sent, firsts):
        begins = max(free, event["issued"] - start)
        free = begins + latency
        lanes["link to rank 1"].append((f"{way} {number}", begins, free))
    return lanes


def overlapped(
    overlap: Callable[..., list[Tensor]] | None = None, latency: float = WIRE, work: float = WORK
) -> Overlapped:
    """Four batches through the experts of four ranks, one thing after the other, and by an answer to 11.overlap.

    latency  seconds of a message, in the process group itself; work  seconds of compute for a batch
    """
    ways = {"one after the other": slips.overlapping(ahead=False, combine="now"), "overlapped": overlap or slips.right}
    shared = {"batches": BATCHES, "work": work}
    runs = {
        name: run_ranks(_on_a_rank, RANKS, shared=shared | {"answer": way}, wires=Wires(latency=latency))
        for name, way in ways.items()
    }
    seconds = {name: found.values[0]["end"] - found.values[0]["start"] for name, found in runs.items()}
    return Overlapped(seconds, {name: _lanes(found, latency) for name, found in runs.items()}, BATCHES * work)


# --- a recorded timeline ------------------------------------------------------------------------------------------


def _steps(steps: int, tokens: int, takes: float, size: int) -> list[dict[str, Any]]:
    rank, world = dist.get_rank(), dist.get_world_size()
    peers, computes = [peer for peer in range(world) if peer != rank], []
    for _ in range(steps):
        dist.barrier()
        room = torch.empty(world, size // 4)
        works: list[Any] = [dist.irecv(room[peer], peer) for peer in peers]  # before the compute: no send waits for it
        start = time.monotonic()
        time.sleep(takes)
        computes.append({"amount": tokens, "start": start, "end": time.monotonic()})
        works += [dist.isend(torch.zeros(size // 4), peer) for peer in peers]
        with ThreadPoolExecutor(len(works)) as pool:  # at once: one that waits hides no other's end
            list(pool.map(lambda work: work.wait(), works))
    dist.barrier()
    return computes


def recorded(
    slow_rank: tuple[int, float] | None = None,
    slow_link: tuple[int, int, float] | None = None,
    tokens: Sequence[int] = (300, 300, 600, 300),
    steps: int = 4,
) -> list[dict[str, Any]]:
    """The timeline of 11.straggler, of real ranks; each has its own clock. About five seconds.

    Receives are posted before the compute, so that a send ends when its message has arrived. What the timeline calls a
    recv begins when its rank has computed.

    slow_rank  (rank, factor) of its compute; slow_link  (from, to, factor) in the process group
    """
    takes = [each * 1e-4 * (slow_rank[1] if slow_rank and slow_rank[0] == r else 1.0) for r, each in enumerate(tokens)]
    slow = {slow_link[:2]: slow_link[2]} if slow_link else {}
    wires = Wires(latency=0.005, seconds_per_byte=5e-7, slow=slow)
    each = [{"tokens": amount, "takes": seconds} for amount, seconds in zip(tokens, takes, strict=True)]
    found = run_ranks(_steps, len(tokens), each, {"steps": steps, "size": 40_000}, wires=wires)
    timeline: list[dict[str, Any]] = []
    for rank, (computes, events) in enumerate(zip(found.values, found.events, strict=True)):
        of_kind = {name: [e for e in events if e["name"] == name] for name in ("send", "recv", "barrier")}
        kinds = [("compute", -1, 1, computes)]
        kinds += [(name, 0, len(tokens) - 1, of_kind[name]) for name in ("send", "recv")]
        kinds += [("barrier", -1, 1, of_kind["barrier"][1:])]
        for name, _, per_step, every in kinds:
            for at, event in enumerate(every):
                step = at // per_step
                began = computes[step]["end"] if name == "recv" else event.get("start", event.get("issued"))
                times = {
                    "start": began + CLOCKS[rank],
                    "end": (event["end"] if name == "compute" else event["done"]) + CLOCKS[rank],
                }
                what = {
                    "peer": event.get("to", event.get("source", -1)),
                    "amount": event.get("amount", event.get("bytes", 0)),
                }
                timeline.append({"step": step, "rank": rank, "name": name} | what | times)
    return sorted(timeline, key=lambda event: (event["step"], event["rank"]))
