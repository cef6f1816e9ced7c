"""What one memory instruction of a warp or wavefront costs: segments in global memory, banks in shared memory.

Both rules are stated once, for arrays of waves; `counters` of the virtual GPU counts with the same functions.
An inactive lane has the address None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_utils.chips.banks import BANKS, WORD, Service, plain, service
from gpu_utils.chips.table import Table
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import BadArgument, UnknownName

Address = int | None


@dataclass(frozen=True)
class MemoryShape:
    """What decides transactions: bytes per global transaction, most banks of shared memory that an access sees (4 bytes
    each), and the target, whose row of `gpu_utils.chips.banks` says how each kind of access is served."""

    sector: int = 32
    banks: int = 32
    target: str = "sm_80"

    def service(self, access: str, size: int) -> Service:
        """How shared memory serves a "read" or a "write" of `size` bytes a lane."""
        return service(self.target, access, size)


SHAPES: Mapping[str, MemoryShape] = Table(
    "target", {name: MemoryShape(row.segment, row.banks, name) for name, row in TARGETS.items()}
)
"""Target -> its sizes. A transaction is a sector of 32 bytes on NVIDIA and a line of the vector L1 on AMD (sources in
gpu_utils.chips.targets)."""


# The rules, for many waves at once


def touched_segments(
    address: np.ndarray, size: int, mask: np.ndarray | None, segment: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """The aligned segments that each wave touches.

    address  int64 (waves, lanes); size: bytes per lane; mask: bool (waves, lanes) or None; segment: a power of two

    Returns (numbers of segments, sorted in each wave, -1 for lanes that do not take part, with repetitions;
    active lanes of each wave or None).

    >>> touched_segments(np.array([[0, 4, 28, 64]]), 4, None, 32)[0]
    array([[0, 0, 0, 2]])
    """
    shift = segment.bit_length() - 1
    touched = address >> shift
    if size > segment or int(np.bitwise_or.reduce(address, axis=None)) & (min(size, segment) - 1):
        steps = range(1, (size + segment - 2) // segment + 1)
        parts = [touched, *(np.minimum(touched + step, (address + size - 1) >> shift) for step in steps)]
        touched = np.concatenate(parts, axis=1)
    lanes = None
    if mask is not None:
        wide = mask if touched.shape == mask.shape else np.tile(mask, touched.shape[1] // mask.shape[1])
        touched = np.where(wide, touched, -1)
        lanes = np.count_nonzero(mask, axis=1)
    return np.sort(touched, axis=1), lanes


def bank_cycles(offset: np.ndarray, size: int, served: Service) -> tuple[int, int]:
    """Bank cycles of one shared-memory access and the least possible for the same lanes.

    offset: int64 (waves, lanes), -1 for a lane that does not take part; size: bytes per lane; served: of as many lanes.
    The lanes of one phase are served together: a bank serves one word a cycle, the same word to any number of lanes.

    >>> one_word = service("gfx942", "read", 4)
    >>> bank_cycles(np.arange(64)[None] * 4, 4, one_word), bank_cycles(np.arange(64)[None] * 8, 4, one_word)
    ((2, 2), (4, 2))
    """
    words, banks = max(1, size // WORD), served.banks
    if not served.in_order:
        offset = offset[:, served.order]
    waves, lanes = offset.shape
    first = offset >> 2
    wanted = first[..., None] + np.arange(words)
    wanted = np.where(offset[..., None] >= 0, wanted, -1).reshape(waves * (lanes // served.together), -1)
    active = (wanted >= 0).any(axis=1)
    ordered = np.sort(wanted, axis=1)
    fresh = np.ones(ordered.shape, bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=fresh[:, 1:])
    fresh &= ordered >= 0
    row = np.broadcast_to(np.arange(len(ordered))[:, None], ordered.shape)
    load = np.bincount((row * banks + ordered % banks)[fresh], minlength=len(ordered) * banks).reshape(-1, banks)
    return int(load.max(axis=1).sum()), int(active.sum())


# One wave, for people


@dataclass(frozen=True)
class Coalescing:
    """One global access of one wave.

    lanes         for each lane the numbers of the segments it touches; () for an inactive lane
    segments      distinct segments, in order
    least         transactions that the same bytes would need side by side, and no more than were used
    asked         bytes that the active lanes ask for
    used          distinct bytes among them
    segment       bytes of one segment
    """

    lanes: tuple[tuple[int, ...], ...]
    segments: tuple[int, ...]
    least: int
    asked: int
    used: int
    segment: int

    @property
    def transactions(self) -> int:
        return len(self.segments)

    @property
    def moved(self) -> int:
        """Bytes that the transactions move."""
        return self.transactions * self.segment

    @property
    def efficiency(self) -> float:
        """Distinct bytes asked for over bytes moved; 1.0 when nothing is moved."""
        return self.used / self.moved if self.moved else 1.0


def coalescing(addresses: Sequence[Address], access_bytes: int, segment: int) -> Coalescing:
    """Which aligned segments the lanes of one wave touch.

    addresses  byte address of each lane, None where it is inactive; access_bytes: of one lane
    segment    bytes: 32 on NVIDIA, 64 on gfx90a, 128 on the other AMD targets (`SHAPES[target].sector`)

    Errors: BadArgument for a segment that is no power of two, an access of no bytes, a negative address.

    >>> c = coalescing([8 * lane for lane in range(32)], access_bytes=4, segment=32)
    >>> c.transactions, c.least, c.efficiency, c.lanes[5]
    (8, 4, 0.5, (1,))
    """
    _check_access(addresses, access_bytes)
    if segment < 1 or segment & (segment - 1):
        raise BadArgument(f"a segment of {segment} bytes was asked for; expected a power of two such as 32, 64 or 128")
    rows, mask = _rows(addresses)
    ordered, _ = touched_segments(rows, access_bytes, mask, segment)
    found = tuple(int(number) for number in np.unique(ordered) if number >= 0)
    active = int(mask.sum())
    lanes = tuple(
        () if at is None else tuple(range(at // segment, (at + access_bytes - 1) // segment + 1)) for at in addresses
    )
    used = len({at + byte for at in addresses if at is not None for byte in range(access_bytes)})
    asked = active * access_bytes
    return Coalescing(lanes, found, min(len(found), -(-asked // segment)), asked, used, segment)


def transactions(addresses: Sequence[Address], access_bytes: int, segment: int) -> int:
    """Distinct aligned segments that one access of a wave touches; see `coalescing`.

    >>> [transactions([4 * stride * lane for lane in range(32)], 4, 32) for stride in (0, 1, 2, 8, 9)]
    [1, 4, 8, 32, 32]
    """
    return coalescing(addresses, access_bytes, segment).transactions


@dataclass(frozen=True)
class BankLane:
    """One lane of a shared-memory access: its phase, the words and banks it wants, and the cycle that completes it.

    group  lanes of one phase are served together; cycle: counted over the whole access from 0; None when inactive
    """

    group: int
    words: tuple[int, ...]
    banks: tuple[int, ...]
    cycle: int | None


@dataclass(frozen=True)
class BankAccess:
    """One shared-memory access of one wave.

    cycles     passes through the banks that it takes
    least      passes that the same lanes would need without any conflict
    lanes      one BankLane for each lane
    served     the banks that it sees and the lanes of each phase, with their source
    """

    cycles: int
    least: int
    lanes: tuple[BankLane, ...]
    served: Service

    @property
    def conflicts(self) -> int:
        """Cycles above the least, as Nsight Compute and `counters` report bank conflicts."""
        return self.cycles - self.least

    @property
    def together(self) -> int:
        """Lanes of a phase."""
        return self.served.together


def bank_conflicts(
    addresses: Sequence[Address], banks: int = 32, access_bytes: int = 4, *, target: str = "", access: str = "read"
) -> BankAccess:
    """How the banks of shared memory (LDS) serve one access of one wave.

    addresses  byte offset of each lane, None where it is inactive
    banks      without a target: the textbook's rule for so many banks, `gpu_utils.chips.banks.plain`
    access_bytes  of one lane: 1 to 16
    target     "gfx950": the banks and the phases of this target for this kind of access; `banks` is not used then
    access     "read" or "write"; some targets serve them differently

    Errors: BadArgument for a number of banks that is no power of two, no bytes, a negative offset, or for another
    number of lanes than a wave of the target has; UnknownName for a target or an access.

    >>> column = [4 * 32 * lane for lane in range(32)]
    >>> bank_conflicts(column).cycles, bank_conflicts(column, banks=64).cycles, bank_conflicts([0] * 32).cycles
    (32, 16, 1)
    >>> wave = [16 * lane for lane in range(64)]
    >>> [bank_conflicts(wave, target="gfx950", access_bytes=16, access=way).cycles for way in ("read", "write")]
    [4, 8]
    """
    _check_access(addresses, access_bytes)
    if target and target not in BANKS:
        raise UnknownName("target", target, BANKS)
    if target and len(addresses) != TARGETS[target].lanes:
        raise BadArgument(
            f"there are {len(addresses)} addresses; expected {TARGETS[target].lanes}, one for each lane of a wave of "
            f"{target}, with None where a lane is inactive"
        )
    if banks < 1 or banks & (banks - 1):
        raise BadArgument(f"{banks} banks were asked for; expected a power of two such as 32 or 64")
    served = service(target, access, access_bytes) if target else plain(banks, access_bytes, len(addresses))
    count = max(1, access_bytes // WORD)
    lanes = [BankLane(0, (), (), None)] * len(addresses)
    done = least = 0
    for phase, members in enumerate(served.phases):
        queues: dict[int, list[int]] = {}  # bank -> distinct words in the order in which lanes ask for them
        for lane in members:
            cycle, at = None, addresses[lane]
            words = () if at is None else tuple(range(at // WORD, at // WORD + count))
            for word in words:
                queue = queues.setdefault(word % served.banks, [])
                if word not in queue:
                    queue.append(word)
                cycle = max(cycle or 0, done + queue.index(word))
            lanes[lane] = BankLane(phase, words, tuple(word % served.banks for word in words), cycle)
        done += max(map(len, queues.values()), default=0)
        least += any(addresses[lane] is not None for lane in members)
    return BankAccess(done, least, tuple(lanes), served)


def _rows(addresses: Sequence[Address]) -> tuple[np.ndarray, np.ndarray]:
    mask = np.array([[at is not None for at in addresses]])
    return np.array([[0 if at is None else at for at in addresses]], np.int64), mask


def _check_access(addresses: Sequence[Address], access_bytes: int) -> None:
    if access_bytes < 1:
        raise BadArgument(f"a lane accesses {access_bytes} bytes; expected 1 or more, usually 4 to 16")
    if not addresses:
        raise BadArgument("there are no lanes; expected one address for each lane of a wave, None where it is inactive")
    for lane, at in enumerate(addresses):
        if at is not None and at < 0:
            raise BadArgument(f"lane {lane} has address {at}; expected 0 or more, or None for an inactive lane")
