"""Patterns of global addresses: what follows from how the lanes of an access lie to each other is worked out once.

Blocks, rounds of a loop and launches come again with the same pattern somewhere else in memory. Comparing it with one
of before takes a fraction of the time of counting sectors, finding bounds and looking for neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_utils.virtual.atomics import Turns
from gpu_utils.virtual.kept import Kept

# Waves and lanes that take part, transactions, and the fewest possible.
Touched = tuple[int, int, int, int]
# Bytes of the patterns that are kept, for all launches.
_MOST_BYTES = 1 << 26
_SAMPLES = 61


class Pattern:
    """Addresses of one access in all waves of a batch, relative to that of the first lane that takes part.

    delta: int64 (waves, lanes). mask: bool of that shape, or None when all lanes take part; at least one does.
    active: delta of the `count` lanes that take part, (count,). low, high: the least and the greatest of them; bits:
    all their bits together, for the alignment. costs: (bytes of a lane, first address within a sector, bytes of a
    sector) -> what the counters say.
    """

    def __init__(self, delta: np.ndarray, mask: np.ndarray | None, count: int) -> None:
        self.delta, self.mask, self.count = delta, None if mask is None else mask.copy(), count
        self.active = delta.ravel() if mask is None else delta[mask]
        self.low, self.high = int(self.active.min()), int(self.active.max())
        self.bits = int(np.bitwise_or.reduce(self.active))
        self.costs: dict[tuple[int, int, int], Touched] = {}
        self._step: int | None = None
        self._gap: int | None = None
        self._runs: dict[int, int] = {}
        self._starts: dict[tuple[int, int, bool], np.ndarray] = {}
        self._per_wave: np.ndarray | None = None
        self._prefix: bool | None = None
        self._turns: Turns | None = None
        self._has_turns = False

    def holds(self, delta: np.ndarray, mask: np.ndarray | None) -> bool:
        """Whether this is the pattern of other addresses, of as many lanes; where idle lanes point does not matter."""
        if mask is not None and np.count_nonzero(mask != self.mask):
            return False
        differs = delta != self.delta
        if not np.count_nonzero(differs):
            return True
        return mask is not None and not np.count_nonzero(differs & mask)

    @property
    def per_wave(self) -> np.ndarray:
        """How many lanes of each wave take part, (waves,)."""
        if self._per_wave is None:
            waves, lanes = self.delta.shape
            full = np.full(waves, lanes) if self.mask is None else np.add.reduce(self.mask, axis=1, dtype=np.int64)
            self._per_wave = full
        return self._per_wave

    @property
    def turns(self) -> Turns | None:
        """In which order lanes come that meet at an address."""
        if not self._has_turns:
            self._turns, self._has_turns = Turns.of(self.active), True
        return self._turns

    @property
    def prefix(self) -> bool:
        """Whether the lanes that take part come before all others."""
        if self._prefix is None:
            self._prefix = self.mask is None or bool(self.mask.ravel()[: self.count].all())
        return self._prefix

    def apart(self, size: int) -> bool:
        """Whether no two lanes share a byte of the `size` that each accesses."""
        if self._gap is None:
            ordered = np.sort(self.active)
            self._gap = int((ordered[1:] - ordered[:-1]).min()) if self.count > 1 else 1 << 62
        return self._gap >= size

    def side_by_side(self, size: int) -> bool:
        """Whether the lanes that take part, in order, fill one span of memory with `size` bytes each."""
        if self._step is None:
            step = self.high // max(self.count - 1, 1)
            even = step and np.array_equal(self.active, np.arange(0, self.high + 1, step))
            self._step = step if even else 0
        return self._step == size or self.count == 1

    def run(self, size: int) -> int:
        """Bytes of the longest items that all lanes together are made of: lanes of one wave side by side.

        0 when not even one lane's `size` bytes are an item, that is, apart from others by multiples of itself.
        """
        found = self._runs.get(size)
        if found is None:
            found = self._runs[size] = self._longest(size)
        return found

    def _longest(self, size: int) -> int:
        if size & (size - 1):
            return 0
        lanes = self.delta.shape[1]
        length = 1 if self.mask is not None else lanes & -lanes
        while length > 1:
            rows = self.delta.reshape(-1, length)
            if (
                not int(np.bitwise_or.reduce(rows[:, 0])) & (length * size - 1)
                and (rows[:, 1:] - rows[:, :-1] == size).all()
            ):
                break
            length //= 2
        return 0 if length == 1 and self.bits & (size - 1) else length * size

    def starts(self, size: int, step: int, whole: bool = False) -> np.ndarray:
        """Numbers of the items of `step` bytes from the first lane's on.

        (waves, items of a wave); under a mask (count,), or, with `whole`, one for every lane (waves, lanes), those
        that take no part where the first one is.
        """
        key = size, step, whole
        found = self._starts.get(key)
        if found is None:
            if self.mask is None:
                first = self.delta[:, :: max(step // size, 1)]
            elif whole:
                first = np.where(self.mask, self.delta, 0)
            else:
                first = self.active
            found = self._starts[key] = first >> (step.bit_length() - 1)
        return found

    def pick(self, value: np.ndarray) -> np.ndarray:
        """What the lanes that take part have in a row: the row itself, or (count,)."""
        if self.mask is None:
            return value
        return value.reshape(-1)[: self.count] if self.prefix else value[self.mask]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """A row of what `pick` gives; the other lanes hold anything."""
        if self.mask is None:
            return values.reshape(self.delta.shape)
        row = np.empty(self.delta.shape, values.dtype)
        if self.prefix:
            row.reshape(-1)[: self.count] = values
        else:
            row[self.mask] = values
        return row


_known: Kept[tuple[tuple[int, ...], int, bytes], Pattern] = Kept(_MOST_BYTES)


class Found(NamedTuple):
    """The addresses of an access: a pattern, and the address of the first lane that takes part."""

    pattern: Pattern
    base: int

    @property
    def address(self) -> np.ndarray:
        """int64 (waves, lanes); lanes that take no part point anywhere."""
        return self.pattern.delta + self.base


def find(address: np.ndarray, mask: np.ndarray | None) -> Found:
    """The pattern of these addresses.

    address: int64 (waves, lanes); mask: as `words.narrow` gives it, some lanes take part.
    """
    every = address.size // _SAMPLES | 1
    if mask is None:
        base, count = address.item(0), address.size
    else:
        base, count = address.item(int(mask.argmax())), int(np.count_nonzero(mask))
    delta = np.subtract(address, base, order="C")
    sample = delta.reshape(-1)[::every]
    if mask is not None:
        sample = np.where(mask.reshape(-1)[::every], sample, -1)
    key = delta.shape, count, sample.tobytes()
    pattern = _known.get(key)
    if pattern is None or not pattern.holds(delta, mask):
        pattern = _known.keep(key, Pattern(delta, mask, count), 4 * delta.nbytes)
    return Found(pattern, base)
