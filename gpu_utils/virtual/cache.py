"""A model of the L2 cache: which of a launch's accesses reach the memory behind it.

The accesses of a launch are replayed through a set-associative cache with LRU replacement, lines divided into sectors,
write-back and write-allocate, cold at the start. What it leaves out: the first-level caches (their hits would be hits
here too), prefetching, compression, cache hints, and the scalar and instruction caches. A sector that is written
counts as valid, also when only part of it was written. Blocks start in launch order, as many as the chip holds at a
time, and blocks that are there together take turns; on a chip of several dies block i goes to die i modulo the dies,
and each die sees its own L2 only. Dirty sectors that are left at the end are written back.

On AMD's chips with an Infinity Cache the traffic counted here goes to that cache, as FETCH_SIZE and WRITE_SIZE do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from gpu_utils.chips.caches import L2_OF_TARGET, CacheSizes
from gpu_utils.errors import BadArgument

SECTOR = 32  # bytes of one entry of a recorded stream
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Traffic:
    """What the L2 of a launch asked of memory.

    read_bytes, written_bytes: between L2 and memory, written_bytes with what was dirty at the end (dirty_bytes of it).
    reads, writes: sectors of 32 bytes that arrived at the L2; read_hits: reads of a sector that had been read or
    written since its line came in.
    """

    read_bytes: int
    written_bytes: int
    dirty_bytes: int
    reads: int
    writes: int
    read_hits: int

    @property
    def bytes(self) -> int:
        """Bytes in both directions."""
        return self.read_bytes + self.written_bytes

    @property
    def read_hit_rate(self) -> float:
        """Share of the reads that are hits; 1.0 when there were none."""
        return self.read_hits / self.reads if self.reads else 1.0


@dataclass(frozen=True)
class Stream:
    """Accesses in the order in which they reach the L2; one entry a sector and wave instruction.

    sector: int64, address // 32; write, read: bool (an atomic is both); part: which L2, int64.
    """

    sector: np.ndarray
    read: np.ndarray
    write: np.ndarray
    part: np.ndarray


def replay(stream: Stream, cache: CacheSizes) -> Traffic:
    """Send a stream through a cold cache.

    Three reads of one line of a small cache, of which the second finds its sector there:

    >>> one = CacheSizes(size=4096, line=128, fill=32, ways=2, parts=1, units=1)
    >>> yes, no = np.ones(3, bool), np.zeros(3, bool)
    >>> replay(Stream(np.array([0, 0, 1]), yes, no, np.zeros(3, np.int64)), one).read_bytes
    64
    """
    if not len(stream.sector):
        return Traffic(0, 0, 0, 0, 0, 0)
    per_line, per_fill = cache.line // SECTOR, max(1, cache.fill // SECTOR)
    sets = max(1, cache.size // cache.parts // cache.line // cache.ways)
    line = stream.sector // per_line
    # runs of `sets` lines fill all sets evenly; a hash turns each run by another amount, so that strides spread
    turn = ((line // sets).astype(np.uint64) * np.uint64(_GOLDEN) >> np.uint64(33)).astype(np.int64)
    place = stream.part * sets + (line + turn) % sets

    order = np.lexsort((np.arange(len(place)), place))
    place, line, sector = place[order], line[order], stream.sector[order]
    read, write = stream.read[order], stream.write[order]
    stay, lasts = _stays(place, line, cache.ways)

    # within one stay of a line in the cache: the first use of a sector decides whether it must be filled
    by_sector = np.lexsort((np.arange(len(stay)), sector, stay))
    stay_s, sector_s, read_s, write_s = stay[by_sector], sector[by_sector], read[by_sector], write[by_sector]
    first = np.ones(len(stay_s), bool)
    first[1:] = (stay_s[1:] != stay_s[:-1]) | (sector_s[1:] != sector_s[:-1])
    fills = first & read_s
    grains = np.unique(np.stack([stay_s[fills], sector_s[fills] // per_fill]), axis=1).shape[1]
    starts = np.flatnonzero(first)
    dirty = np.logical_or.reduceat(write_s, starts)
    left = int((dirty & lasts[stay_s[starts]]).sum())
    reads = int(read.sum())
    return Traffic(
        read_bytes=grains * per_fill * SECTOR,
        written_bytes=int(dirty.sum()) * SECTOR,
        dirty_bytes=left * SECTOR,
        reads=reads,
        writes=int(write.sum()),
        read_hits=reads - int(fills.sum()),
    )


def _stays(place: np.ndarray, line: np.ndarray, ways: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the stays of lines in the cache: entries with one number found the line there since it came in.

    place: set of each entry, sorted; line: its line, in order of time within a set.
    Returns the number of each entry, and for each number whether the line was still there at the end.
    """
    # all entries of one line, for sets that never overflow
    pairs, index = np.unique(np.stack([place, line]), axis=1, return_inverse=True)
    index = index.ravel()
    per_set, counts = np.unique(pairs[0], return_counts=True)
    overflowing = per_set[counts > ways]
    stay = index.astype(np.int64)
    if not len(overflowing):
        return stay, np.ones(pairs.shape[1], bool)
    held = np.ones(pairs.shape[1], bool).tolist()
    chosen = np.flatnonzero(np.isin(place, overflowing))
    current: dict[int, dict[int, int]] = {}
    numbers = []
    fresh = pairs.shape[1]
    for at, which in zip(place[chosen].tolist(), index[chosen].tolist(), strict=True):
        lines = current.get(at)
        if lines is None:
            lines = current[at] = {}
        number = lines.pop(which, -1)  # put back below: the last key is the line used last
        if number < 0:
            number, fresh = fresh, fresh + 1
            held.append(True)
            if len(lines) == ways:
                held[lines.pop(next(iter(lines)))] = False
        lines[which] = number
        numbers.append(number)
    stay[chosen] = numbers
    return stay, np.array(held)


def stream_of(record: list[tuple[Any, ...]], parts: int, resident: int) -> Stream:
    """The record of a launch in the order in which a chip that holds `resident` blocks would see it.

    record: Counters.record. parts: caches that blocks are dealt to in turn.
    """
    if not record:
        return Stream(np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, np.int64))
    sizes = [len(entry[2]) for entry in record]
    block = np.concatenate([entry[1] for entry in record])
    sector = np.concatenate([entry[2] for entry in record])
    turn, read, write = (np.repeat([entry[i] for entry in record], sizes) for i in (0, 3, 4))
    order = np.lexsort((block, turn, block // resident))
    return Stream(sector[order], read[order], write[order], block[order] % parts)


def l2_traffic(launch: Any, cache: CacheSizes | None = None, resident: int | None = None) -> Traffic:
    """The L2's traffic of a launch that ran under `virtual_gpu(target, l2=True)`.

    cache: other sizes than those of the target's chip (gpu_utils.chips.caches). resident: blocks that run side by side;
    as many as the registers and shared memory of the launch leave room for on the chip. Raises BadArgument when the
    accesses were not recorded.
    """
    cache = cache or L2_OF_TARGET[launch.target].sizes
    return replay(_stream_of_launch(launch, cache, resident), cache)


def l2_in_order(launches: Sequence[Any], cache: CacheSizes | None = None) -> list[Traffic]:
    """The L2's traffic of each of several launches: the first finds it empty, each other one as it was left.

    Sizes and errors as for `l2_traffic`. What is dirty at the end of a launch stays, and is counted as written.
    """
    found: list[Traffic] = []
    whole: list[Stream] = []
    before = Traffic(0, 0, 0, 0, 0, 0)
    for launch in launches:
        sizes = cache or L2_OF_TARGET[launch.target].sizes
        whole.append(_stream_of_launch(launch, sizes, None))
        after = replay(Stream(*(np.concatenate(each) for each in zip(*map(_fields, whole), strict=True))), sizes)
        found.append(Traffic(*(late - early for late, early in zip(astuple(after), astuple(before), strict=True))))
        before = after
    return found


def _fields(stream: Stream) -> tuple[np.ndarray, ...]:
    return stream.sector, stream.read, stream.write, stream.part


def _stream_of_launch(launch: Any, cache: CacheSizes, resident: int | None) -> Stream:
    from gpu_utils.virtual.predict import resident_waves

    record = launch.counters.record
    if record is None:
        raise BadArgument(
            f"the accesses of {launch.name} were not recorded; open the virtual GPU as "
            f"virtual_gpu({launch.target!r}, l2=True)"
        )
    if resident is None:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        waves = -(-threads // launch.program.lanes)
        resident = cache.units * max(1, resident_waves(launch) // waves)
    return stream_of(record, cache.parts, resident)
