"""In which order do programs take the tiles of a matrix product, and what does the L2 then ask of memory?

A chip runs some programs at a time, here in rounds: the first `resident` programs, then the next as many. On a chip of
several dies program i is on die i modulo the dies, and each die has an L2 of its own. All programs of a round go along
K together, so that a strip of A or B which several of them need reaches their L2 once. An order is an array with one
row (tile_m, tile_n) for each program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpu_utils.errors import BadArgument

LEAST_CHUNKS, MOST_CHUNKS, MOST_READS = 4, 16, 60_000
"""Parts of a strip along K that come and go in the cache one by one: fewer where there are many strips to follow."""


def row_by_row(tiles_m: int, tiles_n: int) -> np.ndarray:
    """The order of `pid // tiles_n, pid % tiles_n`.

    >>> row_by_row(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    pid = np.arange(tiles_m * tiles_n)
    return np.stack([pid // tiles_n, pid % tiles_n], axis=1)


def grouped(tiles_m: int, tiles_n: int, group: int) -> np.ndarray:
    """`group` rows of tiles at a time, down each column of the group, then the next column; the last group may be low.

    >>> grouped(3, 2, 2).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]]
    """
    if group < 1:
        raise BadArgument(f"group is {group}; expected 1 or more")
    pid = np.arange(tiles_m * tiles_n)
    first = pid // (group * tiles_n) * group
    height = np.minimum(tiles_m - first, group)
    inside = pid % (group * tiles_n)
    return np.stack([first + inside % height, inside // height], axis=1)


def by_die(order: np.ndarray, dies: int) -> np.ndarray:
    """The same tiles, dealt so that each die walks one part of the order without gaps: programs i, i + dies, ...

    >>> by_die(row_by_row(1, 5), 2)[:, 1].tolist()
    [0, 3, 1, 4, 2]
    """
    pid = np.arange(len(order))
    die, turn = pid % dies, pid // dies
    return order[len(order) // dies * die + np.minimum(die, len(order) % dies) + turn]


def rounds(order: np.ndarray, resident: int, dies: int = 1) -> Iterator[list[np.ndarray]]:
    """For each round the tiles of each die, in the order of their programs."""
    for first in range(0, len(order), resident):
        pid = np.arange(first, min(first + resident, len(order)))
        yield [order[pid[pid % dies == die]] for die in range(dies)]


def fetched_strips(order: np.ndarray, resident: int, dies: int = 1) -> int:
    """Strips of A and B that all L2s fetch, where nothing of a strip is left for the next round (a large K).

    Four tiles in one round: two strips of A and two of B. In two rounds of two, row by row: one of A and two of B each.

    >>> fetched_strips(row_by_row(2, 2), resident=4), fetched_strips(row_by_row(2, 2), resident=2)
    (4, 6)
    """
    return sum(
        len(set(tiles[:, 0].tolist())) + len(set(tiles[:, 1].tolist()))
        for one in rounds(order, resident, dies)
        for tiles in one
    )


def least_strips(tiles_m: int, tiles_n: int, resident: int, dies: int = 1) -> int:
    """What no order can go below: in each round the tiles of each die as near to a square as there is room for.

    >>> least_strips(64, 64, 132), least_strips(4, 64, 132)
    (717, 72)
    """
    total, tiles = 0, tiles_m * tiles_n
    for first in range(0, tiles, resident):
        here = min(resident, tiles - first)
        for die in range(dies):
            wanted = here // dies + (die < here % dies)  # resident is a multiple of dies, or there is one die
            total += min((rows + -(-wanted // rows) for rows in _heights(wanted, tiles_m, tiles_n)), default=0)
    return total


def _heights(wanted: int, tiles_m: int, tiles_n: int) -> range:
    return range(-(-wanted // tiles_n), min(tiles_m, wanted) + 1) if wanted else range(0)


@dataclass(frozen=True)
class OrderTraffic:
    """Bytes between the L2s and memory.

    read     of A and B, every fetching counted; written: of C, once
    least    A, B and C once
    """

    read: int
    written: int
    least: int

    @property
    def bytes(self) -> int:
        return self.read + self.written


def order_traffic(
    order: np.ndarray,
    sizes: tuple[int, int, int],
    block: tuple[int, int],
    resident: int,
    cache_bytes: int,
    dies: int = 1,
    dtype_bytes: int = 2,
) -> OrderTraffic:
    """Bytes from memory when each die has a cache of `cache_bytes / dies` that forgets what was used longest ago.

    order  of the tiles of C; sizes: M, N, K; block: the tile; resident: programs of the whole chip at a time

    A strip is cut into parts along K. In a round the first parts of all its strips are read, then the second ones, and
    so on; what a part needs is fetched if the cache has lost it. The tiles of C are written at the end of the round and
    take room, too. The L2 model of the virtual GPUs, which replays single accesses, counts the same within a few
    percent (a test compares them).

    >>> order_traffic(row_by_row(2, 2), (256, 256, 1024), (128, 128), 4, cache_bytes=1 << 20).read == 2 * 256 * 1024 * 2
    True
    """
    (M, N, K), (block_m, block_n) = sizes, block
    chunks = max(LEAST_CHUNKS, min(MOST_CHUNKS, MOST_READS // fetched_strips(order, resident, dies)))
    chunks = max(1, min(chunks, K // 32))
    read = 0
    for die in range(dies):
        cache = _Cache(cache_bytes // dies)
        for one in rounds(order, resident, dies):
            tiles = one[die].tolist()
            strips = [(0, row) for row in dict.fromkeys(tile[0] for tile in tiles)]
            strips += [(1, column) for column in dict.fromkeys(tile[1] for tile in tiles)]
            high = [
                min(block_m, M - at * block_m) if side == 0 else min(block_n, N - at * block_n) for side, at in strips
            ]
            for chunk in range(chunks):
                deep = K * (chunk + 1) // chunks - K * chunk // chunks
                for strip, height in zip(strips, high, strict=True):
                    read += cache.read((*strip, chunk), height * deep * dtype_bytes)
            for row, column in tiles:
                wide = min(block_n, N - column * block_n)
                cache.read((2, row, column), min(block_m, M - row * block_m) * wide * dtype_bytes)
    written = M * N * dtype_bytes
    return OrderTraffic(read, written, (M * K + K * N) * dtype_bytes + written)


class _Cache:
    def __init__(self, room: int) -> None:
        self.room, self.held, self.used = room, OrderedDict[tuple[int, int, int], int](), 0

    def read(self, key: tuple[int, int, int], size: int) -> int:
        """Bytes that are fetched: none where the cache has them."""
        if key in self.held:
            self.held.move_to_end(key)
            return 0
        self.held[key] = size
        self.used += size
        while self.used > self.room and len(self.held) > 1:
            self.used -= self.held.popitem(last=False)[1]
        return size
