"""Whether a launch needs some of its barriers: an argument from all that was accessed, apart from racecheck's clocks.

A barrier parts what comes before it from what comes after, each as far as the next barrier in another place. It is
needed in shared memory when some wave changes a byte on one side that another wave touches on the other. Of several
barriers none is needed when that holds with all of them taken away. What waves of
a block say to each other through global memory is not looked at, except that in a kernel with a lock, blocks must meet
there by atomics alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.machine.program import Segment
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks, instrumented
from gpu_utils.virtual.shared_patterns import Pattern

_ON_ITS_WAY = -1
ONE_WAVE = "a block has one wave"
NOTHING_SHARED = (
    "no byte of shared memory that a wave changes on one side of it is touched on the other by a wave that has not "
    "itself written the same there"
)


class Sides(NoHooks):
    """Calls that gather what is accessed around barriers, the ops of these numbers. met: whether something crosses."""

    def __init__(self, barriers: Collection[int]) -> None:
        self.barriers, self.met = sorted(barriers), False
        self.parted = False  # waves of a block have met at several barriers, or of copies: nothing is said

    def entering(self, segment: Segment) -> Call:
        def attach(state: State) -> None:
            log = _log(state)
            if log is None:
                state.shared.watchers = (*state.shared.watchers, _Log(state, self))
            elif log.waits:
                log.go_on(_waves(state))

        return attach

    def before(self, op: Op) -> Call | None:
        if op.ends != "barrier" or op.kind != "barrier":  # a signal is one end of a barrier, its wait the other
            return None

        def come(state: State) -> None:
            log = _log(state)
            assert log is not None
            log.come(op.index, _waves(state))

        return come


def _log(state: State) -> _Log | None:
    return next((watcher for watcher in state.shared.watchers if isinstance(watcher, _Log)), None)


def _waves(state: State) -> np.ndarray:
    """The waves that run now, bool (waves,)."""
    if state.act is None:
        return np.ones(state.waves, bool)
    act: np.ndarray = state.act
    return act if act.ndim == 1 else np.logical_or.reduce(act, axis=1)


class _Log:
    """What the waves of each block have touched and changed, bool (waves of a block, bytes): behind, and here."""

    def __init__(self, state: State, sides: Sides) -> None:
        self.shared, self.sides, self.wave = state.shared, sides, state.wave_in_block
        shape = (state.waves_per_block, len(self.shared.bytes))
        self.touched, self.changed = np.zeros(shape, bool), np.zeros(shape, bool)
        self.touched_before, self.changed_before = np.zeros(shape, bool), np.zeros(shape, bool)
        self.number = 0  # of the last store; by[wave, byte]: of the last one of a wave there
        self.by = np.zeros(shape, np.int32)
        self.at = np.full((state.blocks, state.waves_per_block), _ON_ITS_WAY)  # the barrier that each wave waits at
        self.waits = False

    def come(self, barrier: int, waves: np.ndarray) -> None:
        """These waves, bool (waves,), come to a barrier, the op of that number."""
        self.at[waves.reshape(self.at.shape)] = barrier
        self.waits = True

    def go_on(self, waves: np.ndarray) -> None:
        """These waves begin a segment: a block of which one has waited until now has passed its barrier."""
        here = self.at != _ON_ITS_WAY
        passed = (here & waves.reshape(self.at.shape)).any(axis=1)
        if not passed.any():
            return
        met = self.at.max(axis=1)
        self.sides.parted |= bool((passed[:, None] & here & (self.at != met[:, None])).any())
        own = np.isin(met, self.sides.barriers)
        self.cross(passed & own)
        self.begin(passed & ~own & here.all(axis=1))  # one that some wave has not come to may not part it from others
        self.at[passed] = _ON_ITS_WAY
        self.waits = bool((self.at != _ON_ITS_WAY).any())

    def _of(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(len(rows), self.shared.blocks, -1)

    def cross(self, blocks: np.ndarray) -> None:
        """The waves of these blocks, bool (blocks,), pass a barrier in question."""
        for before, here in ((self.touched_before, self.touched), (self.changed_before, self.changed)):
            self._of(before)[:, blocks] |= self._of(here)[:, blocks]
            self._of(here)[:, blocks] = False

    def begin(self, blocks: np.ndarray) -> None:
        """They pass one that is not."""
        for each in (self.touched, self.changed, self.touched_before, self.changed_before):
            self._of(each)[:, blocks] = False

    def note(self, pattern: Pattern, offset: int, size: int, changes: np.ndarray | None) -> None:
        """changes: bool (lanes, size), which bytes get another value; None for a read."""
        waves = np.repeat(self.wave, pattern.flat.shape[1]).reshape(pattern.flat.shape)
        flat = pattern.flat
        if pattern.mask is not None:
            waves, flat = waves[pattern.mask], flat[pattern.mask]
        at = (flat.ravel() + offset)[:, None] + np.arange(size)
        rows = np.broadcast_to(waves.ravel()[:, None], at.shape)
        self.touched[rows, at] = True
        others = self.changed_before.sum(axis=0, dtype=np.int16)[at] > self.changed_before[rows, at]
        if changes is None:  # several waves may write one value in one store: each of them knows it
            others &= self.by[rows, at] < self.by.max(axis=0)[at]
        else:
            self.number += 1
            self.by[rows, at] = self.number
            rows, at = rows[changes], at[changes]
            self.changed[rows, at] = True
            both = self.touched_before.sum(axis=0, dtype=np.int16)[at] > self.touched_before[rows, at]
            others = others[changes] | both
        if np.count_nonzero(others):
            self.sides.met = True

    # what Shared tells

    def load(self, state: State, op: Op, pattern: Pattern, offset: int, size: int) -> None:
        self.note(pattern, offset, size, None)

    def store(self, state: State, op: Op, pattern: Pattern, offset: int, values: Sequence[np.ndarray]) -> None:
        new = np.stack([np.ravel(value) for value in values], axis=1).view(np.uint8)
        flat = pattern.flat if pattern.mask is None else pattern.flat[pattern.mask]
        at = (flat.ravel() + offset)[:, None] + np.arange(new.shape[1])
        self.note(pattern, offset, new.shape[1], self.shared.bytes[at] != new)

    def stored(self, state: State, op: Op, pattern: Pattern, offset: int, values: Sequence[np.ndarray]) -> None:
        """Nothing more to note."""

    def atomic(self, state: State, op: Op, pattern: Pattern, offset: int, size: int) -> None:
        lanes = pattern.flat.size if pattern.mask is None else int(np.count_nonzero(pattern.mask))
        self.note(pattern, offset, size, np.ones((lanes, size), bool))

    def touch(self, *access: Any) -> None:
        """Copies and products in flight have waits of their own: nothing is said of the barrier."""
        self.sides.parted = True


def unnecessary(
    program: Program, threads: int, barriers: Collection[Op], run: Callable[[Program], Launch]
) -> str | None:
    """Why a launch of `threads` threads a block needs none of these barriers, or None where that cannot be said.

    barriers: of `program.ops`. run: repeats the launch with another program in the place of this one.
    """
    if any(op.ends != "barrier" or op.kind != "barrier" for op in barriers):
        return None
    if threads <= program.lanes:
        return ONE_WAVE
    if any(each.mnemonic.startswith("mbarrier") for each in program.ops):
        return None
    sides = Sides([op.index for op in barriers])
    launch = run(instrumented(program, [sides]))
    locked = bool(program.locks) and not only_atomics(launch)
    return None if sides.met or sides.parted or locked else NOTHING_SHARED


def only_atomics(launch: Launch) -> bool:
    """Whether the blocks of a launch have met in global memory by atomics alone, or not at all."""
    return launch.memory.order is None or not launch.memory.order.asked
