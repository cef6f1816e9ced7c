"""initcheck: reads of global memory that nobody has written since it was allocated.

Inside `virtual_gpu(..., sanitize="initcheck")` what torch allocates without a promise (torch.empty, empty_like,
new_empty, empty_strided, torch.Tensor(n), growing by resize_) is filled with a pattern of eight random bytes. Memory
that still holds it when a kernel loads it was written by nobody, neither by a kernel nor by the host: nothing else
has to be watched. A load is reported when eight bytes of what it reads still hold the pattern, or all that it reads.
Elements of one and two bytes count by the aligned four bytes in which they lie, so that one unwritten byte among
written ones is missed; so is what torch's own operations allocate, and memory of NumPy. Registers are left alone;
shared memory has `UninitialisedShared`.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from gpu_utils.errors import UninitialisedGlobal
from gpu_utils.virtual.global_patterns import Pattern
from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.regions import Region
from gpu_utils.virtual.sanitize.report import kernel_and_line, reported, side_of
from gpu_utils.virtual.words import ORIGIN, READ, WORDS


class Unwritten:
    """Which memory nobody has written yet: storages allocated in one block, by their address."""

    def __init__(self) -> None:
        self.word = secrets.randbits(64) | 1 << 63 | 1 << 31  # neither half is a small number
        self.halves = np.array([self.word & 0xFFFFFFFF, self.word >> 32], np.uint32)
        self.storages: set[int] = set()

    def allocated(self, tensor: Any, start: int = 0) -> None:
        """Fill a storage from byte `start` on with the pattern."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if tensor.device.type != "cpu" or size <= start:
            return
        address = storage.data_ptr()
        low, high = -(-(address + start) // 4) * 4, (address + size) & ~3
        if low < high:
            words = WORDS[4][(low - ORIGIN) // 4 : (high - ORIGIN) // 4]
            odd = low >> 2 & 1
            words[::2], words[1::2] = self.halves[odd], self.halves[1 - odd]
            self.storages.add(address)

    def holds(self, region: Region) -> bool:
        """Whether some of a tensor still holds the pattern; one that is written throughout is forgotten."""
        if region.start not in self.storages:
            return False
        words = READ[4][-(-region.start // 4) - ORIGIN // 4 : (region.start + region.size) // 4 - ORIGIN // 4]
        if np.count_nonzero(words == self.halves[0]) or np.count_nonzero(words == self.halves[1]):
            return True
        self.storages.discard(region.start)
        return False

    def check(self, state: State, op: Op, pattern: Pattern, base: int, size: int, region: Region) -> None:
        """A load of `size` bytes a lane, before memory changes. Raises UninitialisedGlobal."""
        address = pattern.active + base
        first, last = address >> 2, (address + size - 1) >> 2
        found = np.zeros((len(address), int((last - first).max()) + 1), bool)
        for step in range(found.shape[1]):
            word = first + step
            inside = (word <= last) & (word * 4 + 4 <= region.start + region.size) & (word * 4 >= region.start)
            word = np.where(inside, word, first[0])
            found[:, step] = (READ[4].take(word - ORIGIN // 4) == self.halves.take(word & 1)) & inside
        if not np.count_nonzero(found):
            return
        words = np.unique((first[:, None] + np.arange(found.shape[1]))[found])
        everything = len(words) == len(np.unique(np.concatenate([first, last])))
        if len(words) < 2 and not everything:
            return
        lane = int(found.any(axis=1).argmax())
        wave = int(np.searchsorted(np.cumsum(pattern.per_wave), lane, side="right"))
        of_wave = lane - int(np.cumsum(pattern.per_wave)[wave] - pattern.per_wave[wave])
        column = of_wave if pattern.mask is None else int(np.flatnonzero(pattern.mask[wave])[of_wave])
        offset = max(int(first[lane] + found[lane].argmax()) * 4, int(address[lane])) - region.start
        side = side_of("reads", op, state, wave, column)
        what = f"byte offset {offset} of {region.name}"
        error = UninitialisedGlobal(
            f"{kernel_and_line(state, op)}: {side.where} reads {what}, which nobody has written since it "
            f"was allocated: is a launch or a mask too small, or should it begin as torch.zeros? (`{op.text}`)"
        )
        raise reported(error, "initcheck", state, what, side, None, "a store before this load")
