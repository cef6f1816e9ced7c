"""Who read and who wrote each byte of a tensor in one launch, and the races that follow.

Two programs of a launch run in any order, also at the same time. A launch is wrong where that order decides a value:
both write different values, or one writes where the other has read something else, or one reads what the other has
written. Atomics, polling loads and fences order programs, see global_order.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from gpu_utils.errors import Race
from gpu_utils.virtual.global_order import Flags, GlobalOrder
from gpu_utils.virtual.global_patterns import Pattern
from gpu_utils.virtual.machine import Op, State, source_of
from gpu_utils.virtual.sanitize.report import Side, reported
from gpu_utils.virtual.words import ORIGIN, WORDS, items_of

# Bit of an entry of `writer`: several programs wrote the same value there, or the value that was there.
AGREED = 1 << 30
# Loads that are noted only when somebody stores to their tensor: most tensors are never written. At most so many, and
# so many lanes in patterns that differ.
MOST_PENDING = 1 << 14
MOST_LANES = 1 << 21
# Entries of logs that are over, by their number: memory that was touched before costs a tenth of fresh memory.
_spare: dict[int, list[np.ndarray]] = {}
_SPARE_BYTES = 1 << 28
_kept = 0  # bytes of them


def _keep(entries: np.ndarray | None) -> None:
    """Take back the entries of a log."""
    if entries is not None:
        global _kept
        if _kept + entries.nbytes > _SPARE_BYTES:
            _spare.clear()
            _kept = 0
        if entries.nbytes <= _SPARE_BYTES:
            _spare.setdefault(len(entries), []).append(entries)
            _kept += entries.nbytes


@dataclass(slots=True, eq=False)
class Access:
    """What the lanes of one op access: `size` bytes each, at `base` and a pattern.

    order: what programs know of each other, None where nobody can wait. tick: the access's number there.
    places: of a store, those of `AccessLog.places`.
    """

    state: State
    op: Op
    pattern: Pattern
    base: int
    size: int
    order: GlobalOrder | None = None
    tick: int = 0
    places: list[Places] = field(default_factory=list)

    @property
    def address(self) -> np.ndarray:
        """Of the lanes that take part, int64 (n,)."""
        return self.pattern.active + self.base

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """(address, 1 + program) of each lane that takes part, (n,) each."""
        per_wave = (self.state.program_number + 1).astype(np.int32)
        return self.address, np.repeat(per_wave, self.pattern.per_wave)


class Places(NamedTuple):
    """Entries of a log that belong to an access: its array from `skip` on, seen as items of `step` bytes, at `at`.

    marks: what a note of the access writes there, items that broadcast to `at`.
    """

    skip: int
    step: int
    at: np.ndarray | slice
    marks: np.ndarray

    def of(self, entries: np.ndarray) -> np.ndarray:
        """The items of a log's array."""
        return items_of(entries, self.step, self.skip)

    def agreed(self) -> np.ndarray:
        """The marks of a write that changes nothing."""
        return (self.marks.view(np.int32) | AGREED).view(self.marks.dtype)

    def met(self, entries: np.ndarray) -> bool:
        """Whether some entry is neither empty nor the mark of its lane."""
        items = self.of(entries)
        found = (items[self.at] if isinstance(self.at, slice) else items.take(self.at)).view(np.int32)
        if not np.count_nonzero(found):
            return False
        marks = self.marks.view(np.int32)
        if marks.shape != found.shape:  # one mark for each wave
            marks = marks[:, :1]
        return bool(((found != marks) & (found != 0)).any())

    def stamp(self, entries: np.ndarray, tick: int) -> None:
        """Write a tick to all entries."""
        mark = np.full(self.step // 4, tick, np.int32)
        items = self.of(entries)
        items[self.at] = mark.view(items.dtype)[0]


class Owner(Protocol):
    """The region of a log. keep: the tensor, which says how values are shown."""

    name: str
    start: int
    size: int
    keep: Any


class AccessLog:
    """Of the bytes from `start` on: `writer` and `reader` hold 1 + the program that came last, 0 for nobody.

    One int32 entry stands for `grain` bytes, as many as the narrowest access so far had. Where programs may wait for
    each other, `written_at` and `read_at` hold the ticks. stores, loads: the ops that were noted.
    """

    def __init__(self, region: Owner) -> None:
        self.region, self.start = region, region.start
        self.base, self.end, self.grain = region.start & ~15, region.start + region.size, 4
        self.writer: np.ndarray | None = None
        self.reader: np.ndarray | None = None
        self.written_at: np.ndarray | None = None
        self.read_at: np.ndarray | None = None
        self.stores: dict[Op, None] = {}
        self.loads: dict[Op, None] = {}
        self._pending: list[tuple[Pattern, int, int, np.ndarray, int]] = []
        self._patterns: dict[Pattern, None] = {}  # of the pending ones
        self._lanes = 0  # of those patterns

    def load(self, access: Access) -> None:
        """Note a load. Raises Race."""
        self.loads[access.op] = None
        if access.order is not None:
            access.tick = access.order.tick(access.op)
        noted = access.pattern, access.base, access.size, access.state.program_number, access.tick
        if self.writer is not None:
            for places in self._note_reader(*noted):
                if places.met(self.writer):
                    self._check_read(access)
            return
        self._pending.append(noted)
        if access.pattern not in self._patterns:
            self._patterns[access.pattern] = None
            self._lanes += access.pattern.delta.size
        if len(self._pending) > MOST_PENDING or self._lanes > MOST_LANES:
            self._settle()

    def _note_reader(self, pattern: Pattern, base: int, size: int, programs: np.ndarray, tick: int) -> list[Places]:
        found = self.places(pattern, base, size, programs)
        if self.reader is None:
            self.reader = self._empty()
        if tick and self.read_at is None:
            self.read_at = self._empty()
        for places in found:
            places.of(self.reader)[places.at] = places.marks
            if self.read_at is not None:
                places.stamp(self.read_at, tick)
        return found

    def _settle(self) -> None:
        """Note the loads that are pending."""
        for load in self._pending:
            self._note_reader(*load)
        self._pending, self._patterns, self._lanes = [], {}, 0

    def store(self, access: Access, new: list[np.ndarray]) -> bool:
        """Check a store of the words `new` before it is done. Raises Race. Returns whether it meets other programs."""
        self._settle()
        access.places = self.places(access.pattern, access.base, access.size, access.state.program_number)
        if access.order is not None:
            access.tick = access.order.tick(access.op)
        if self.writer is None:
            self.writer = self._empty()
        met = any(
            places.met(self.writer) or (self.reader is not None and places.met(self.reader)) for places in access.places
        )
        if met:
            self._check_write(access, new)
        self.stores[access.op] = None
        return met

    def stored(self, access: Access, new: list[np.ndarray], same: list[np.ndarray], met: bool) -> None:
        """Note a store that `store` has checked and that was done; finds lanes of two programs that met in it.

        same: for each word, which lanes left memory as it was. Raises Race.
        """
        assert self.writer is not None
        shared = self._agreed(access) if met else None
        if access.tick:
            if self.written_at is None:
                self.written_at = self._empty()
            for places in access.places:
                places.stamp(self.written_at, access.tick)
        apart = access.pattern.apart(access.size)
        width, kept = access.size // len(same), sum(int(np.count_nonzero(each)) for each in same)
        whole = apart and width >= self.grain and kept == len(same) * access.pattern.count
        for places in access.places:
            places.of(self.writer)[places.at] = places.agreed() if whole else places.marks
            if not apart and len(access.state.block_ids) > 1 and places.met(self.writer):
                self._check_write(access, new)
                shared = self._agreed(access)
        if shared is not None:
            self.writer[shared] |= AGREED
        if kept and not whole and width >= self.grain:
            for part, unchanged in enumerate(same):
                self._unchanged(access, part * width, width, unchanged.ravel())

    def flags(self, access: Access, order: GlobalOrder) -> Flags | None:
        """What a polling access finds of plain stores, before it is done."""
        if self.writer is None or self.written_at is None or access.base % self.grain:
            return None
        entry = (access.address - self.base) // self.grain
        writer = self.writer[entry] & (AGREED - 1)
        return order.flags(writer, self.written_at[entry])

    def _unchanged(self, access: Access, first: int, size: int, lanes: np.ndarray) -> None:
        """Words that a store left as they were: whoever reads them reads the same before it and after it.

        lanes: bool, of those that take part; first, size: of their word in bytes.
        """
        assert self.writer is not None
        at = access.places[0].at
        if isinstance(at, slice):
            rows = self.writer[at].reshape(len(lanes), -1)
            rows[:, first // self.grain : (first + size) // self.grain] |= np.where(lanes, AGREED, 0)[:, None]
        else:
            self.writer[self._index(access.address[lanes] + first, size)] |= AGREED

    def forget_readers(self) -> None:
        """At the end of a launch: who wrote stays known, for `unwritten`."""
        for entries in (self.reader, self.read_at, self.written_at):
            _keep(entries)
        self.reader = self.read_at = self.written_at = None
        self._pending, self._patterns, self._lanes = [], {}, 0

    def forget(self) -> None:
        """When the next launch begins."""
        self.forget_readers()
        _keep(self.writer)
        self.writer = None

    def unwritten(self, start: int, size: int, count: int) -> np.ndarray:
        """Which of `count` elements of `size` bytes from address `start` on were never written, their indices."""
        if self.writer is None:
            return np.arange(count)
        marks = self.writer if size >= self.grain else np.repeat(self.writer, self.grain // size)
        grain = min(size, self.grain)
        first, per = (start - self.base) // grain, size // grain
        return np.flatnonzero(marks[first : first + count * per].reshape(-1, per).min(axis=1) == 0)

    # entries

    def _empty(self) -> np.ndarray:
        size = ((self.end - self.base) // self.grain // 4 + 2) * 4
        if not (spare := _spare.get(size)):
            return np.zeros(size, np.int32)
        global _kept
        entries = spare.pop()
        _kept -= entries.nbytes
        entries.fill(0)
        return entries

    def _refine(self, grain: int) -> None:
        fold = self.grain // grain
        self.grain = grain
        kept = self.writer, self.reader, self.written_at, self.read_at
        self.writer, self.reader, self.written_at, self.read_at = (
            None if entries is None else np.repeat(entries, fold) for entries in kept
        )

    def places(self, pattern: Pattern, base: int, size: int, programs: np.ndarray) -> list[Places]:
        """The entries of an access. programs: linear numbers (waves,)."""
        bits = base | pattern.bits | size
        lowest = bits & -bits
        if lowest < self.grain:
            self._refine(lowest)
        per_wave = (programs + 1).astype(np.int32)
        lanes = pattern.delta.shape[1] if pattern.mask is None else pattern.per_wave
        grain, offset = self.grain, base - self.base
        if pattern.side_by_side(size):
            entries, first = size // grain, offset // grain
            span = slice(first, first + pattern.count * entries)
            return [Places(0, 4, span, np.repeat(per_wave, lanes * entries))]
        step = pattern.run(size)
        entries = max(step // grain, 1)
        if pattern.mask is None:
            marks = items_of(np.repeat(per_wave, entries), 4 * entries)[:, None]
        else:
            marks = items_of(np.repeat(per_wave, pattern.per_wave * entries), 4 * entries)
        if step:
            return [Places(offset % step // grain, 4 * entries, pattern.starts(size, step) + offset // step, marks)]
        index = pattern.starts(grain, grain) + offset // grain
        return [Places(0, 4, index + part, marks) for part in range(size // grain)]

    def _index(self, address: np.ndarray, size: int) -> np.ndarray:
        """Entries of each lane, (n, size / grain)."""
        return ((address - self.base) // self.grain)[:, None] + np.arange(size // self.grain)

    def _old(self, address: np.ndarray, size: int) -> np.ndarray:
        """What memory holds, one word per entry, (n, size / grain)."""
        return WORDS[self.grain].take(((address - ORIGIN) // self.grain)[:, None] + np.arange(size // self.grain))

    def _new(self, new: list[np.ndarray], size: int) -> np.ndarray:
        """What a store of `new` leaves there, as `_old`."""
        words = np.stack([word.ravel() for word in new], axis=1)
        return words.astype(f"u{size // len(new)}", copy=False).view(f"u{self.grain}")

    # races

    def _check_read(self, access: Access) -> None:
        assert self.writer is not None
        address, mine = access.flat()
        index = self._index(address, access.size)
        writer = self.writer[index]
        clash = (writer != 0) & (writer < AGREED) & (writer != mine[:, None])
        clash = self._unknown(access, clash, mine, writer, self.written_at, index)
        if clash.any():
            lane, entry = (int(at) for at in np.argwhere(clash)[0])
            offset, value, _ = self._shown(int(address[lane]) + entry * self.grain, None)
            raise self._race(
                access,
                f"program {mine[lane] - 1} reads {value} at {self._where(offset)}, which program "
                f"{writer[lane, entry] - 1} has written",
                "; what it reads depends on which comes first",
                ("reads", "writes"),
                (int(mine[lane]) - 1, int(writer[lane, entry]) - 1, self._when(self.written_at, index[lane, entry])),
                offset,
            )

    def _check_write(self, access: Access, new: list[np.ndarray]) -> None:
        assert self.writer is not None
        address, mine = access.flat()
        index, program = self._index(address, access.size), mine[:, None]
        words = self._new(new, access.size)
        differs = self._old(address, access.size) != words
        other = self.writer[index] & (AGREED - 1)
        clash = differs & (other != 0) & (other != program)
        clash = self._unknown(access, clash, mine, other, self.written_at, index)
        if clash.any():
            lane, entry = (int(at) for at in np.argwhere(clash)[0])
            place = int(address[lane]) + entry * self.grain
            offset, old, value = self._shown(place, words[lane].view(np.uint8), int(address[lane]))
            raise self._race(
                access,
                f"programs {other[lane, entry] - 1} and {mine[lane] - 1} both write "
                f"{self._where(offset)} with different values ({old} and {value})",
                "; the result depends on which comes last",
                ("writes", "writes"),
                (int(mine[lane]) - 1, int(other[lane, entry]) - 1, self._when(self.written_at, index[lane, entry])),
                offset,
            )
        if self.reader is None:
            return
        other = self.reader[index]
        clash = differs & (other != 0) & (other != program)
        clash = self._unknown(access, clash, mine, other, self.read_at, index)
        if clash.any():
            lane, entry = (int(at) for at in np.argwhere(clash)[0])
            place = int(address[lane]) + entry * self.grain
            offset, old, value = self._shown(place, words[lane].view(np.uint8), int(address[lane]))
            raise self._race(
                access,
                f"program {other[lane, entry] - 1} has read {old} at {self._where(offset)}, and "
                f"program {mine[lane] - 1} writes {value} there",
                "; the result depends on which comes first, and an update may be lost (tl.atomic_add updates in one "
                "step)",
                ("writes", "reads"),
                (int(mine[lane]) - 1, int(other[lane, entry]) - 1, self._when(self.read_at, index[lane, entry])),
                offset,
            )

    def _unknown(
        self,
        access: Access,
        clash: np.ndarray,
        mine: np.ndarray,
        other: np.ndarray,
        ticks: np.ndarray | None,
        index: np.ndarray,
    ) -> np.ndarray:
        """Of entries that clash (lanes, entries), those where the earlier access is not known to be over."""
        if access.order is None or not np.count_nonzero(clash):
            return clash
        rows = np.flatnonzero(clash.any(axis=1))
        before = np.where(clash[rows], other[rows] & (AGREED - 1), 1) - 1
        when = None if ticks is None else ticks[index[rows]]
        clash[rows] &= ~access.order.knows(mine[rows] - 1, before, when)
        return clash

    def _when(self, ticks: np.ndarray | None, entry: int) -> int:
        return 0 if ticks is None else int(ticks[entry])

    def _race(
        self,
        access: Access,
        what: str,
        matters: str,
        does: tuple[str, str],
        meeting: tuple[int, int, int],
        place: int,
    ) -> Race:
        """does: this access and the earlier one. meeting: this program, the other one, the tick of the other."""
        mine, other, tick = meeting
        order = access.order
        first = order.ops[tick] if order is not None and tick else None
        ops = [first] if first is not None else list(self.stores if does[1] == "writes" else self.loads)
        earlier = " or ".join(f"`{op.text}`{source_of(op)}" for op in ops[:3])
        why = order.why(mine, other, tick) if order is not None else ""
        missing = "with no atomic between them" if not why else f"with no order between them: {why}"
        race = Race(
            f"{_kernel(access)}: {what}, {missing}{matters} (program {mine} {does[0]} by `{access.op.text}`, program "
            f"{other} {does[1]} by {earlier or 'an op that is not known'})"
        )
        return reported(
            race,
            "races",
            access.state,
            self._where(place),
            Side(does[0], access.op.text, access.op.line, f"program {mine}"),
            Side(does[1], ops[0].text if ops else "", ops[0].line if ops else None, f"program {other}"),
            why or "an atomic with release and one with acquire",
        )

    def _agreed(self, access: Access) -> np.ndarray:
        """Entries that another program has written before, with the same value since nothing was raised."""
        assert self.writer is not None
        address, mine = access.flat()
        index = self._index(address, access.size)
        other = self.writer[index]
        return index[(other != 0) & (other != mine[:, None])]

    def _where(self, address: int) -> str:
        return f"byte offset {address - self.start} of {self.region.name}"

    def _shown(self, address: int, raw: np.ndarray | None, first: int = 0) -> tuple[int, str, str]:
        """(address of the first element there that changes, its value in memory, its value with `raw` from `first` on),
        as numbers of the tensor's type."""
        size = self.region.keep.element_size() if hasattr(self.region.keep, "element_size") else self.grain
        place = address - (address - self.start) % size
        for start in range(place, address + self.grain, size):
            old = WORDS[1][start - ORIGIN : start - ORIGIN + size].copy()
            new = old.copy()
            if raw is not None:
                low, high = max(start, first), min(start + size, first + len(raw))
                new[low - start : high - start] = raw[low - first : high - first]
            if raw is None or (old != new).any():
                break
        return start, self._number(old), self._number(new)

    def _number(self, raw: np.ndarray) -> str:
        if not hasattr(self.region.keep, "element_size"):
            return f"{int.from_bytes(raw.tobytes(), 'little'):#x}"
        import torch

        value = torch.frombuffer(bytearray(raw.tobytes()), dtype=self.region.keep.dtype).item()
        return f"{value:.9g}" if isinstance(value, float) else str(value)


def _kernel(access: Access) -> str:
    return f"kernel {access.state.program.name}{source_of(access.op)}"
