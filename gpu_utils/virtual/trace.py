"""A record of what one wave of one program did: every instruction with the registers that it changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_utils.virtual.machine import Op, State


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction.

    index: place of the instruction in the program. line: (file, number) of the source, or None. active: bool
    (lanes,), the lanes that may write after it. changed: register name -> new bits, (lanes,) or (1,).
    """

    index: int
    text: str
    line: tuple[str, int] | None
    active: np.ndarray
    changed: dict[str, np.ndarray]


class Trace:
    """Give it to `VirtualGpu.trace`; `steps` holds what the wave did, `first` its registers at the start of the record.

    program: grid coordinates (x, y, z). wave: number within the block. limit: steps after which it stops recording.
    """

    def __init__(self, program: tuple[int, int, int] = (0, 0, 0), wave: int = 0, limit: int = 20_000) -> None:
        self.program, self.wave, self.limit = tuple(program), wave, limit
        self.steps: list[Step] = []
        self.first: dict[str, np.ndarray] = {}
        self._before: dict[str, np.ndarray] = {}
        self._state: State | None = None
        self._row = 0

    def begin(self, state: State) -> None:
        """Called for every batch of blocks before its first instruction."""
        row = self._find(state)
        if row is not None:
            self._state, self._row = state, row
            self._before = state.snapshot(row)
            self.first = self.first or self._before

    def __call__(self, state: State, op: Op) -> None:
        """Called by the machine after each instruction."""
        row = self._row
        if state is not self._state or len(self.steps) >= self.limit:
            return
        if state.act is not None and not np.any(state.act[row]):
            return
        now = state.snapshot(row)
        changed = {name: value for name, value in now.items() if not np.array_equal(value, self._before[name])}
        active = np.ones(state.lanes, bool) if state.mask is None else state.mask[row].copy()
        self.steps.append(Step(op.index, op.text, op.line, active, changed))
        self._before = now

    def _find(self, state: State) -> int | None:
        blocks = np.flatnonzero((state.block_ids == np.array(self.program)).all(axis=1))
        if not len(blocks) or self.wave >= state.waves_per_block:
            return None
        return int(blocks[0]) * state.waves_per_block + self.wave

    def value(self, name: str, step: int = -1) -> np.ndarray:
        """Bits of a register after a step (the last one by default)."""
        stop = len(self.steps) if step == -1 else step + 1
        for done in reversed(self.steps[:stop]):
            if name in done.changed:
                return done.changed[name]
        return self.first[name]
