"""Which tiles of attention's N x N scores a mask leaves, which of them need the mask, and what that saves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from gpu_utils.errors import BadArgument


class Tile(IntEnum):
    """SKIPPED: no query of the tile sees a key of it; FULL: each sees all; MASKED: some do, so scores need a mask."""

    SKIPPED = 0
    FULL = 1
    MASKED = 2


@dataclass(frozen=True)
class Scores:
    """The scores of one head, in tiles.

    N        positions: query i and key j, 0 to N - 1
    block_m  queries of a tile; block_n: keys of a tile. The last ones may reach behind N
    causal   whether query i sees keys up to i only
    window   with causal: how many keys it sees at most, its own included; None for all before

    Errors: BadArgument for sizes below 1, or a window without causal.

    >>> Scores(512, 64, 64, causal=True).kinds().tolist()[1]
    [1, 2, 0, 0, 0, 0, 0, 0]
    """

    N: int
    block_m: int
    block_n: int
    causal: bool = True
    window: int | None = None

    def __post_init__(self) -> None:
        if min(self.N, self.block_m, self.block_n, self.window or 1) < 1 or self.window == 0:
            raise BadArgument(f"{self} has a size below 1; expected positions, blocks and a window of 1 or more")
        if self.window is not None and not self.causal:
            raise BadArgument("a window without a causal mask is not drawn; expected causal=True with a window")

    def sees(self, query: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Whether each query sees each key; both are positions, also behind N, where nothing is seen."""
        seen = (query < self.N) & (key < self.N)
        if self.causal:
            seen &= key <= query
        if self.window is not None:
            seen &= key > query - self.window
        return seen

    def kinds(self) -> np.ndarray:
        """The Tile of each tile, by block of queries and block of keys; from the edges of the tiles alone."""
        first = np.arange(0, self.N, self.block_m)[:, None]
        key = np.arange(0, self.N, self.block_n)[None, :]
        last, last_key = np.minimum(first + self.block_m, self.N) - 1, np.minimum(key + self.block_n, self.N) - 1
        some = np.ones(np.broadcast(first, key).shape, dtype=bool)
        full = some & (key + self.block_n <= self.N)
        if self.causal:
            some &= key <= last
            full &= last_key <= first
        if self.window is not None:
            some &= last_key > first - self.window
            full &= key > last - self.window
        return np.where(full, Tile.FULL, np.where(some, Tile.MASKED, Tile.SKIPPED))

    @property
    def needed(self) -> int:
        """Scores that count: pairs of a query and a key that it sees."""
        if not self.causal:
            return self.N**2
        return int(np.minimum(np.arange(1, self.N + 1), self.window or self.N).sum())

    def flops(self, d: int, *, skipping: bool = True) -> int:
        """Matrix FLOPs of both products, for vectors of d: tiles are computed whole."""
        kinds = self.kinds()
        tiles = int((kinds != Tile.SKIPPED).sum()) if skipping else kinds.size
        return 4 * d * self.block_m * self.block_n * tiles

    def bytes_of_keys(self, d: int, itemsize: int, *, skipping: bool = True) -> int:
        """Bytes of K and V that all blocks of queries load together, where each loads the keys of its tiles."""
        keys = np.minimum(self.block_n, self.N - np.arange(0, self.kinds().shape[1]) * self.block_n)
        loaded = np.where((self.kinds() != Tile.SKIPPED) | (not skipping), keys[None, :], 0)
        return int(loaded.sum()) * 2 * d * itemsize
