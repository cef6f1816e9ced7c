"""What must have happened before what between the programs of one launch: releases and acquires of global memory.

Every access that is logged has a number, its *tick*. A program that releases at an address publishes there which ticks
of its own are done, and what it has acquired itself; whoever acquires at that address takes over what it finds. A
program knows the access of another when it has acquired a release of that program that came after the access.

Programs are the grain: what one wave releases covers what all waves of its block have done so far (the barrier between
them is racecheck's matter). An op says by `acquires` and `releases` what it does by itself; without them it is relaxed:
what it publishes is what a fence before it covers, and what it finds is acquired at the next fence. The rules are those
of the PTX memory consistency model and of LLVM's AMDGPUUsage, "Memory Model", at the scope of the GPU. Two are milder:
a plain or volatile store of PTX that somebody polls releases, and a volatile load acquires.

Events are only written down, and worked through when two programs meet in memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_utils.virtual.global_patterns import Pattern
from gpu_utils.virtual.machine import Op, Program

# With more programs, bytes of clocks or lanes of atomics, whoever has waited is taken to know everything.
MOST_PROGRAMS = 1 << 12
MOST_BYTES = 1 << 28
MOST_LANES = 1 << 23
# So many lanes of events are worked through at the latest.
PENDING = 1 << 20


class Flags(NamedTuple):
    """Plain stores that a polling access found: of each lane who stored (-1: nobody) and until when that releases."""

    program: np.ndarray
    until: np.ndarray


class Event(NamedTuple):
    """An atomic, a polling load, an ordered store or a fence (pattern None) of some waves.

    programs, until (waves,): linear numbers, and the tick up to which each releases, 0 for nothing.
    waits: it finds what others published; acquires: and takes it over at once.
    """

    pattern: Pattern | None
    base: int
    programs: np.ndarray
    until: np.ndarray | None
    waits: bool
    acquires: bool
    flags: Flags | None = None


def waits_for_others(program: Program) -> bool:
    """Whether some op finds what another program has published in global memory."""
    return any(op.polls and op.writes and op.kind == "global" for op in program.ops)


class GlobalOrder:
    """The clocks of one launch. ops: tick -> the op that had it.

    asked: whether two programs have met in memory other than by atomics, in a way that needs an order.
    """

    def __init__(self, programs: int) -> None:
        self.programs = programs
        self.ops: list[Op | None] = [None]
        self.asked = False
        self.waited = np.zeros(programs, bool)
        self.exact = programs <= MOST_PROGRAMS
        self.fenced = np.zeros(programs if self.exact else 0, np.int32)
        self.written_back, self.stored = np.zeros_like(self.fenced), np.zeros_like(self.fenced)
        self._events: list[Event] = []
        self._pending = 0
        self._releases: list[Event] = []  # those at addresses where nobody has acquired yet
        self._kept = 0  # lanes of them
        self._known: dict[int, np.ndarray] = {}  # program -> by program, the tick up to which it knows it
        self._found: dict[int, np.ndarray] = {}  # the same of what a fence will acquire
        self._published: dict[int, np.ndarray] = {}  # by address

    def tick(self, op: Op) -> int:
        """The number of an access by this op, or of a fence."""
        self.ops.append(op)
        return len(self.ops) - 1

    def fence(self, op: Op, programs: np.ndarray, write_back: bool = False, needs_write_back: bool = False) -> None:
        """An op that touches no memory itself: a fence, a wait for stores, a write-back or invalidation of caches.

        programs (waves,): of the running waves. write_back: what was stored leaves the cache, once it is waited for.
        needs_write_back: a wait covers what was stored before the last write-back only.
        """
        if not self.exact:
            return
        tick = self.tick(op)
        if write_back:  # of what was waited for before it; and of the rest, once it is waited for
            self.written_back[programs] = tick
            self.fenced[programs] = np.maximum(self.fenced[programs], self.stored[programs])
        elif op.releases:
            self.stored[programs] = tick
            done = self.written_back[programs] if needs_write_back else tick
            self.fenced[programs] = np.maximum(self.fenced[programs], done)
        if op.acquires:
            self._events.append(Event(None, 0, programs, None, True, True))

    def note(
        self,
        op: Op,
        pattern: Pattern,
        base: int,
        programs: np.ndarray,
        waits: bool,
        publishes: bool,
        flags: Flags | None = None,
    ) -> None:
        """An access through which programs order each other.

        programs: of the waves of the pattern. waits: it finds what others have published. publishes: it may release.
        flags: plain stores that it found.
        """
        if waits:
            self.waited[programs if pattern.mask is None else programs[pattern.per_wave > 0]] = True
        if not self.exact:
            return
        until = None
        if publishes:
            until = np.full(len(programs), self.tick(op), np.int32) if op.releases else self.fenced[programs]
            until = until if np.count_nonzero(until) else None
        if waits or until is not None:
            self._events.append(Event(pattern, base, programs, until, waits, op.acquires, flags))
            self._pending += pattern.count
            if self._pending > PENDING:
                self._settle()

    def flags(self, writer: np.ndarray, written_at: np.ndarray) -> Flags | None:
        """What an access finds of plain stores. writer, written_at (lanes,): 1 + program or 0, and the tick."""
        if not self.exact or not np.count_nonzero(writer):
            return None
        until = written_at.copy()
        for tick in np.unique(written_at[writer > 0]).tolist():
            op = self.ops[tick]
            if op is not None and not op.releases:
                here = (written_at == tick) & (writer > 0)
                until[here] = np.minimum(self.fenced[writer[here] - 1], tick)
        return Flags(writer - 1, until)

    def knows(self, mine: np.ndarray, other: np.ndarray, when: np.ndarray | None) -> np.ndarray:
        """Whether programs `mine` (n,) know what programs `other` (n, m) did at the ticks `when` (n, m)."""
        self.asked = True
        if self.exact:
            self._settle()
        if not self.exact or when is None:
            return np.broadcast_to(self.waited[mine][:, None], other.shape)
        known = np.zeros(other.shape, bool)
        for program in np.unique(mine).tolist():
            clock = self._known.get(program)
            if clock is not None:
                rows = mine == program
                known[rows] = clock[other[rows]] >= when[rows]
        return known

    def why(self, mine: int, other: int, when: int) -> str:
        """In words, why a program does not know what another did."""
        if not self.exact:
            return ""
        if not self.waited[mine]:
            return f"program {mine} has waited for nobody"
        clock = self._known.get(mine)
        if clock is not None and clock[other]:
            return (
                f"program {other} did it after the last release that program {mine} has acquired: the flag, the "
                "counter or the lock must come after the data"
            )
        found = self._found.get(mine)
        if found is not None and found[other]:
            return (
                f"program {mine} found what program {other} had released by a relaxed access, and no acquire or "
                "fence stands after it"
            )
        if any(clock[other] for clock in self._published.values()):
            return f"program {mine} has acquired at no address at which program {other} released it"
        return (
            f"program {other} has released nothing that program {mine} acquired: an atomic with release, or a fence "
            "after the data and before the atomic, is missing"
        )

    # working through events

    def _settle(self) -> None:
        events, self._events, self._pending = self._events, [], 0
        fresh: set[int] = set()
        for event in events:
            if event.pattern is not None and event.waits:
                fresh.update((np.unique(event.pattern.active) + event.base).tolist())
        fresh -= self._published.keys()
        if (len(self._published) + len(fresh)) * self.programs * 4 > MOST_BYTES:
            self._give_up()
            return
        if fresh:
            for address in fresh:
                self._published[address] = np.zeros(self.programs, np.int32)
            for event in self._releases:
                self._do(event, fresh)
        for event in events:
            if event.pattern is None:
                self._take_over(event.programs)
                continue
            self._do(event, self._published)
            if not event.waits:
                self._releases.append(event)
                self._kept += event.pattern.count
        if self._kept > MOST_LANES:
            self._give_up()

    def _give_up(self) -> None:
        self.exact = False
        self._events, self._releases = [], []
        self._known, self._found, self._published = {}, {}, {}

    def _take_over(self, programs: np.ndarray) -> None:
        """A fence: what was found by relaxed accesses is acquired."""
        for program in np.unique(programs).tolist():
            found = self._found.pop(program, None)
            if found is not None:
                known = self._known.get(program)
                self._known[program] = found if known is None else np.maximum(known, found)

    def _do(self, event: Event, addresses: set[int] | dict[int, np.ndarray]) -> None:
        pattern = event.pattern
        assert pattern is not None
        place = pattern.active + event.base
        wave = np.repeat(np.arange(len(event.programs)), pattern.per_wave)
        lanes = np.arange(len(place))
        if not event.waits:
            if not addresses:
                return
            lanes = np.flatnonzero(np.isin(place, np.fromiter(addresses, np.int64, len(addresses))))
        done: set[tuple[int, int]] = set()
        until = event.until
        for lane in lanes.tolist():
            address, number = int(place[lane]), int(wave[lane])
            program = int(event.programs[number])
            if (address, program) in done:
                continue
            done.add((address, program))
            there = self._published[address]
            if event.flags is not None and (by := int(event.flags.program[lane])) >= 0 and by != program:
                there = self._with(there, by, int(event.flags.until[lane]))
                self._published[address] = there
            if event.waits:
                mine = self._known if event.acquires else self._found
                before = mine.get(program)
                mine[program] = there if before is None else np.maximum(before, there)
            if until is not None and until[number]:
                self._published[address] = self._with(there, program, int(until[number]))

    def _with(self, there: np.ndarray, program: int, until: int) -> np.ndarray:
        """What is published once a program has released up to a tick."""
        known = self._known.get(program)
        joined = there.copy() if known is None else np.maximum(there, known)
        joined[program] = max(int(joined[program]), until)
        return joined
