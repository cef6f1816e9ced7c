"""Global memory of a virtual GPU: every access within the registered regions, counted and noted for races.

It is the memory of this process: addresses are the real addresses of the tensors, so that pointer arithmetic in a
kernel just works. Every access is checked against the registered regions before it touches anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from gpu_utils.errors import MisalignedAccess, OutOfBounds
from gpu_utils.virtual.atomics import update_in_order
from gpu_utils.virtual.global_order import GlobalOrder
from gpu_utils.virtual.global_patterns import Found, Pattern, find
from gpu_utils.virtual.global_words import gather, gather_bytes, scatter
from gpu_utils.virtual.machine import Op, State, source_of
from gpu_utils.virtual.races import Access, AccessLog
from gpu_utils.virtual.regions import Region
from gpu_utils.virtual.words import ORIGIN, UINT, WORDS, narrow


class Unwritten(Protocol):
    """What initcheck knows, `sanitize.init.Unwritten`."""

    def holds(self, region: Region) -> bool: ...

    def check(self, state: State, op: Op, pattern: Pattern, base: int, size: int, region: Region) -> None: ...


# An address further than this from every tensor, and than the nearest one is long, is taken for a pointer from memory.
FAR = 1 << 16
# Kind of access -> what a lane does, for messages.
_DOES = {"load": "reads", "store": "writes", "atomic": "updates"}


class Memory:
    """All regions of one virtual GPU.

    Addresses are int64 arrays of shape (waves, lanes), or what `global_patterns.find` made of them and their mask.
    `mask` is None or a bool array of that shape: lanes outside it are neither checked nor touched.
    """

    def __init__(self, races: bool = True, strict: bool = False) -> None:
        """strict: of a tensor only the views that were passed may be accessed.

        order: what programs know of each other, for a launch in which they may wait for each other.
        unwritten: for initcheck, set by `look_for`.
        """
        self.races, self.strict = races, strict
        self.regions: list[Region] = []
        self._gathers = False
        self._index()
        self.order: GlobalOrder | None = None
        self.unwritten: Unwritten | None = None
        self._fresh: set[Region] = set()

    # regions

    def add(self, region: Region, view: tuple[int, int] | None = None) -> None:
        """Register a region, of which only the bytes of the views may be accessed if there are some.

        One that starts at the same address is replaced (a larger one is kept).
        """
        known = next((known for known in self.regions if known.start == region.start), None)
        if known is not None and known.size >= region.size and known.kind == region.kind:
            known.name, region = region.name, known
        else:
            if self.races and region.kind == "tensor":
                region.log = AccessLog(region)
            if known is None:
                region.number = 1 + max((each.number for each in self.regions), default=-1)
            else:
                region.number, region.views = known.number, known.views
                self.regions.remove(known)
            self.regions.append(region)
        if view is not None:
            region.views.append((*view, region.name))
        self._index()

    def look_for(self, unwritten: Unwritten) -> None:
        """Loads of memory that nobody has written raise UninitialisedGlobal; called when all regions are there."""
        self.unwritten = unwritten
        self._fresh = {region for region in self.regions if region.kind == "tensor" and unwritten.holds(region)}

    def _written(self, state: State, op: Op, pattern: Pattern, base: int, size: int, region: Region | None) -> None:
        if self.unwritten is not None and region in self._fresh:
            self.unwritten.check(state, op, pattern, base, size, region)

    def remove(self, region: Region) -> None:
        self.regions.remove(region)
        self._index()

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Inside the block regions are only added: they are put in order at its end."""
        self._gathers = True
        try:
            yield
        finally:
            self._gathers = False
            self._index()

    def _index(self) -> None:
        if self._gathers:
            return
        self.spans = sorted((span for region in self.regions for span in region.spans()), key=lambda span: span.start)
        self.starts = [span.start for span in self.spans]

    def holds(self, start: int, size: int) -> bool:
        """Whether all these bytes may be accessed."""
        return any(span.start <= start and start + size <= span.end for known in self.regions for span in known.spans())

    def add_array(self, name: str, array: np.ndarray, kind: str) -> Region:
        """Register the bytes of a contiguous NumPy array."""
        region = Region(name, array.ctypes.data, array.nbytes, kind, array)
        self.add(region)
        return region

    def forget_readers(self) -> None:
        for region in self.regions:
            if region.log is not None:
                region.log.forget_readers()

    def forget(self) -> None:
        """Another launch begins: races are between programs of one launch."""
        for region in self.regions:
            if region.log is not None:
                region.log.forget()

    # checks

    def region_of(self, low: int, high: int) -> Region | None:
        """The region that holds the bytes [low, high), if there is one."""
        at = bisect_right(self.starts, low) - 1
        return self.spans[at].region if at >= 0 and high <= self.spans[at].end else None

    def _span_numbers(self, address: np.ndarray) -> np.ndarray:
        """For each address, the number of the last of `spans` that begins before or at it; -1 for none."""
        return np.searchsorted(np.array(self.starts, np.int64), address, side="right") - 1

    def check(self, state: State, op: Op, address: np.ndarray, size: int, mask: np.ndarray | None, what: str) -> None:
        """Raise OutOfBounds unless each lane's [a, a + size) lies in one of the regions."""
        if not self.spans:
            self._outside(state, op, address, np.ones(address.shape, bool) if mask is None else mask, size, what)
        index = self._span_numbers(address)
        bad = (index < 0) | (address + size > np.array([span.end for span in self.spans])[index])
        bad = bad if mask is None else bad & mask
        if bad.any():
            self._outside(state, op, address, bad, size, what)

    def _outside(self, state: State, op: Op, address: np.ndarray, bad: np.ndarray, size: int, what: str) -> None:
        flat = int(np.flatnonzero(bad)[0])
        wave, lane = divmod(flat, address.shape[1])
        value = int(address.ravel()[flat])
        others = int(bad[wave].sum()) - 1
        too = f"; {others} other lane{'s' * (others > 1)} of the wave too" if others else ""
        raise OutOfBounds(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} {what} {size} bytes "
            f"{self.describe(value, size, 'is the mask right?')} (`{op.text}`{too})"
        )

    def describe(self, address: int, size: int, advice: str) -> str:
        """Where an address lies in relation to the nearest bytes that may be accessed, and what to try."""
        nearest, distance = None, 1 << 62
        for span in self.spans:
            gap = span.start - address if address < span.start else max(0, address + size - span.end)
            if gap < distance:
                nearest, distance = span, gap
        if 0 <= address < ORIGIN or nearest is None:
            return f"at address {address:#x}, next to a null pointer; was None passed for a tensor?"
        if distance > max(FAR, nearest.end - nearest.start):
            return (  # neither the address nor the nearest tensor would be the same in another run
                "far from every tensor that it was given; is an index wrong? A tensor behind a pointer in memory must "
                "be registered: gpu.register('its name', tensor)"
            )
        region = nearest.region
        inside = region.start <= address and address + size <= region.start + region.size
        beyond = " and is a view: the bytes after it belong to others" if inside else ""
        return (
            f"at byte offset {address - nearest.start} of {nearest.name}, which has {nearest.end - nearest.start} bytes"
            f"{beyond}; {advice}"
        )

    def offsets(self, address: np.ndarray) -> np.ndarray:
        """Addresses in one or more regions as the counters see them, see `_origin`."""
        index = np.maximum(self._span_numbers(address), 0)
        return address - np.array([_origin(span.region) for span in self.spans], np.int64)[index]

    # accesses

    def _admit(self, state: State, op: Op, found: Found, size: int, kind: str) -> Region | None:
        """Check an access of `size` bytes per lane and count it; kind: a key of _DOES. Raises OutOfBounds.

        Returns the region that holds it all, None when there are several.
        """
        pattern, base = found
        region = self.region_of(base + pattern.low, base + pattern.high + size)
        if region is None:
            self.check(state, op, found.address, size, pattern.mask, _DOES[kind])
            count_access(state, op, self.offsets(found.address), size, pattern.mask, kind)
        else:
            state.counters.global_access(state, op, pattern, base - _origin(region), size, kind)
        return region

    def load(
        self,
        state: State,
        op: Op,
        address: np.ndarray | Found,
        width: int,
        count: int = 1,
        mask: np.ndarray | None = None,
        aligned: bool = True,
    ) -> list[np.ndarray]:
        """Read `count` consecutive words of `width` bytes (1, 2, 4, 8) per lane.

        Returns `count` arrays (waves, lanes) of uint8/16/32/64, to be used before memory changes; lanes outside `mask`
        hold anything. aligned: whether the hardware wants the address to be a multiple of `width`.
        """
        found = _found(address, mask)
        if found is None:
            return [np.zeros((state.waves, state.lanes), UINT[width]) for _ in range(count)]
        pattern, base = found
        size = width * count
        region = self._admit(state, op, found, size, "load")
        if self._fresh:
            self._written(state, op, pattern, base, size, region)
        if self.races:
            self._note_load(state, op, Access(state, op, pattern, base, size, self.order), region)
        return self._gather(state, op, pattern, base, width, count, aligned)

    def _gather(
        self, state: State, op: Op, pattern: Pattern, base: int, width: int, count: int, aligned: bool
    ) -> list[np.ndarray]:
        if (base | pattern.bits) & (width - 1):
            if aligned:
                self._misaligned(state, op, pattern, base, width)
            return gather_bytes(pattern, base, width, count)
        return gather(pattern, base, width, count)

    def _misaligned(self, state: State, op: Op, pattern: Pattern, base: int, width: int) -> None:
        bad = (pattern.delta + base) & (width - 1) != 0
        wave, lane = (int(at) for at in np.argwhere(bad if pattern.mask is None else bad & pattern.mask)[0])
        raise MisalignedAccess(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} accesses {width} "
            f"bytes at {base + int(pattern.delta[wave, lane]):#x}, which is not a multiple of {width} (`{op.text}`)"
        )

    def load_scalar(
        self, state: State, op: Op, address: np.ndarray, count: int, mask: np.ndarray | None, width: int = 4
    ) -> list[np.ndarray]:
        """Read `count` words of `width` bytes per wave; address, mask and the results: (waves, 1). Not counted as
        vector memory."""
        mask, some = narrow(mask)
        if not some:
            return [np.zeros(address.shape, np.uint32) for _ in range(count)]
        pattern, base = find(address, mask)
        region = self.region_of(base + pattern.low, base + pattern.high + width * count)
        if region is None:
            self.check(state, op, address, width * count, mask, "reads")
        if self._fresh:
            self._written(state, op, pattern, base, width * count, region)
        if self.races:
            self._note_load(state, op, Access(state, op, pattern, base, width * count, self.order), region)
        return self._gather(state, op, pattern, base, width, count, False)

    def store(
        self,
        state: State,
        op: Op,
        address: np.ndarray | Found,
        values: list[np.ndarray],
        width: int,
        mask: np.ndarray | None = None,
        aligned: bool = True,
    ) -> None:
        """Write consecutive words of `width` bytes per lane; `values` are unsigned arrays (waves, lanes).

        When several lanes write one address the last lane in program order wins. Raises Race when
        another program of the launch wrote a different value there (see docs/virtual-gpu.md).
        """
        found = _found(address, mask)
        if found is None:
            return
        pattern, base = found
        size = width * len(values)
        region = self._admit(state, op, found, size, "store")
        if (base | pattern.bits) & (width - 1):
            if aligned:
                self._misaligned(state, op, pattern, base, width)
            parts = [value.astype(UINT[width])[..., None].view(np.uint8) for value in values]
            with _uncounted(state):
                self.store(state, op, found, [p[..., i] for p in parts for i in range(width)], 1)
            return
        if region is None:
            with _uncounted(state):
                for here in self._by_region(found.address, pattern.mask):
                    self.store(state, op, found.address, values, width, here)
            return
        picked = [pattern.pick(value) for value in values]
        if region.log is None:
            scatter(pattern, base, width, picked)
            return
        if self.order is not None and op.communicates:
            self.order.note(op, pattern, base, state.program_number, waits=False, publishes=True)
        access = Access(state, op, pattern, base, size, self.order)
        met = region.log.store(access, picked)
        same = scatter(pattern, base, width, picked)
        region.log.stored(access, picked, same, met)

    def _by_region(self, address: np.ndarray, mask: np.ndarray | None) -> Iterator[np.ndarray]:
        """The lanes of each region in turn, bool (waves, lanes)."""
        index = self._span_numbers(address)
        active = np.ones(address.shape, bool) if mask is None else mask
        for number in np.unique(index[active]):
            yield active & (index == number)

    def fence(self, state: State, op: Op, mask: np.ndarray | None, **how: bool) -> None:
        """An op that orders programs and touches no memory, see `GlobalOrder.fence`."""
        if self.order is not None:
            programs = state.program_number if mask is None else state.program_number[mask.any(axis=1)]
            self.order.fence(op, programs, **how)

    def _note_order(self, state: State, op: Op, access: Access, waits: bool, publishes: bool) -> None:
        """The programs of these lanes find what others have published, or publish what they did."""
        if self.order is None:
            return
        pattern, base, flags = access.pattern, access.base, None
        if waits:
            region = self.region_of(base + pattern.low, base + pattern.high + access.size)
            if region is not None and region.log is not None:
                flags = region.log.flags(access, self.order)
        self.order.note(op, pattern, base, state.program_number, waits, publishes, flags)

    def _note_load(self, state: State, op: Op, access: Access, region: Region | None) -> None:
        """Log a load for races. A polling one waits for whoever writes there."""
        pattern, base = access.pattern, access.base
        if op.polls:
            self._note_order(state, op, access, waits=True, publishes=False)
        elif region is None:
            address = pattern.delta + base
            for here in self._by_region(address, pattern.mask):
                part = Access(state, op, *find(address, here), access.size, self.order)
                self._note_load(state, op, part, self.region_of(part.base, part.base + access.size))
        elif region.log is not None:
            region.log.load(access)

    def atomic(
        self,
        state: State,
        op: Op,
        address: np.ndarray | Found,
        width: int,
        kind: str,
        value: np.ndarray,
        compare: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        returns: bool = True,
    ) -> np.ndarray:
        """A read-modify-write per lane, one lane after the other where addresses coincide.

        kind: a key of ATOMICS ("add_u32", "fadd_f32", ...), "exch" or "cas" (with `compare`).
        value: array (waves, lanes) of unsigned words of `width` bytes. Returns the old values
        (uint arrays (waves, lanes)); lanes outside `mask` hold anything.
        """
        found = _found(address, mask)
        if found is None:
            return np.zeros((state.waves, state.lanes), UINT[width])
        pattern, base = found
        region = self._admit(state, op, found, width, "atomic")
        if self._fresh:
            self._written(state, op, pattern, base, width, region)
        if (base | pattern.bits) & (width - 1):
            self._misaligned(state, op, pattern, base, width)
        if self.races:
            access = Access(state, op, pattern, base, width, self.order)
            self._note_order(state, op, access, waits=returns, publishes=True)
        index = (pattern.active + (base - ORIGIN)) >> (width.bit_length() - 1)
        old = update_in_order(
            WORDS[width],
            index,
            pattern.turns,
            kind,
            pattern.pick(value).ravel(),
            None if compare is None else pattern.pick(compare).ravel(),
        )
        return pattern.spread(old)


def _found(address: np.ndarray | Found, mask: np.ndarray | None) -> Found | None:
    """The pattern of an access; None when no lane takes part."""
    if isinstance(address, Found):
        return address
    mask, some = narrow(mask)
    return find(address, mask) if some else None


def _origin(region: Region) -> int:
    """What the counters take for address 0: every tensor starts on a fresh page, wherever the CPU put it."""
    return region.start - 4096 * (1 + region.number) * (1 << 24)


def count_access(
    state: State,
    op: Op,
    offset: np.ndarray,
    size: int,
    mask: np.ndarray | None,
    kind: str,
    wave: int | None = None,
) -> None:
    """Count an access by what `Memory.offsets` gives; see `Counters.global_access`."""
    pattern, base = find(offset, mask)
    state.counters.global_access(state, op, pattern, base, size, kind, wave)


@contextmanager
def _uncounted(state: State) -> Iterator[None]:
    """An access that was counted as a whole is done in parts."""
    counters, state.counters = state.counters, type(state.counters)(state.counters.program, state.counters.chip)
    try:
        yield
    finally:
        state.counters = counters
