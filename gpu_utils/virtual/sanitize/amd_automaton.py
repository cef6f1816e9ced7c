"""What a wave has in flight, as the states of an automaton: it follows from the path alone, never from values.

A state holds a queue for each counter: the accesses that have been issued and not yet waited for, the oldest first.
After a wait for a counter to fall to k, of accesses that are done in order the k newest may still be in flight, of
others all unless k is 0. That is exact also where several orders share a counter: behind an access that is not done all
later ones of its order are not done either, so it is done once k is no more than their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.sanitize.amd_counters import Access, accesses, capacity, loads_in_order, waits
from gpu_utils.virtual.sanitize.amd_halves import kept_by_load, stores_other_half

Queues = tuple[tuple[int, ...], ...]
"""By counter (`Automaton.counters`): `Access.op` of what is in flight, the oldest first."""

MOST_STATES = 20_000
"""Of a program; one that comes to more is taken to have nothing in flight from there on, which finds less."""


@dataclass(frozen=True, slots=True)
class Late:
    """An op that uses registers which are still to be filled. needed: counter -> the largest number that would do."""

    load: Op
    use: Op
    register: str
    needed: dict[str, int]


@dataclass(frozen=True, slots=True)
class Move:
    """What running a segment does to a state.

    after   the number of the state behind it
    late    the first op that uses data too early, or None
    left    by op, a wait: how many loads to LDS may be in flight behind it
    stores  ops that others may wait for, before which a store may be in flight
    """

    after: int
    late: Late | None
    left: dict[int, int]
    stores: frozenset[int]


class Automaton:
    """The states of one program and the moves between them, made when they are met. State 0: nothing in flight.

    registers: False where nobody asks for late registers; without: the index of a wait to be left out.
    """

    def __init__(self, program: Program, registers: bool = True, without: int | None = None) -> None:
        self.program, self.registers = program, registers
        self.in_order = loads_in_order(program.target)
        self.own = [accesses(program.target, op) for op in program.ops]
        self.counters = sorted({access.counter for own in self.own for access in own})
        self.capacity = [capacity(program.target, counter) for counter in self.counters]
        place = {counter: i for i, counter in enumerate(self.counters)}
        self.waits = [
            [(place[name], count) for name, count in waits(program.target, op).items() if name in place]
            if op.index != without
            else []
            for op in program.ops
        ]
        self.known: dict[tuple[int, int], Access] = {}
        alike: dict[tuple[str, ...], int] = {}
        self.issues = [self._issued(own, place, alike) for own in self.own]
        self.loads_lds = any(access.does == "load to lds" for own in self.own for access in own)
        self.states: list[Queues] = []
        self.numbers: dict[Queues, int] = {}
        self.number(((),) * len(self.counters))

    def _issued(
        self, own: tuple[Access, ...], place: dict[str, int], alike: dict[tuple[str, ...], int]
    ) -> list[tuple[int, int]]:
        """(counter, access) of what an op puts in flight; one that nobody can wait for apart and fills nothing is none.

        Accesses that fill nothing and are alike have one number, so that paths which differ in them meet again.
        """
        found = []
        for access in own:
            filled = access.registers if self.registers else frozenset()
            if not filled and not access.order:
                continue
            kind = (access.counter, access.order, access.does, str(access.acquires))
            number = access.op if filled else alike.setdefault(kind, access.op)
            queue = place[access.counter]
            self.known.setdefault(
                (queue, number), Access(number, access.counter, access.order, access.does, filled, access.acquires)
            )
            found.append((queue, number))
        return found

    def number(self, queues: Queues) -> int:
        """The number of a state."""
        if queues not in self.numbers:
            if len(self.states) >= MOST_STATES:
                return 0
            self.numbers[queues] = len(self.states)
            self.states.append(queues)
        return self.numbers[queues]

    def line(self, start: int) -> tuple[Op, ...]:
        """All ops of the segment that starts there."""
        segment = self.program.segments[start]
        return segment.ops if segment.stop is None else (*segment.ops, segment.stop)

    def move(self, start: int, state: int) -> Move:
        """Run a segment from a state."""
        queues = list(self.states[state])
        left: dict[int, int] = {}
        stores: set[int] = set()
        busy = self._busy(queues)
        for op in self.line(start):
            if self.registers and not (busy.isdisjoint(op.reads) and busy.isdisjoint(op.writes)):
                late = self.late(op, queues)
                if late:
                    return Move(0, late, left, frozenset(stores))
            if op.communicates and any(access.does == "store" for access in self.in_flight(queues)):
                stores.add(op.index)
            self.apply(op, queues)
            if self.waits[op.index]:
                busy = self._busy(queues)
                if self.loads_lds:
                    left[op.index] = sum(access.does == "load to lds" for access in self.in_flight(queues))
            for access in self.own[op.index]:
                busy |= access.registers
        return Move(self.number(self.trimmed(queues)), None, left, frozenset(stores))

    def in_flight(self, queues: list[tuple[int, ...]] | Queues) -> Iterator[Access]:
        """Every access of a state."""
        return (self.known[i, number] for i, queue in enumerate(queues) for number in queue)

    def _busy(self, queues: list[tuple[int, ...]]) -> set[str]:
        return set().union(*(access.registers for access in self.in_flight(queues)))

    def apply(self, op: Op, queues: list[tuple[int, ...]]) -> None:
        """Change what is in flight as the op does."""
        for i, count in self.waits[op.index]:
            queues[i] = self._waited(i, queues[i], count)
        for i, number in self.issues[op.index]:
            queues[i] = self._waited(i, (*queues[i], number), self.capacity[i])

    def _waited(self, i: int, queue: tuple[int, ...], count: int) -> tuple[int, ...]:
        if len(queue) <= count:
            return queue
        later: dict[str, int] = {}
        left = []
        for number in reversed(queue):
            order = self.known[i, number].order
            behind = later.get(order, 0) if order else 0
            if order:
                later[order] = behind + 1
            if count > behind:
                left.append(number)
        return tuple(reversed(left))

    def trimmed(self, queues: list[tuple[int, ...]]) -> Queues:
        """Without the oldest accesses that nobody asks for: those that fill nothing, but for the newest store."""
        return tuple(queue[self._first(i, queue) :] if queue else queue for i, queue in enumerate(queues))

    def _first(self, i: int, queue: tuple[int, ...]) -> int:
        store = len(queue)
        for at in range(len(queue) - 1, -1, -1):
            if self.known[i, queue[at]].does == "store":
                store = at
                break
        for at, number in enumerate(queue[:store]):
            access = self.known[i, number]
            if access.registers or access.does == "load to lds":
                return at
        return store

    def late(self, op: Op, queues: list[tuple[int, ...]]) -> Late | None:
        """The use of a register that is still to be filled, the one with the smallest count first."""
        used = op.reads | op.writes
        kept = kept_by_load(op)
        found: tuple[int, int, str] | None = None
        needed: dict[str, int] = {}
        for i, queue in enumerate(queues):
            for at, number in enumerate(queue):
                access = self.known[i, number]
                meets = [name for name in access.registers & used if not self._allowed(op, access, name, kept)]
                if not meets:
                    continue
                behind = sum(self.known[i, later].order == access.order for later in queue[at + 1 :])
                count = behind if access.order else 0
                needed[access.counter] = min(count, needed.get(access.counter, count))
                if found is None or count < found[0]:
                    found = count, number, min(meets, key=lambda name: (len(name), name))
        return None if found is None else Late(self.program.ops[found[1]], op, found[2], needed)

    def _allowed(self, op: Op, access: Access, register: str, kept: frozenset[str]) -> bool:
        """Whether an op may use a register that an access is still to fill: the other half, or to fill it next."""
        if register in op.reads and register not in kept:
            return stores_other_half(op, self.program.ops[access.op], register)
        own = self.own[op.index]
        if len(own) != 1 or register not in own[0].registers or not access.order:
            return False
        same = (own[0].counter, own[0].order) == (access.counter, access.order)
        return same and (access.order != "vector" or self.in_order)
