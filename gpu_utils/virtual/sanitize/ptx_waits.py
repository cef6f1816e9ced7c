"""waitcheck for PTX: registers that are accessed before the wgmma or tcgen05.ld that has them in flight is waited for.

A state of `ptx_registers.Automaton` has a number, and where it leads through a segment is worked out once. So a segment
costs one look-up for all warps that come from one state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_utils.errors import LateData
from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.machine.program import Segment
from gpu_utils.virtual.sanitize.guards import lanes_of, running
from gpu_utils.virtual.sanitize.instrument import Call
from gpu_utils.virtual.sanitize.ptx_async import PtxAsync
from gpu_utils.virtual.sanitize.ptx_registers import LOADED, NOBODY, Automaton, Fault, Where
from gpu_utils.virtual.sanitize.queues import queue_of
from gpu_utils.virtual.sanitize.report import kernel_and_line, reported, side_of

KEY = "ptx registers"
STORES = "bulk stores"


@dataclass
class Passage:
    """What a segment does to a state. under_guard: by op, the faults of ops that run only where their guard is true."""

    after: int
    fault: Fault | None
    under_guard: dict[int, Fault] = field(default_factory=dict)


class PtxWaits(PtxAsync):
    """Follows each warp's registers in flight, and keeps the clocks of its queues."""

    def __init__(self, program: Program) -> None:
        self.automaton = Automaton(program)
        self.states: list[Where] = [self.automaton.start]
        self.numbers = {self.automaton.start: 0}
        self.passages: dict[tuple[int, int], Passage] = {}

    def entering(self, segment: Segment) -> Call | None:
        ops = [*segment.ops, *([segment.stop] if segment.stop else [])]
        ops = [op for op in ops if self.automaton.concerns(op)]
        if not ops:
            return None
        guarded = any(op.guards for op in ops)

        def enter(state: State) -> None:
            kept = state.watch.kept.get(KEY)
            if kept is None:
                kept = state.watch.kept[KEY] = _Kept(np.zeros(state.waves, np.int64))
            rows: Any = None if state.act is None else state.act.any(axis=1)
            here = kept.numbers if rows is None else kept.numbers[rows]
            numbers = [int(here[0])] if (here == here[0]).all() else np.unique(here).tolist()
            after = here.copy()
            if guarded:
                kept.under_guard = {}
            for number in numbers:
                passage = self._passage(segment, ops, number)
                if passage.fault:
                    self._raise(state, passage.fault, int(_waves(rows, here == number)[0]))
                for op, fault in passage.under_guard.items():
                    kept.under_guard.setdefault(op, []).append((fault, _waves(rows, here == number)))
                after[here == number] = passage.after
            kept.numbers[slice(None) if rows is None else rows] = after

        return enter

    def after(self, op: Op) -> Call | None:
        if queue_of("ptx", op) != "bulk store" or op.kind == "wait":
            return super().after(op)

        def note(state: State) -> None:
            stores = state.watch.kept.setdefault(STORES, {})
            for wave in running(state, op).tolist():
                stores[wave] = int(state.watch.order.now("bulk store")[wave]), op

        return note

    def before(self, op: Op) -> Call | None:
        if op.ends == "end":
            return lambda state: _check_end(state, op)
        if not op.guards or not self.automaton.concerns(op):
            return super().before(op)

        def check(state: State) -> None:
            for fault, waves in state.watch.kept[KEY].under_guard.get(op.index, ()):
                lanes = lanes_of(state, op)
                runs = waves if lanes is None else waves[lanes[waves].any(axis=1)]
                if len(runs):
                    self._raise(state, fault, int(runs[0]))

        return check

    def _passage(self, segment: Segment, ops: list[Op], number: int) -> Passage:
        found = self.passages.get((segment.index, number))
        if found is None:
            at, found = self.states[number], Passage(0, None)
            for op in ops:
                after, fault = self.automaton.step(op, at)
                if op.guards:
                    if fault:
                        found.under_guard[op.index] = fault
                else:
                    at, found.fault = after, found.fault or fault
            if at not in self.numbers:
                self.numbers[at] = len(self.states)
                self.states.append(at)
            found.after = self.numbers[at]
            self.passages[segment.index, number] = found
        return found

    def _raise(self, state: State, fault: Fault, wave: int) -> None:
        op = fault.op
        second = side_of(fault.does, op, state, wave)
        if fault.first == NOBODY:
            first, why = None, "and no wgmma.fence stands before this first wgmma of its warpgroup"
        else:
            by = self.automaton.ops[fault.first]
            first = side_of("computes" if fault.missing != "wgmma.fence" else "accesses", by, state, wave)
            line = f" of line {by.line[1]}" if by.line else ""
            by_text = f"`{by.mnemonic}`{line}"
            if fault.missing == "wgmma.fence":
                why = f"which {by_text} has accessed, with no wgmma.fence between them"
            elif fault.missing == LOADED:
                why = f"which {by_text} is still loading; is a tcgen05.wait::ld missing?"
            else:
                why = f"which {by_text} has in flight; is a wgmma.wait_group missing that covers its group?"
        error = LateData(
            f"{kernel_and_line(state, op)}: {second.where} {fault.does} {fault.register}, {why} (`{op.mnemonic}`)"
        )
        raise reported(error, "waitcheck", state, fault.register, second, first, fault.missing)


def _check_end(state: State, op: Op) -> None:
    """A warp that ends must have waited for its bulk stores: the block's shared memory may be another's then."""
    stores = state.watch.kept.get(STORES)
    if not stores:
        return
    order = state.watch.order
    for wave in running(state, op).tolist():
        epoch, store = stores.get(wave, (0, None))
        if epoch <= order.known[wave, order.queues["bulk store"] * order.per_block + order.wave[wave]]:
            continue
        second, first = side_of("ends", op, state, wave), side_of("reads", store, state, wave)
        missing = "cp.async.bulk.wait_group.read"
        error = LateData(
            f"{kernel_and_line(state, store)}: {second.where} ends while its `{store.mnemonic}` may still read shared "
            f"memory, which another block may be given; is {missing} missing before the end?"
        )
        raise reported(error, "waitcheck", state, "shared memory", second, first, missing)


@dataclass
class _Kept:
    """numbers: the state of each warp, (waves,). under_guard: of the segment entered last, by op: (fault, warps)."""

    numbers: np.ndarray
    under_guard: dict[int, list[tuple[Fault, Any]]] = field(default_factory=dict)


def _waves(rows: np.ndarray | None, chosen: np.ndarray) -> np.ndarray:
    return np.flatnonzero(chosen) if rows is None else np.flatnonzero(rows)[chosen]
