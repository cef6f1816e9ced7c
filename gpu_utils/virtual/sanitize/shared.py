"""racecheck: accesses of shared memory (LDS) that nothing orders, by a shadow of it.

A read needs to know the write before it, a write of another value the write and all reads before it: their epochs, by
`order.Order`. All waves of a block run in step here, so the result does not show when they do not.

What is noted of an access is in `shared_notes`. Where no write lies in the range of a read, or no access in that of a
write, since all waves of a block have known of each other, nothing is asked.

Triton lets several waves hold copies of one element and store it together. Copies can differ by a rounding: a sum over
lanes whose first product is fused (fma) rounds another of its terms in each lane. So in what Triton has compiled,
waves that meet in one store instruction hold copies, whatever the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.sanitize.footprint import Footprint
from gpu_utils.virtual.sanitize.order import Order
from gpu_utils.virtual.sanitize.queues import proxy_queues, queue_of
from gpu_utils.virtual.sanitize.shared_faults import AGREED, NUMBER, WAVE, Access, complain
from gpu_utils.virtual.sanitize.shared_notes import MOST_PENDING, Notes
from gpu_utils.virtual.shared_patterns import Pattern
from gpu_utils.virtual.words import UINT


class Shadow(Notes):
    """What one batch's waves have done to shared memory and not all of their block know of."""

    def __init__(self, state: State, order: Order, isa: str) -> None:
        # queues that see what waves have written behind a fence only
        proxy = proxy_queues(isa, state.program.ops)
        super().__init__(state, order, order.queues["fenced"] if proxy else 0)
        self.isa = isa
        self.proxy = frozenset(order.queues[name] for name in proxy)
        self._copies = state.launch.metadata is not None  # of Triton
        self._queues: dict[Op, int] = {}

    # what Shared tells

    def load(self, state: State, op: Op, pattern: Pattern, offset: int, size: int) -> None:
        """A read of `size` bytes by each lane of a pattern. Raises Race, LateData."""
        self._read(state, op, self._footprint(pattern, offset, size), self._queue(op))

    def store(self, state: State, op: Op, pattern: Pattern, offset: int, values: Sequence[np.ndarray]) -> None:
        """Before a write of these words, of the lanes that take part. Raises Race, LateData."""
        size = len(values) * values[0].itemsize
        self._write(state, op, self._footprint(pattern, offset, size), self._queue(op), values)

    def stored(self, state: State, op: Op, pattern: Pattern, offset: int, values: Sequence[np.ndarray]) -> None:
        """After it: two waves may have met in it, with values that differ."""
        size = len(values) * values[0].itemsize
        foot = self._footprint(pattern, offset, size)
        if foot.clashing is None or not foot.clashing.any():
            return
        lost = (self._words(foot) != self._new(values, foot)) & foot.clashing
        winner = self.writer.take(foot.index)
        lost &= (winner & WAVE) != self.wave[foot.rows][:, None]
        if lost.any() and not self._copies:
            lane, entry = (int(at) for at in np.argwhere(lost)[0])
            access = self.accesses[self.number]
            complain(self, state, access, access, lane, entry, int(winner[lane, entry]) & WAVE)
        agreed = foot.index[foot.clashing]
        self.writer[agreed] |= AGREED

    def atomic(self, state: State, op: Op, pattern: Pattern, offset: int, size: int) -> None:
        """Before an update by an atomic. Raises Race, LateData."""
        self._write(state, op, self._footprint(pattern, offset, size), self._queue(op), None, "atomic")

    def touch(
        self, state: State, op: Op, waves: np.ndarray, flat: np.ndarray, size: int, kind: str, queue: str | None
    ) -> None:
        """As `Shared.touch` says. Raises Race, LateData."""
        if not len(waves):
            return
        places = np.broadcast_to(flat, (len(waves), *np.shape(flat)[1:])).reshape(len(waves), -1)
        rows = np.repeat(waves, places.shape[1])
        bits = int(np.bitwise_or.reduce(places, axis=None)) | size
        self._refine(bits & -bits)
        foot = Footprint(rows, np.zeros(len(rows), np.int64), places.ravel(), size, self.grain, state.waves)
        inside = foot.flat % self.shared.stride
        foot.low, foot.high = int(inside.min()), int(inside.max()) + size
        number = 0 if queue is None else self.order.queues[queue]
        if kind == "load":
            self._read(state, op, foot, number)
        else:
            self._write(state, op, foot, number, None, kind)

    # one access

    def _read(self, state: State, op: Op, foot: Footprint, queue: int) -> None:
        access = self._access(op, foot, queue, "load")
        if self.writes.meets(foot.low, foot.high):
            self._settle_writes()
            marks = foot.gather(self.writer)
            hot = marks > (self.known if isinstance(self.known, int) else self.known[foot.rows][:, None])
            if np.count_nonzero(hot):
                self._check(state, access, marks, hot)
        key = (id(foot), queue, id(access.epochs), op.index)
        if key in self._noted:  # the footprint is kept by the access that was noted
            return
        self._noted.add(key)
        self._note(access)
        self.reads.add(foot.low, foot.high)
        self.new_reads.append(access)
        if len(self.new_reads) > MOST_PENDING:
            self._settle_reads()

    def _write(
        self,
        state: State,
        op: Op,
        foot: Footprint,
        queue: int,
        values: Sequence[np.ndarray] | None,
        kind: str = "store",
    ) -> None:
        access = self._access(op, foot, queue, kind)
        known = self.known if isinstance(self.known, int) else self.known[foot.rows][:, None]
        kept: np.ndarray | None = None  # entries that are left as they were, where somebody else has been
        before = None
        if self.writes.meets(foot.low, foot.high):
            self._settle_writes()
            before = foot.gather(self.writer)
            hot = before > known
            if np.count_nonzero(hot):
                kept = self._check(state, access, before, hot, values)
        if self.reads.meets(foot.low, foot.high):
            self._settle_reads()
            for number, readers in self.readers.items():
                for wave in range(self.per_block):
                    marks = foot.gather(self._of_wave(readers, wave))
                    hot = (marks > known) & ((self.wave[foot.rows] != wave) | (number != queue))[:, None]
                    if np.count_nonzero(hot):
                        same = self._check(state, access, marks, hot, values)
                        kept = same if kept is None else kept | same
        self._note(access)
        self._noted.clear()
        self.writes.add(foot.low, foot.high)
        self.new_writes.append(access)
        if kept is not None and kept.any():
            before = foot.gather(self.writer) if before is None else before
            self._settle_writes()
            self.writer[foot.index[kept]] = before[kept] | AGREED
        elif values is not None and (foot.clashing is None or foot.clashing.any()):
            self._settle_writes()
            if foot.clashing is None:
                foot.clashing = foot.gather(self.writer) != access.marks()[:, None]
                if foot.clashing.any():  # and those of the wave that came last there
                    foot.clashing = np.isin(foot.index, foot.index[foot.clashing])
        elif len(self.new_writes) > MOST_PENDING:
            self._settle_writes()

    def _check(
        self, state: State, access: Access, marks: np.ndarray, hot: np.ndarray, values: Any = None
    ) -> np.ndarray:
        """Find the accesses behind these marks that the access does not know. Returns where it stores the same."""
        lanes, entries = np.nonzero(hot)
        found = marks[lanes, entries]
        rows, whose = access.foot.rows[lanes], found & WAVE
        unknown = np.zeros(len(found), bool)
        for number in np.unique(found >> NUMBER).tolist():
            first = self.accesses.get(number)
            if first is None or (first.kind == access.kind == "atomic"):
                continue
            of = found >> NUMBER == number
            row, other = rows[of], whose[of]
            theirs = row - self.wave[row] + other
            unseen = access.kind == "load" and access.queue in self.proxy and first.queue == 0
            agent = self._fenced if unseen else first.queue
            knows = self.order.known[row, agent * self.per_block + other] >= first.epochs[theirs]
            own = (other == self.wave[row]) & (agent in (0, access.queue))
            unknown[of] = ~(knows | own)
        if access.kind == "load" and np.count_nonzero(unknown):
            for at in np.flatnonzero(unknown & (found & AGREED != 0)):
                unknown[at] = not self._wrote_too(int(rows[at]), int(access.foot.index[lanes[at], entries[at]]))
        same = np.zeros(hot.shape, bool)
        if not np.count_nonzero(unknown):
            return same
        lanes, entries, found = lanes[unknown], entries[unknown], found[unknown]
        if values is not None:
            old, new = self._words(access.foot), self._new(values, access.foot)
            equal = old[lanes, entries] == new[lanes, entries]
            if self._copies:
                ours = [n for n, first in self.accesses.items() if first.op is access.op and first.kind == "store"]
                equal |= np.isin(found >> NUMBER, ours)
            same[lanes[equal], entries[equal]] = True
            lanes, entries, found = lanes[~equal], entries[~equal], found[~equal]
        if len(found):
            first = self.accesses[int(found[0]) >> NUMBER]
            complain(self, state, access, first, int(lanes[0]), int(entries[0]), int(found[0]) & WAVE)
        return same

    def _wrote_too(self, row: int, entry: int) -> bool:
        """Whether a wave itself has written what several waves wrote alike."""
        for access in self.accesses.values():
            foot = access.foot
            if access.kind == "store" and foot.takes[row] and (foot.index[foot.rows == row] == entry).any():
                return True
        return False

    # notes

    def _queue(self, op: Op) -> int:
        if op not in self._queues:
            name = queue_of(self.isa, op)
            self._queues[op] = 0 if name is None else self.order.queues[name]
        return self._queues[op]

    # values

    def _words(self, foot: Footprint) -> np.ndarray:
        """What the memory holds at the entries, (n, entries)."""
        return self.shared.words[self.grain].take(foot.index)

    def _new(self, values: Sequence[np.ndarray], foot: Footprint) -> np.ndarray:
        """The words of a store, in entries, (n, entries)."""
        width = foot.size // len(values)
        words = np.stack([np.ravel(value).astype(UINT[width], copy=False) for value in values], axis=1)
        return words.view(UINT[self.grain]).reshape(len(foot.rows), foot.entries)
