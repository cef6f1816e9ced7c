"""Patterns of shared-memory addresses: what one of them costs and which words it means is worked out once.

Kernels go round loops, and many instructions add constants to one address register. So the same base addresses come
again and again; comparing them with those of before takes a fraction of the time of using them.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.virtual.kept import Kept


class Pattern:
    """Base addresses of one access in all waves of a batch: integers (waves, lanes), and the lanes that take part.

    low, high: of the lanes that take part, and bits: all their bits together, for the alignment. flat: byte offsets in
    the buffer of the batch; lanes that take no part have the address of one that does. costs: (bytes of a lane,
    constant offset within the banks, read or write) -> (waves, lanes, bank cycles, least cycles).
    block: waves of a block.
    """

    def __init__(self, base: np.ndarray, mask: np.ndarray | None, block_base: np.ndarray, block: int) -> None:
        self.block = block
        self.base, self.mask = base.copy(), None if mask is None else mask.copy()
        active = base if mask is None else base[mask]
        self.low, self.high = int(active.min()), int(active.max())
        self.bits = int(np.bitwise_or.reduce(active, axis=None))
        self.flat = base.astype(np.int64) + block_base
        if mask is not None:
            self.flat = np.where(mask, self.flat, self.flat[mask][0])
        self.costs: dict[tuple[int, int, str], tuple[int, int, int, int]] = {}
        self._places: dict[int, np.ndarray] = {}

    def holds(self, base: np.ndarray, mask: np.ndarray | None) -> bool:
        if mask is not None and np.count_nonzero(mask != self.mask):
            return False
        return not np.count_nonzero(base != self.base)

    def places(self, width: int) -> np.ndarray:
        """Numbers of words of `width` bytes, for bases that are multiples of it."""
        found = self._places.get(width)
        if found is None:
            found = self._places[width] = self.flat >> (width.bit_length() - 1)
        return found


class Patterns:
    """The patterns that one buffer of shared memory has met, MOST at a time, and those of parts of it.

    block_base: byte offset of each wave's block in the buffer, int64 (waves, 1); block: waves of a block.
    """

    MOST = 64

    def __init__(self, block_base: np.ndarray, block: int) -> None:
        self.block_base, self.block = block_base, block
        self.known: Kept[tuple[bytes, bytes, str, bool], Pattern] = Kept(self.MOST)
        self._of_blocks: dict[int, Patterns] = {}

    def of_blocks(self, blocks: int) -> Patterns:
        """The patterns of all parts that have so many blocks."""
        if blocks not in self._of_blocks:
            self._of_blocks[blocks] = Patterns(self.block_base[: blocks * self.block], self.block)
        return self._of_blocks[blocks]

    def find(self, base: np.ndarray, mask: np.ndarray | None) -> Pattern:
        """The pattern of these addresses; at least one lane takes part."""
        key = (base[0].tobytes(), base[-1].tobytes(), base.dtype.char, mask is None)
        pattern = self.known.get(key)
        if pattern is None or not pattern.holds(base, mask):
            pattern = self.known.keep(key, Pattern(base, mask, self.block_base, self.block))
        return pattern
