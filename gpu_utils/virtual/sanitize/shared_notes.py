"""What is noted of accesses of shared memory (LDS), for racecheck: who wrote and who read each entry last.

An entry is 4 bytes, or fewer where a narrower access came; it has the number of the access that wrote it last and the
wave that did, and for each wave that reads the number of its last read. An access is noted down at once, and goes into
these numbers when somebody may meet it: most are known to all waves of their block before, and are forgotten.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.virtual.kept import Kept
from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.sanitize.footprint import Footprint, Spans
from gpu_utils.virtual.sanitize.order import Order
from gpu_utils.virtual.sanitize.shared_faults import AGREED, NUMBER, WAVE, Access
from gpu_utils.virtual.shared_patterns import Pattern

_LAST = (1 << 31 - NUMBER) - 1
MOST_PENDING = 256
_MOST_KNOWN = 1 << 14  # accesses that some wave of some block does not know; the oldest of more are taken for known


class Notes:
    """Of one batch, the accesses that not all waves of their block know of.

    fenced: the agent that stands for what is behind a fence of the async proxy; 0 where there is none.
    """

    def __init__(self, state: State, order: Order, fenced: int) -> None:
        self.shared, self.order, self._fenced = state.shared, order, fenced
        self.per_block, self.wave = state.waves_per_block, state.wave_in_block.astype(np.int32)
        self.grain, self.number = 4, 0
        self.writer = np.zeros(len(self.shared.bytes) // 4, np.int32)
        self.readers: dict[int, np.ndarray] = {}  # queue -> (waves of a block * entries of the buffer)
        self.known: int | np.ndarray = 0  # marks up to this one are of accesses that all know, or (waves,)
        self.accesses: dict[int, Access] = {}  # by their numbers, those that are not known to all
        self.writes, self.reads = Spans(), Spans()
        self.new_writes: list[Access] = []  # not yet in `writer`
        self.new_reads: list[Access] = []
        self._noted: set[tuple[int, ...]] = set()  # reads that came again
        self._latest: dict[int, np.ndarray] = {}  # queue -> newest epoch of each wave's accesses, (waves,)
        self._epochs: dict[int, np.ndarray] = {}
        self._footprints: Kept[tuple[Pattern, int, int], Footprint] = Kept(256)

    def forget(self) -> None:
        """Waves have learned something: what all of a block know now need not be remembered."""
        if not self.accesses:
            return
        least = self.order.known.reshape(-1, self.per_block, self.order.known.shape[1]).min(axis=1)
        clean = np.ones(len(least), bool)
        for queue, latest in self._latest.items():
            for agent in {queue, self._fenced} if queue == 0 else {queue}:
                first = agent * self.per_block
                clean &= (least[:, first : first + self.per_block] >= latest.reshape(-1, self.per_block)).all(axis=1)
        if clean.all():
            self._forget_all()
            return
        if clean.any():
            per_wave = np.repeat(clean, self.per_block)
            self.known = np.where(per_wave, self._newest(), self.known).astype(np.int32)
            for latest in self._latest.values():
                latest[per_wave] = 0
        self._drop_known(least)

    def _drop_known(self, least: np.ndarray) -> None:
        """Forget single accesses that all waves know; least (blocks, agents): what all waves of a block know."""
        left: dict[int, Access] = {}
        for queue in {access.queue for access in self.accesses.values()}:
            same = [access for access in self.accesses.values() if access.queue == queue]
            epochs = np.stack([access.epochs for access in same]).reshape(len(same), -1, self.per_block)
            known = np.ones(len(same), bool)
            for agent in {queue, self._fenced} if queue == 0 else {queue}:
                first = agent * self.per_block
                known &= (least[:, first : first + self.per_block] >= epochs).all(axis=(1, 2))
            left |= {access.number: access for access, over in zip(same, known.tolist(), strict=True) if not over}
        if len(left) == len(self.accesses):
            return
        self.accesses = dict(sorted(left.items()))
        self.new_writes = [access for access in self.new_writes if access.number in left]
        self.new_reads = [access for access in self.new_reads if access.number in left]
        self.writes.clear()
        self.reads.clear()
        self._noted.clear()
        for access in self.accesses.values():
            (self.reads if access.kind == "load" else self.writes).add(access.foot.low, access.foot.high)
        oldest = min(left) - 1 << NUMBER | AGREED | WAVE
        self.known = max(self.known, oldest) if isinstance(self.known, int) else np.maximum(self.known, oldest)

    def _footprint(self, pattern: Pattern, offset: int, size: int) -> Footprint:
        key = pattern, offset, size
        found = self._footprints.get(key)
        if found is None:
            bits = pattern.bits | offset | size
            self._refine(bits & -bits)
            found = Footprint.of(pattern, offset, size, self.grain, self.shared.stride)
            self._footprints.keep(key, found)
        return found

    def _access(self, op: Op, foot: Footprint, queue: int, kind: str) -> Access:
        now = self.order.epoch[:, queue]
        epochs = self._epochs.get(queue)
        if epochs is None or not np.array_equal(epochs, now):
            epochs = self._epochs[queue] = now.copy()
        if not foot.all:
            epochs = np.where(foot.takes, epochs, 0).astype(np.int32)
        return Access(op, foot, queue, kind, epochs, self.wave)

    def _note(self, access: Access) -> None:
        if self.number >= _LAST - 1:
            self._restart()
        self.number += 1
        access.number = self.number
        access.stretch = self.order.epoch[:, 0].copy()
        self.accesses[self.number] = access
        if len(self.accesses) > _MOST_KNOWN:
            self._settle_writes()
            self._settle_reads()
            for number in list(self.accesses)[: _MOST_KNOWN // 2]:
                del self.accesses[number]
        latest = self._latest.get(access.queue)
        self._latest[access.queue] = access.epochs.copy() if latest is None else np.maximum(latest, access.epochs)

    def _newest(self) -> int:
        """Marks up to now are not above it."""
        return self.number << NUMBER | AGREED | WAVE

    def _forget_all(self) -> None:
        self.known = self._newest()
        self.accesses.clear()
        self.writes.clear()
        self.reads.clear()
        self.new_writes, self.new_reads = [], []
        self._noted.clear()
        self._latest.clear()

    def _restart(self) -> None:
        self._forget_all()
        self.writer[:] = 0
        self.readers.clear()
        self.number = self.known = 0

    def _settle_writes(self) -> None:
        for access in self.new_writes:
            access.foot.scatter(self.writer, access.marks())
        self.new_writes = []

    def _settle_reads(self) -> None:
        for access in self.new_reads:
            readers = self.readers.get(access.queue)
            if readers is None:
                readers = self.readers[access.queue] = np.zeros(self.per_block * len(self.writer), np.int32)
            access.foot.of_waves(self.wave, len(self.shared.bytes)).scatter(readers, access.marks())
        self.new_reads = []

    def _of_wave(self, readers: np.ndarray, wave: int) -> np.ndarray:
        return readers[wave * len(self.writer) : (wave + 1) * len(self.writer)]

    def _refine(self, grain: int) -> None:
        """Let an entry stand for fewer bytes, when an access is narrower or lies across entries."""
        if grain >= self.grain:
            return
        self._settle_writes()
        self._settle_reads()
        fold, self.grain = self.grain // grain, grain
        self.writer = np.repeat(self.writer, fold)
        self.readers = {queue: np.repeat(readers, fold) for queue, readers in self.readers.items()}
        self._footprints.clear()
        for access in self.accesses.values():
            foot = access.foot
            finer = Footprint(foot.rows, foot.lanes, foot.flat, foot.size, grain, len(foot.takes))
            finer.low, finer.high = foot.low, foot.high
            access.foot = finer
