"""Segments that run one after the other without a decision, as long as all units of a batch are together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from gpu_utils.virtual.machine.op import Op
from gpu_utils.virtual.machine.program import Program


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Segments in a row up to a real branch: what runs while all units of a batch are together."""

    parts: tuple[int, ...]  # indices of the segments
    runs: tuple[Callable[[Any], Any], ...]
    stop: Op | None
    next: int


JOINED: WeakKeyDictionary[Program, dict[int, Together]] = WeakKeyDictionary()


def together(program: Program, joined: dict[int, Together], start: int) -> Together:
    """From `start` on, kept in `joined`: neither a label nor a wait of lanes for each other parts a whole batch.

    It ends before a loop that takes a lock.
    """
    parts: list[int] = []
    runs: list[Callable[[Any], Any]] = []
    segment = program.segments[start]
    ahead = frozenset() if start in program.locks else program.locks
    while True:
        parts.append(segment.index)
        runs += segment.runs
        passes = segment.stop is None or segment.stop.ends == "sync"
        if not passes or segment.next not in program.segments or segment.next in ahead:
            break
        segment = program.segments[segment.next]
    found = joined[start] = Together(tuple(parts), tuple(runs), None if passes else segment.stop, segment.next)
    return found
