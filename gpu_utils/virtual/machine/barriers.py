"""What an op asks of a barrier, and the barriers at which a unit does not wait where it arrives.

A whole barrier (`bar.sync`, `s_barrier`) is both at once. `bar.arrive` counts and goes on. A split barrier
(`s_barrier_signal` with `s_barrier_wait`, `barrier.cluster.arrive` with `.wait`) has two instructions: what a wave does
between them, it does while others may still be before or already behind the barrier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Arrive(NamedTuple):
    """Be counted at a barrier at which others wait, and go on; they say how many threads it takes."""

    number: int


class Signal(NamedTuple):
    """Be counted at a split barrier, and go on. relaxed: nothing is made visible to those who wait."""

    number: int
    relaxed: bool = False


class Await(NamedTuple):
    """Wait until all units of the block have signalled at a split barrier."""

    number: int


class SplitBarrier:
    """One split barrier in all blocks of a batch.

    signalled: units that have signalled since it was last complete. complete: units that may pass their next wait.
    whole: all units may, and nobody has signalled again.
    """

    def __init__(self, shape: tuple[int, ...], blocks: int) -> None:
        self.blocks, self.whole = blocks, False
        self.signalled, self.complete = np.zeros(shape, bool), np.zeros(shape, bool)

    @property
    def open(self) -> bool:
        """Whether some unit has signalled and not yet waited."""
        return self.whole or bool(self.signalled.any() or self.complete.any())

    def signal(self, units: np.ndarray) -> None:
        """Count units of any blocks."""
        self._spread()
        self.signalled |= units

    def settle(self, live: np.ndarray | None) -> np.ndarray | None:
        """Which blocks have all of their living units signalled now, bool (blocks,); None: no block."""
        if not np.count_nonzero(self.signalled):
            return None
        rows = self.signalled.reshape(self.blocks, -1)
        there = rows if live is None else rows | ~live.reshape(self.blocks, -1)
        full: np.ndarray = np.logical_and(there.all(axis=1), rows.any(axis=1))
        if not np.count_nonzero(full):
            return None
        self.complete.reshape(self.blocks, -1)[full] |= rows[full]
        rows[full] = False
        return full

    def take(self, units: np.ndarray) -> np.ndarray:
        """Of these units, those that may pass; each passes once."""
        self._spread()
        free = units & self.complete
        self.complete &= ~free
        return free

    def _spread(self) -> None:
        if self.whole:
            self.complete[...] = True
            self.whole = False
