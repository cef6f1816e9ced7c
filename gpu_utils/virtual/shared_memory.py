"""Shared memory (LDS) of a virtual GPU: one NumPy buffer per batch, a slice per block, with written bits."""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import OutOfBounds, UninitialisedShared
from gpu_utils.virtual.atomics import update_in_order
from gpu_utils.virtual.machine import Op, State, source_of
from gpu_utils.virtual.words import UINT


class Shared:
    """Shared memory (LDS) of a batch: `size` bytes for each block, with a bit per two bytes for "was written".

    Offsets are int64 arrays (waves, lanes) from the start of the block's own shared memory.
    `base` is the real address of block 0's slice: `base + block * stride + offset` is a usable generic address.
    """

    def __init__(self, blocks: int, size: int, check: bool = True) -> None:
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

    def reset(self) -> None:
        """What a new batch finds: nothing written."""
        self.bytes[:] = 0
        self.written[:] = 0

    def part(self, block: int) -> Shared:
        """A view of one block's share."""
        part = object.__new__(Shared)
        part.size, part.stride, part.check = self.size, self.stride, self.check
        start, end = block * self.stride, (block + 1) * self.stride
        part.blocks, part.base, part.bytes = 1, self.base + start, self.bytes[start:end]
        part.words = {width: words[start // width : end // width] for width, words in self.words.items()}
        part.written = self.written[start // 2 : end // 2]
        part.marks = {width: marks[start // 2 // width : end // 2 // width] for width, marks in self.marks.items()}
        return part

    def block_base(self, state: State) -> np.ndarray:
        """Byte offset of each wave's block in `bytes`, int64 (waves, 1)."""
        return (state.block_of_wave * self.stride)[:, None]

    def _flat(
        self, state: State, op: Op, offset: np.ndarray, size: int, mask: np.ndarray | None, what: str
    ) -> np.ndarray:
        active = offset if mask is None else offset[mask]
        if active.size and (int(active.min()) < 0 or int(active.max()) + size > self.size):
            bad = (offset < 0) | (offset + size > self.size)
            bad = bad if mask is None else bad & mask
            wave, lane = (int(v) for v in np.argwhere(bad)[0])
            raise OutOfBounds(
                f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} {what} {size} bytes at offset "
                f"{int(offset[wave, lane])} of shared memory (LDS), which has {self.size} bytes per block (`{op.text}`)"
            )
        flat = offset + self.block_base(state)
        if mask is None:
            return flat
        return np.where(mask, flat, flat[mask][0] if active.size else 0)

    def load(
        self, state: State, op: Op, offset: np.ndarray, width: int, count: int = 1, mask: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Like Memory.load. Raises UninitialisedShared for a word that no lane of the block has written."""
        if mask is not None and not np.count_nonzero(mask):
            return [np.zeros(offset.shape, UINT[width]) for _ in range(count)]
        size = width * count
        flat = self._flat(state, op, offset, size, mask, "reads")
        state.counters.shared_access(state, op, offset, size, mask)
        low_bits = int(np.bitwise_or.reduce(flat, axis=None))
        if self.check:
            self._check_written(state, op, flat, low_bits, size, mask)
        if low_bits & (width - 1):
            raw = self.bytes.take(flat[..., None] + np.arange(size)).view(UINT[width])
            return [np.ascontiguousarray(raw[..., part]) for part in range(count)]
        index = flat >> (width.bit_length() - 1)
        words = self.words[width]
        result = [words.take(index)]
        for _ in range(count - 1):
            index += 1
            result.append(words.take(index))
        return result

    def _check_written(
        self, state: State, op: Op, flat: np.ndarray, low_bits: int, size: int, mask: np.ndarray | None
    ) -> None:
        grains = max(1, size // 2)
        if grains in UINT and low_bits % size == 0:
            seen = self.marks[grains].take(flat // max(size, 2))
            good = seen == np.array(int("01" * grains, 16), UINT[grains])
        else:
            grains = (size + 1) // 2
            good = self.written.take(np.minimum((flat >> 1)[..., None] + np.arange(grains), len(self.written) - 1)).all(
                axis=-1
            )
        if np.count_nonzero(good) == good.size:
            return
        wave, lane = (int(v) for v in np.argwhere(~good)[0])
        if mask is not None and not mask[wave, lane]:
            wave, lane = (int(v) for v in np.argwhere(mask)[0])
        offset = int(flat[wave, lane]) % self.stride
        raise UninitialisedShared(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} reads {size} bytes at offset "
            f"{offset} of shared memory (LDS) that no lane of its block has written; is a store or a barrier missing? "
            f"(`{op.text}`)"
        )

    def store(
        self,
        state: State,
        op: Op,
        offset: np.ndarray,
        values: list[np.ndarray],
        width: int,
        mask: np.ndarray | None = None,
    ) -> None:
        """Like Memory.store, without the race check."""
        if mask is not None and not np.count_nonzero(mask):
            return
        size = width * len(values)
        flat = self._flat(state, op, offset, size, mask, "writes")
        state.counters.shared_access(state, op, offset, size, mask, store=True)
        if mask is not None:
            flat, values = flat[mask], [value[mask] for value in values]
        low_bits = int(np.bitwise_or.reduce(flat, axis=None))
        if low_bits & (width - 1):
            parts = [np.ascontiguousarray(value)[..., None].view(np.uint8) for value in values]
            for part, value in enumerate(parts):
                self.bytes[flat[..., None] + part * width + np.arange(width)] = value
        else:
            index = flat >> (width.bit_length() - 1)
            for part, value in enumerate(values):
                self.words[width][index + part if part else index] = value
        self._mark(flat, low_bits, size)

    def _mark(self, flat: np.ndarray, low_bits: int, size: int) -> None:
        grains = max(1, size // 2)
        if grains in UINT and low_bits % size == 0:
            self.marks[grains][flat // max(size, 2)] = int("01" * grains, 16)
        else:
            for byte in range(0, size, 2):
                self.written[(flat + byte) >> 1] = 1
            self.written[(flat + size - 1) >> 1] = 1

    def atomic(
        self,
        state: State,
        op: Op,
        offset: np.ndarray,
        width: int,
        kind: str,
        value: np.ndarray,
        compare: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        returns: bool = True,
    ) -> np.ndarray:
        """Like Memory.atomic."""
        if mask is not None and not np.count_nonzero(mask):
            return np.zeros(offset.shape, UINT[width])
        flat = self._flat(state, op, offset, width, mask, "updates")
        state.counters.shared_access(state, op, offset, width, mask, atomic=True)
        low_bits = int(np.bitwise_or.reduce(flat, axis=None))
        if self.check:
            self._check_written(state, op, flat, low_bits, width, mask)
        pick = (lambda x: x.ravel()) if mask is None else (lambda x: x[mask])
        index = pick(flat) >> (width.bit_length() - 1)
        old = update_in_order(self.words[width], index, kind, pick(value), None if compare is None else pick(compare))
        if mask is None:
            return old.reshape(offset.shape)
        result = np.zeros(offset.shape, UINT[width])
        result[mask] = old
        return result
