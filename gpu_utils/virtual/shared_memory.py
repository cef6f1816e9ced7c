"""Shared memory (LDS) of a virtual GPU: one NumPy buffer per batch, a slice per block, with written bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.errors import OutOfBounds, UninitialisedShared
from gpu_utils.virtual.atomics import Turns, update_in_order
from gpu_utils.virtual.machine import Op, State, source_of
from gpu_utils.virtual.shared_patterns import Pattern, Patterns
from gpu_utils.virtual.words import UINT, narrow


class Shared:
    """Shared memory (LDS) of a batch: `size` bytes for each block, with a bit per two bytes for "was written".

    An access is at `base` (integers of shape (waves, lanes), from the start of the block's own shared memory) plus the
    constant `offset`; the sum of a base of uint32 wraps at 32 bits. The attribute `base` is the real address of block
    0's slice: `base + block * stride + offset` is a usable generic address. known_written: (pattern, constant offset,
    bytes) of accesses to what is written all over. watchers: what sanitizers keep of this memory
    (`sanitize.shared.Shadow`). turn (lanes,): when a lane takes its turn at an atomic; None: in order.
    """

    watchers: tuple[Any, ...] = ()
    turn: np.ndarray | None = None

    def __init__(self, blocks: int, waves_per_block: int, size: int, check: bool = True) -> None:
        self.blocks, self.size, self.check = blocks, size, check
        self.stride = -(-max(size, 16) // 128) * 128
        raw = np.zeros(blocks * self.stride + 128, np.uint8)
        skip = -raw.ctypes.data % 128
        self.bytes = raw[skip : skip + blocks * self.stride]
        self.words = {width: self.bytes.view(dtype) for width, dtype in UINT.items()}
        self.base = self.bytes.ctypes.data
        written = np.zeros(blocks * self.stride // 2 + 64, np.uint8)
        skip = -written.ctypes.data % 64
        self.written = written[skip : skip + blocks * self.stride // 2]
        self.marks = {width: self.written.view(dtype) for width, dtype in UINT.items()}
        self.block_base = np.repeat(np.arange(blocks) * self.stride, waves_per_block)[:, None]
        self.patterns = Patterns(self.block_base, waves_per_block)
        self.known_written: set[tuple[Pattern, int, int]] = set()
        self._parts: dict[tuple[int, int], Shared] = {}

    def reset(self) -> None:
        """What a new batch finds: nothing written."""
        self.bytes[:] = 0
        self.written[:] = 0
        self.known_written.clear()
        self.watchers, self.turn = (), None

    def part(self, blocks: slice | np.ndarray) -> Shared:
        """Some blocks' shares: views of them for a slice, copies for numbers of blocks."""
        if not isinstance(blocks, slice):
            copy = Shared(len(blocks), self.patterns.block, self.size, self.check)
            for mine, theirs in ((copy.bytes, self.bytes), (copy.written, self.written)):
                np.take(theirs.reshape(self.blocks, -1), blocks, axis=0, out=mine.reshape(len(blocks), -1))
            copy.patterns = self.patterns.of_blocks(len(blocks))
            return copy
        part = self._parts.get((blocks.start, blocks.stop))
        if part is None:
            part = self._parts[blocks.start, blocks.stop] = self._view(blocks)
        part.known_written = set()
        return part

    def _view(self, blocks: slice) -> Shared:
        part = object.__new__(Shared)
        part.size, part.stride, part.check = self.size, self.stride, self.check
        start, end = blocks.start * self.stride, blocks.stop * self.stride
        part.blocks, part.base, part.bytes = blocks.stop - blocks.start, self.base + start, self.bytes[start:end]
        part.words = {width: words[start // width : end // width] for width, words in self.words.items()}
        part.written = self.written[start // 2 : end // 2]
        part.marks = {width: marks[start // 2 // width : end // 2 // width] for width, marks in self.marks.items()}
        part.block_base = self.block_base[: part.blocks * self.patterns.block]
        part.patterns, part._parts = self.patterns.of_blocks(part.blocks), {}
        return part

    def _find(
        self, state: State, op: Op, base: np.ndarray, offset: int, size: int, mask: np.ndarray | None, what: str
    ) -> tuple[Pattern, int]:
        """The pattern of `base` and the constant to add to it. Raises OutOfBounds."""
        pattern = self.patterns.find(base, mask)
        if pattern.low + offset >= 0 and pattern.high + offset + size <= self.size:
            return pattern, offset
        if offset and base.dtype.kind == "u":  # the sum may wrap into the block's memory
            base, offset = base + base.dtype.type(offset % (1 << 8 * base.itemsize)), 0
            pattern = self.patterns.find(base, mask)
            if pattern.low >= 0 and pattern.high + size <= self.size:
                return pattern, 0
        place = base.astype(np.int64) + offset
        bad = (place < 0) | (place + size > self.size)
        wave, lane = (int(v) for v in np.argwhere(bad if mask is None else bad & mask)[0])
        raise OutOfBounds(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} {what} {size} bytes at offset "
            f"{int(place[wave, lane])} of shared memory (LDS), which has {self.size} bytes per block (`{op.text}`)"
        )

    def load(
        self,
        state: State,
        op: Op,
        base: np.ndarray,
        width: int,
        count: int = 1,
        mask: np.ndarray | None = None,
        offset: int = 0,
    ) -> list[np.ndarray]:
        """Like Memory.load. Raises UninitialisedShared for a word that no lane of the block has written."""
        mask, some = narrow(mask)
        if not some:
            return [np.zeros(base.shape, UINT[width]) for _ in range(count)]
        size = width * count
        pattern, offset = self._find(state, op, base, offset, size, mask, "reads")
        state.counters.shared_access(op, pattern, offset, size, "load")
        if self.check and (pattern, offset, size) not in self.known_written:
            self._check_written(state, op, pattern, offset, size, mask)
            self.known_written.add((pattern, offset, size))
        for watcher in self.watchers:
            watcher.load(state, op, pattern, offset, size)
        if (pattern.bits | offset) & (width - 1):
            raw = self.bytes.take((pattern.flat + offset)[..., None] + np.arange(size)).view(UINT[width])
            return [np.ascontiguousarray(raw[..., part]) for part in range(count)]
        words, places, first = self.words[width], pattern.places(width), offset // width
        if first < 0:
            places, first = places + first, 0
        return [words[first + part :].take(places) for part in range(count)]

    def _check_written(
        self, state: State, op: Op, pattern: Pattern, offset: int, size: int, mask: np.ndarray | None
    ) -> None:
        grains = self._marked_at_once(pattern, offset, size)
        if grains:
            seen = self.marks[grains][offset // (2 * grains) :].take(pattern.places(2 * grains))
            good = seen == np.array(int("01" * grains, 16), UINT[grains])
        else:
            grains, flat = (size + 1) // 2, pattern.flat + offset
            good = self.written.take(np.minimum((flat >> 1)[..., None] + np.arange(grains), len(self.written) - 1)).all(
                axis=-1
            )
        if np.count_nonzero(good) == good.size:
            return
        wave, lane = (int(v) for v in np.argwhere(~good)[0])
        if mask is not None and not mask[wave, lane]:
            wave, lane = (int(v) for v in np.argwhere(mask)[0])
        offset = int(pattern.flat[wave, lane] + offset) % self.stride
        raise UninitialisedShared(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} reads {size} bytes at offset "
            f"{offset} of shared memory (LDS) that no lane of its block has written; is a store or a barrier missing? "
            f"(`{op.text}`)"
        )

    def store(
        self,
        state: State,
        op: Op,
        base: np.ndarray,
        values: list[np.ndarray],
        width: int,
        mask: np.ndarray | None = None,
        offset: int = 0,
    ) -> None:
        """Like Memory.store, without the race check."""
        mask, some = narrow(mask)
        if not some:
            return
        size = width * len(values)
        pattern, offset = self._find(state, op, base, offset, size, mask, "writes")
        state.counters.shared_access(op, pattern, offset, size, "store")
        if mask is not None:
            values = [value[mask] for value in values]
        for watcher in self.watchers:
            watcher.store(state, op, pattern, offset, values)
        if (pattern.bits | offset) & (width - 1):
            flat = pattern.flat + offset
            flat = flat if mask is None else flat[mask]
            parts = [np.ascontiguousarray(value)[..., None].view(np.uint8) for value in values]
            for part, value in enumerate(parts):
                self.bytes[flat[..., None] + part * width + np.arange(width)] = value
        else:
            words, places, first = self.words[width], pattern.places(width), offset // width
            if first < 0:
                places, first = places + first, 0
            places = places if mask is None else places[mask]
            for part, value in enumerate(values):
                words[first + part :][places] = value
        if (pattern, offset, size) not in self.known_written:
            self._mark(pattern, offset, size)
            self.known_written.add((pattern, offset, size))
        for watcher in self.watchers:
            watcher.stored(state, op, pattern, offset, values)

    def _marked_at_once(self, pattern: Pattern, offset: int, size: int) -> int:
        """Bytes of `written` for an access of `size` bytes when they are one word, else 0."""
        grains = max(1, size // 2)
        aligned = offset >= 0 and not offset & (2 * grains - 1) and not pattern.bits & (size - 1)
        return grains if grains in UINT and aligned else 0

    def _mark(self, pattern: Pattern, offset: int, size: int) -> None:
        grains = self._marked_at_once(pattern, offset, size)
        if grains:
            self.marks[grains][offset // (2 * grains) :][pattern.places(2 * grains)] = int("01" * grains, 16)
        else:
            flat = pattern.flat + offset
            for byte in range(0, size, 2):
                self.written[(flat + byte) >> 1] = 1
            self.written[(flat + size - 1) >> 1] = 1

    def touch(
        self, state: State, op: Op, waves: np.ndarray, flat: np.ndarray, size: int, kind: str, queue: str | None
    ) -> None:
        """An access that does not come through load, store or atomic: only sanitizers care.

        waves (n,): which waves access. flat (n, m): where, bytes from the start of `bytes`; `size` bytes at each place.
        kind: "load", "store" or "atomic". queue: of `sanitize.queues.QUEUES`, None: the wave itself.
        """
        for watcher in self.watchers:
            watcher.touch(state, op, waves, flat, size, kind, queue)

    def atomic(
        self,
        state: State,
        op: Op,
        base: np.ndarray,
        width: int,
        kind: str,
        value: np.ndarray,
        compare: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        returns: bool = True,
        offset: int = 0,
    ) -> np.ndarray:
        """Like Memory.atomic."""
        mask, some = narrow(mask)
        if not some:
            return np.zeros(base.shape, UINT[width])
        pattern, offset = self._find(state, op, base, offset, width, mask, "updates")
        state.counters.shared_access(op, pattern, offset, width, "atomic")
        flat = pattern.flat + offset
        if self.check and (pattern, offset, width) not in self.known_written:
            self._check_written(state, op, pattern, offset, width, mask)
            self.known_written.add((pattern, offset, width))
        for watcher in self.watchers:
            watcher.atomic(state, op, pattern, offset, width)
        pick = (lambda x: x.ravel()) if mask is None else (lambda x: x[mask])
        index = pick(flat) >> (width.bit_length() - 1)
        wanted = None if compare is None else pick(compare)
        given = pick(value)
        if self.turn is None:
            old = update_in_order(self.words[width], index, Turns.of(index), kind, given, wanted)
        else:
            order = np.argsort(pick(np.arange(state.waves)[:, None] * state.lanes + self.turn))
            wanted = None if wanted is None else wanted[order]
            old = np.empty(len(index), UINT[width])
            old[order] = update_in_order(
                self.words[width], index[order], Turns.of(index[order]), kind, given[order], wanted
            )
        if mask is None:
            return old.reshape(base.shape)
        result = np.zeros(base.shape, UINT[width])
        result[mask] = old
        return result
