"""waitcheck for AMDGCN: registers that are used before the load which fills them is waited for.

What is in flight depends on the path of a wave alone, so each wave has the number of a state of an automaton, and a
segment costs a look-up. A fault is raised when the segment is entered in which it stands. The same automaton says when
accesses of LDS are known to be complete: `order.advance` at each, `order.complete` at waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.errors import LateData
from gpu_utils.virtual.machine import Op, Program, State, source_of
from gpu_utils.virtual.machine.program import Segment
from gpu_utils.virtual.sanitize.amd_automaton import Automaton, Late, Move
from gpu_utils.virtual.sanitize.amd_counters import wait_text, waits
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks
from gpu_utils.virtual.sanitize.report import kernel_and_line, reported, side_of

_OF_ORDER = {"lds": "lds", "async": "async", "tensor": "tensor"}
"""Order of a counter -> the queue of LDS accesses whose epochs it counts one by one."""


class InFlight:
    """What the waves of one batch have in flight: `state.watch.kept["waits"]`.

    numbers: the state of every wave, an int while all agree, else int32 (waves,).
    moves: what the segment that runs now does, with the waves that it is for (None: all).
    """

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.numbers: int | np.ndarray = 0
        self.moves: list[tuple[np.ndarray | None, Move]] = []
        self.op: Op | None = None

    def stores_in_flight(self, state: State) -> np.ndarray:
        """bool (waves,): whose stores to global memory may be under way where a wave stands now.

        For the running waves that is before the op that communicates (an atomic, an ordered access) and runs now.
        """
        holds = [any(access.does == "store" for access in self._of(number)) for number in self._distinct()]
        found = np.array(holds)[np.unique(self._every(state), return_inverse=True)[1]]
        if self.op is not None:
            for rows, move in self.moves:
                found[slice(None) if rows is None else rows] = self.op.index in move.stores
        return found

    def _of(self, number: int) -> Any:
        return self.automaton.in_flight(self.automaton.states[number])

    def _distinct(self) -> list[int]:
        return [self.numbers] if isinstance(self.numbers, int) else np.unique(self.numbers).tolist()

    def _every(self, state: State) -> np.ndarray:
        return np.full(state.waves, self.numbers, np.int32) if isinstance(self.numbers, int) else self.numbers

    def left(self, state: State, op: Op) -> int | np.ndarray:
        """How many loads to LDS a wait leaves in flight, of the running waves."""
        if len(self.moves) == 1:
            return self.moves[0][1].left[op.index]
        found = np.zeros(state.waves, np.int32)
        for rows, move in self.moves:
            found[rows] = move.left[op.index]
        return found if state.act is None else found[state.act]


class WaitHooks(NoHooks):
    """The calls of one program. registers: report late ones, as waitcheck does; racecheck asks only for the rest."""

    def __init__(self, program: Program, registers: bool = True) -> None:
        self.program = program
        self.automaton = Automaton(program, registers)
        own = [access for each in self.automaton.own for access in each]
        self.counted = {(access.counter, queue) for access in own if (queue := _OF_ORDER.get(access.order))}
        self.loading = {access.counter for access in own if access.does == "load to lds"}

    def entering(self, segment: Segment) -> Call:
        start, automaton = segment.start, self.automaton
        moves: dict[int, Move] = {}

        def moved(state: State, number: int, rows: np.ndarray | None) -> Move:
            move = moves.get(number)
            if move is None:
                move = moves[number] = automaton.move(start, number)
            if move.late is not None:
                raise late_data(state, move.late, 0 if rows is None else int(np.argmax(rows)))
            return move

        def call(state: State) -> None:
            now = state.watch.kept.get("waits")
            if now is None:
                now = state.watch.kept["waits"] = InFlight(automaton)
            now.op = None
            act, numbers = state.act, now.numbers
            if act is None and isinstance(numbers, int):
                move = moved(state, numbers, None)
                now.numbers, now.moves = move.after, [(None, move)]
                return
            if isinstance(numbers, int):
                numbers = np.full(state.waves, numbers, np.int32)
            running = np.ones(state.waves, bool) if act is None else act
            after, now.moves = numbers.copy(), []
            for number in np.unique(numbers[running]).tolist():
                rows = running & (numbers == number)
                move = moved(state, number, rows)
                after[rows] = move.after
                now.moves.append((rows, move))
            first = int(after[0])
            now.numbers = first if np.count_nonzero(after == first) == len(after) else after

        return call

    def before(self, op: Op) -> Call | None:
        queues = [queue for access in self.automaton.own[op.index] if (queue := _queue(access.order, access.does))]
        if not queues and not op.communicates:
            return None

        def call(state: State) -> None:
            for queue in queues:
                state.watch.order.advance(queue, slice(None) if state.act is None else state.act)
            if op.communicates:
                state.watch.kept["waits"].op = op

        return call

    def after(self, op: Op) -> Call | None:
        """At a wait: the accesses of LDS that it lets nobody doubt any more."""
        counts = waits(self.program.target, op)
        exact = {queue: counts[counter] for counter, queue in self.counted if counter in counts}
        loads = not self.loading.isdisjoint(counts)
        if not exact and not loads:
            return None

        def call(state: State) -> None:
            order, rows = state.watch.order, slice(None) if state.act is None else state.act
            for queue, count in exact.items():
                order.complete(queue, rows, order.now(queue)[rows] - count)
            if loads:
                left = state.watch.kept["waits"].left(state, op)
                order.complete("load to lds", rows, order.now("load to lds")[rows] - left)

        return call


def _queue(order: str, does: str) -> str | None:
    return "load to lds" if does == "load to lds" else _OF_ORDER.get(order)


def late_data(state: State, late: Late, wave: int) -> LateData:
    """The error for an op that uses a register too early."""
    does = "reads" if late.register in late.use.reads else "writes"
    missing = wait_text(state.program.target, late.needed)
    after = " when it came round again" if late.use is late.load else ""
    error = LateData(
        f"{kernel_and_line(state, late.use)}: `{late.use.text}` {does} {late.register} while `{late.load.text}`"
        f"{source_of(late.load)} is still to fill it{after}, in {state.where(wave, 0)}; put `{missing}` between them"
    )
    second = side_of(does, late.use, state, wave)
    first = side_of("fills", late.load, state, wave)
    return reported(error, "waitcheck", state, late.register, second, first, missing)
