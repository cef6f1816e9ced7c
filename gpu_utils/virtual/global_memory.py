"""Global memory of a virtual GPU: every access within the registered regions, counted and noted for races.

It is the memory of this process: addresses are the real addresses of the tensors, so that pointer arithmetic in a
kernel just works. Every access is checked against the registered regions before it touches anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gpu_utils.errors import MisalignedAccess, OutOfBounds
from gpu_utils.virtual.atomics import update_in_order
from gpu_utils.virtual.machine import Op, State, source_of
from gpu_utils.virtual.races import Access, AccessLog
from gpu_utils.virtual.regions import Region
from gpu_utils.virtual.words import ORIGIN, UINT, WORDS, narrow

# An address further than this from every tensor, and than the nearest one is long, is taken for a pointer from memory.
FAR = 1 << 16


class Memory:
    """All regions of one virtual GPU.

    Addresses are int64 arrays of shape (waves, lanes). `mask` is None or a bool array of that shape:
    lanes outside it are neither checked nor touched.
    """

    def __init__(self, races: bool = True, strict: bool = False) -> None:
        """strict: of a tensor only the views that were passed may be accessed."""
        self.races, self.strict = races, strict
        self.regions: list[Region] = []
        self._gathers = False
        self._index()
        # bool by program: which used an atomic; which used one that returns a value, or loaded what others may write
        self.released: np.ndarray | None = None
        self.ordered: np.ndarray | None = None
        self._mask_of_error: np.ndarray | None = None

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
        self.start_array = np.array(self.starts, np.int64)
        self.end_array = np.array([span.end for span in self.spans], np.int64)

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

    def locate(self, state: State, op: Op, address: np.ndarray, size: int, what: str) -> Region | None:
        """The region that holds [a, a + size) for every a of the flat array; None when they lie in several."""
        low, high = int(address.min()), int(address.max())
        at = bisect_right(self.starts, low) - 1
        if at >= 0 and high + size <= self.spans[at].end:
            return self.spans[at].region
        if not self.spans:
            self._outside(state, op, address, np.ones(address.shape, bool), size, what)
        index = np.searchsorted(self.start_array, address, side="right") - 1
        bad = (index < 0) | (address + size > self.end_array[index])
        if bad.any():
            self._outside(state, op, address, bad, size, what)
        return None

    def _outside(self, state: State, op: Op, address: np.ndarray, bad: np.ndarray, size: int, what: str) -> None:
        flat = int(np.flatnonzero(bad)[0])
        if address.ndim == 2:
            wave, lane = divmod(flat, state.lanes)
        else:
            assert self._mask_of_error is not None
            wave, lane = divmod(int(np.flatnonzero(self._mask_of_error)[flat]), state.lanes)
        value = int(address.ravel()[flat])
        raise OutOfBounds(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} {what} {size} bytes "
            f"{self.describe(value, size, 'is the mask right?')} (`{op.text}`)"
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
            return (
                f"at address {address:#x}, {distance} bytes from the nearest tensor, {nearest.name}; is an index "
                "wrong? A tensor behind a pointer in memory must be registered: gpu.register('its name', tensor)"
            )
        region = nearest.region
        inside = region.start <= address and address + size <= region.start + region.size
        beyond = " and is a view: the bytes after it belong to others" if inside else ""
        return (
            f"at byte offset {address - nearest.start} of {nearest.name}, which has {nearest.end - nearest.start} bytes"
            f"{beyond}; {advice}"
        )

    def offsets(self, address: np.ndarray, region: Region | None) -> np.ndarray:
        """Addresses as the counters see them: every tensor starts on a fresh page, wherever the CPU put it."""
        if region is not None:
            return address - (region.start - 4096 * (1 + region.number) * (1 << 24))
        index = np.maximum(np.searchsorted(self.start_array, address, side="right") - 1, 0)
        numbers = np.array([span.region.number for span in self.spans], np.int64)
        origins = np.array([span.region.start for span in self.spans], np.int64)
        return address - origins[index] + 4096 * (1 + numbers[index]) * (1 << 24)

    def _active(self, address: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """The addresses of the lanes that take part, flat when some do not."""
        self._mask_of_error = mask
        return address if mask is None else address[mask]

    # accesses

    def load(
        self,
        state: State,
        op: Op,
        address: np.ndarray,
        width: int,
        count: int = 1,
        mask: np.ndarray | None = None,
        aligned: bool = True,
    ) -> list[np.ndarray]:
        """Read `count` consecutive words of `width` bytes (1, 2, 4, 8) per lane.

        Returns `count` fresh arrays (waves, lanes) of uint8/16/32/64; lanes outside `mask` hold anything.
        aligned: whether the hardware wants the address to be a multiple of `width`.
        """
        mask, some = narrow(mask)
        if not some:
            return [np.zeros(address.shape, UINT[width]) for _ in range(count)]
        active = self._active(address, mask)
        region = self.locate(state, op, active, width * count, "reads")
        state.counters.global_access(state, op, self.offsets(address, region), width * count, mask)
        if self.races:
            self._note_load(state, op, active, width * count, mask, region)
        if mask is not None:
            address = np.where(mask, address, active[0])
        return self._gather(state, op, address, width, count, aligned)

    def _gather(
        self, state: State, op: Op, address: np.ndarray, width: int, count: int, aligned: bool
    ) -> list[np.ndarray]:
        if width > 1 and int(np.bitwise_or.reduce(address, axis=None)) & (width - 1):
            if aligned:
                self._misaligned(state, op, address, width)
            return self._gather_bytes(address, width, count)
        words, index = WORDS[width], (address - ORIGIN) >> (width.bit_length() - 1)
        result = [words.take(index)]
        for _ in range(count - 1):
            index += 1
            result.append(words.take(index))
        return result

    def _gather_bytes(self, address: np.ndarray, width: int, count: int) -> list[np.ndarray]:
        index = (address - ORIGIN)[..., None] + np.arange(width * count)
        raw = WORDS[1].take(index).view(UINT[width])
        return [np.ascontiguousarray(raw[..., part]) for part in range(count)]

    def _misaligned(self, state: State, op: Op, address: np.ndarray, width: int) -> None:
        wave, lane = divmod(int(np.flatnonzero(address.ravel() & (width - 1))[0]), state.lanes)
        place = int(address.ravel()[wave * state.lanes + lane])
        raise MisalignedAccess(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave % state.waves, lane)} accesses {width} "
            f"bytes at {place:#x}, which is not a multiple of {width} (`{op.text}`)"
        )

    def load_scalar(
        self, state: State, op: Op, address: np.ndarray, count: int, mask: np.ndarray | None, width: int = 4
    ) -> list[np.ndarray]:
        """Read `count` words of `width` bytes per wave; address, mask and the results: (waves, 1). Not counted as
        vector memory."""
        active = self._active(address, mask)
        if active.size == 0:
            return [np.zeros(address.shape, np.uint32) for _ in range(count)]
        region = self.locate(state, op, active, width * count, "reads")
        if self.races:
            self._note_load(state, op, active, width * count, mask, region)
        if mask is not None:
            address = np.where(mask, address, active[0])
        return self._gather(state, op, address, width, count, False)

    def store(
        self,
        state: State,
        op: Op,
        address: np.ndarray,
        values: list[np.ndarray],
        width: int,
        mask: np.ndarray | None = None,
        aligned: bool = True,
    ) -> None:
        """Write consecutive words of `width` bytes per lane; `values` are unsigned arrays (waves, lanes).

        When several lanes write one address the last lane in program order wins. Raises Race when
        another program of the launch wrote a different value there (see docs/virtual-gpu.md).
        """
        mask, some = narrow(mask)
        if not some:
            return
        active = self._active(address, mask)
        region = self.locate(state, op, active, width * len(values), "writes")
        state.counters.global_access(state, op, self.offsets(address, region), width * len(values), mask, store=True)
        if width > 1 and int(np.bitwise_or.reduce(active, axis=None)) & (width - 1):
            if aligned:
                self._misaligned(state, op, np.where(mask, address, 0) if mask is not None else address, width)
            parts = [value.astype(UINT[width])[..., None].view(np.uint8) for value in values]
            with _uncounted(state):
                self.store(state, op, address, [p[..., i] for p in parts for i in range(width)], 1, mask)
            return
        if region is None:
            with _uncounted(state):
                self._store_regions(state, op, address, values, width, mask)
            return
        picked = values if mask is None else [value[mask] for value in values]
        access, met = None, False
        if region.log is not None:
            access = Access(state, op, active, width * len(values), mask)
            met = region.log.store(access, picked, self.released, self.ordered)
        index = (active - ORIGIN) >> (width.bit_length() - 1)
        same = []
        for part, value in enumerate(picked):
            if part:
                index += 1
            if access is not None:
                same.append(WORDS[width].take(index) == value)
            WORDS[width][index] = value
        if region.log is not None and access is not None:
            region.log.stored(access, picked, met, self.released, self.ordered)
            for part, unchanged in enumerate(same):
                if unchanged.any():
                    region.log.unchanged(active[unchanged] + part * width, width)

    def _store_regions(
        self, state: State, op: Op, address: np.ndarray, values: list[np.ndarray], width: int, mask: np.ndarray | None
    ) -> None:
        index = np.searchsorted(self.start_array, address, side="right") - 1
        active = np.ones(address.shape, bool) if mask is None else mask
        for number in np.unique(index[active]):
            self.store(state, op, address, values, width, active & (index == number))

    def _note_order(self, state: State, mask: np.ndarray | None, waits: bool, releases: bool) -> None:
        """The programs of these lanes have waited for others, or have let others go on, or may have."""
        programs = state.program_number if mask is None else state.program_number[mask.any(axis=1)]
        if self.ordered is None or self.released is None:
            self.released, self.ordered = np.zeros((2, int(np.prod(state.launch.grid))), bool)
        self.ordered[programs] |= waits
        self.released[programs] |= releases

    def _note_load(
        self, state: State, op: Op, address: np.ndarray, size: int, mask: np.ndarray | None, region: Region | None
    ) -> None:
        """Log a load for races; `address` is that of the active lanes. A polling one waits for whoever writes there."""
        if op.polls:
            self._note_order(state, mask, waits=True, releases=False)
            return
        if region is not None:
            if region.log is not None:
                region.log.load(Access(state, op, address, size, mask), self.ordered)
            return
        index = np.searchsorted(self.start_array, address, side="right") - 1
        for number in np.unique(index):
            here = index == number
            if mask is None:
                part = here
            else:
                part = np.zeros(mask.shape, bool)
                part[mask] = here
            self._note_load(state, op, address[here], size, part, self.spans[number].region)

    def atomic(
        self,
        state: State,
        op: Op,
        address: np.ndarray,
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
        mask, some = narrow(mask)
        if not some:
            return np.zeros(address.shape, UINT[width])
        active = self._active(address, mask)
        region = self.locate(state, op, active, width, "updates")
        state.counters.global_access(state, op, self.offsets(address, region), width, mask, atomic=True)
        if int(np.bitwise_or.reduce(active, axis=None)) & (width - 1):
            self._misaligned(state, op, np.where(mask, address, 0) if mask is not None else address, width)
        if self.races:
            self._note_order(state, mask, waits=returns, releases=True)
        index = (active - ORIGIN) >> (width.bit_length() - 1)
        pick = (lambda x: x) if mask is None else (lambda x: x[mask])
        old = update_in_order(
            WORDS[width], index.ravel(), kind, pick(value).ravel(), None if compare is None else pick(compare).ravel()
        )
        if mask is None:
            return old.reshape(address.shape)
        result = np.zeros(address.shape, UINT[width])
        result[mask] = old
        return result


@contextmanager
def _uncounted(state: State) -> Iterator[None]:
    """An access that was counted as a whole is done in parts."""
    counters, state.counters = state.counters, type(state.counters)(state.counters.program, state.counters.chip)
    try:
        yield
    finally:
        state.counters = counters
