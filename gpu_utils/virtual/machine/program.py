"""What a decoder makes of a kernel: ops, cut into segments of straight code, with what the scheduler wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from gpu_utils.virtual.kernel_info import KernelInfo
from gpu_utils.virtual.machine.loops import find_loops
from gpu_utils.virtual.machine.op import Op, nothing


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Ops that run without a scheduling decision between them. runs: of those that do something."""

    index: int
    start: int
    runs: tuple[Callable[[Any], Any], ...]
    ops: tuple[Op, ...]
    stop: Op | None  # the last op of the segment when it decides the flow; it is not among `ops`
    next: int  # index of the op after the segment


@dataclass(frozen=True, eq=False)
class Program:
    """A decoded kernel: immutable, shared by all launches of the same text; made by `Program.of`.

    entry: index of the first op. unit: "wave" or "lane". lanes: 32 or 64. name: as in the source.
    segments: by the index of their first op.
    exits: where nothing but an unconditional end of the program stands.
    spinning, waiting, locks: see `loops.find_loops`. separable: in whatever order blocks run, it comes to the same.
    """

    name: str
    target: str
    lanes: int
    unit: str
    ops: tuple[Op, ...]
    info: KernelInfo
    entry: int
    segments: Mapping[int, Segment]
    exits: frozenset[int]
    spinning: frozenset[int]
    waiting: frozenset[int]
    locks: frozenset[int]
    separable: bool

    @classmethod
    def of(
        cls,
        name: str,
        target: str,
        lanes: int,
        unit: str,
        ops: Iterable[Op],
        info: KernelInfo,
        entry: int = 0,
        leaders: Iterable[int] = (),
    ) -> Program:
        """Number the ops and cut them into segments. leaders: ops that a jump can reach, beside branch targets."""
        numbered = tuple(ops)
        for index, op in enumerate(numbered):
            op.index = index
        segments = MappingProxyType(_segments(numbered, {entry, *leaders}))
        exits = frozenset(
            start for start, each in segments.items() if not each.ops and each.stop and _ends_all(each.stop)
        )
        separable = not any(op.communicates or op.in_order for op in numbered)
        return cls(name, target, lanes, unit, numbered, info, entry, segments, exits, *find_loops(numbered), separable)

    def with_ops(self, ops: Sequence[Op], entering: Callable[[Segment], Sequence[Callable[[Any], Any]]]) -> Program:
        """The same flow with other ops in the places of these; entering: what runs first in a segment."""
        segments = {}
        for start, segment in self.segments.items():
            straight = tuple(ops[start : start + len(segment.ops)])
            stop = None if segment.stop is None else ops[segment.stop.index]
            segments[start] = replace(segment, runs=(*entering(segment), *_runs(straight)), ops=straight, stop=stop)
        return replace(self, ops=tuple(ops), segments=MappingProxyType(segments))


def _runs(straight: Iterable[Op]) -> tuple[Callable[[Any], Any], ...]:
    return tuple(op.run for op in straight if op.run is not nothing)


def _ends_all(op: Op) -> bool:
    return op.ends == "end" and not op.reads


def _segments(ops: tuple[Op, ...], leaders: set[int]) -> dict[int, Segment]:
    leaders = leaders | {op.target for op in ops if op.target is not None} | {op.index + 1 for op in ops if op.ends}
    bounds = [*sorted(index for index in leaders if index < len(ops)), len(ops)]
    segments = {}
    for number, (start, after) in enumerate(pairwise(bounds)):
        straight = ops[start:after]
        stop = straight[-1] if straight and straight[-1].ends else None
        if stop:
            straight = straight[:-1]
        segments[start] = Segment(number, start, _runs(straight), straight, stop, after)
    return segments
