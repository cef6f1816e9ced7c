"""Which entries of a shadow of shared memory an access covers."""

from __future__ import annotations

import numpy as np

from gpu_utils.virtual.shared_patterns import Pattern
from gpu_utils.virtual.words import items_of


class Footprint:
    """The entries of the lanes that take part in an access; an entry stands for `grain` bytes of a batch's buffer.

    rows (n,): the wave of each lane. lanes (n,): its number in the wave. flat (n,): bytes from the start of the buffer.
    entries: of a lane. low, high: the bytes of a block that it lies within. takes (waves,): which waves take part.
    """

    def __init__(
        self, rows: np.ndarray, lanes: np.ndarray, flat: np.ndarray, size: int, grain: int, waves: int
    ) -> None:
        self.rows, self.lanes, self.flat, self.size, self.grain = rows, lanes, flat, size, grain
        self.entries = size // grain
        self.low = self.high = 0
        self.takes = np.zeros(waves, bool)
        self.takes[rows] = True
        self.all = bool(self.takes.all())
        # lanes that cover whole items of 1, 2 or 4 entries are looked up at once
        together = self.entries in (1, 2, 4) and not np.count_nonzero(flat & (size - 1))
        self.items = flat // size if together else None
        self._index: np.ndarray | None = None
        self._apart: Footprint | None = None
        self.clashing: np.ndarray | None = None  # bool (n, entries): two waves meet there in this one access

    @classmethod
    def of(cls, pattern: Pattern, offset: int, size: int, grain: int, stride: int) -> Footprint:
        """That of a pattern with a constant added."""
        waves, lanes = pattern.flat.shape
        rows, numbers = np.divmod(np.arange(waves * lanes), lanes)
        flat = pattern.flat.ravel() + offset
        if pattern.mask is not None:
            mask = pattern.mask.ravel()
            rows, numbers, flat = rows[mask], numbers[mask], flat[mask]
        found = cls(rows, numbers, flat, size, grain, waves)
        found.low, found.high = pattern.low + offset, pattern.high + offset + size
        return found

    @property
    def index(self) -> np.ndarray:
        """Entries of each lane, (n, entries)."""
        if self._index is None:
            self._index = (self.flat // self.grain)[:, None] + np.arange(self.entries)
        return self._index

    def of_waves(self, wave: np.ndarray, size: int) -> Footprint:
        """The same in a shadow that has one buffer of `size` bytes for each wave of a block; wave (waves,): which."""
        if self._apart is None:
            flat = self.flat + wave[self.rows].astype(np.int64) * size
            self._apart = Footprint(self.rows, self.lanes, flat, self.size, self.grain, len(self.takes))
        return self._apart

    def gather(self, shadow: np.ndarray) -> np.ndarray:
        """What a shadow (entries of the buffer,) of int32 holds there, (n, entries)."""
        if self.items is None:
            return shadow.take(self.index)
        return items_of(shadow, 4 * self.entries).take(self.items).view(np.int32).reshape(-1, self.entries)

    def scatter(self, shadow: np.ndarray, marks: np.ndarray) -> None:
        """Write one mark for each lane, int32 (n,), to all of its entries; of several lanes the last one wins."""
        if self.items is None:
            shadow[self.index] = marks[:, None]
        elif self.entries == 1:
            shadow[self.items] = marks
        else:
            items = items_of(shadow, 4 * self.entries)
            items[self.items] = items_of(np.repeat(marks, self.entries), 4 * self.entries)


class Spans:
    """Ranges of bytes, joined where they touch; when there are many, one that holds them all."""

    MOST = 16

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def add(self, low: int, high: int) -> None:
        rest = []
        for first, last in self.spans:
            if first <= high and low <= last:
                low, high = min(low, first), max(high, last)
            else:
                rest.append((first, last))
        rest.append((low, high))
        if len(rest) > self.MOST:
            rest = [(min(first for first, _ in rest), max(last for _, last in rest))]
        self.spans = rest

    def meets(self, low: int, high: int) -> bool:
        return any(first < high and low < last for first, last in self.spans)

    def clear(self) -> None:
        self.spans = []
