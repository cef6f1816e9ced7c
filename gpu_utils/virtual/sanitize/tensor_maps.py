"""Tensor maps that a kernel makes in global memory: a copy may use one only behind a fence that acquires it.

PTX manual, fence.proxy.tensormap: what tensormap.cp_fenceproxy has published is seen by the copies of a thread once it,
or a thread that it has waited for at a barrier, has executed the .acquire form on the map's address.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import LateData
from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.sanitize.order import Order
from gpu_utils.virtual.sanitize.report import kernel_and_line, reported, side_of


class Maps:
    """By address: the op and the wave that made a map of this batch, and who has acquired it: (wave, epoch)."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.makers: dict[int, tuple[Op, int]] = {}
        self.acquirers: dict[int, list[tuple[int, int]]] = {}

    def made(self, state: State, op: Op, address: np.ndarray, mask: np.ndarray | None) -> None:
        """Lanes have published the maps at `address` (waves, lanes)."""
        for wave, place in self._pairs(address, mask):
            self.makers[place], self.acquirers[place] = (op, wave), []

    def acquired(self, address: np.ndarray, mask: np.ndarray | None) -> None:
        """Lanes have acquired the maps at `address` (waves, lanes)."""
        for wave, place in self._pairs(address, mask):
            if place in self.acquirers:
                self.acquirers[place].append((wave, int(self.order.epoch[wave, 0])))
                self.order.epoch[wave, 0] += 1

    def used(self, state: State, op: Op, address: int, wave: int, lane: int) -> None:
        """A lane's copy uses a map. Raises LateData where the map is of this block and nobody it knows acquired it."""
        if address not in self.makers:
            return
        by, maker = self.makers[address]
        block = self.order.block[wave]
        if self.order.block[maker] != block:
            return
        for other, epoch in self.acquirers[address]:
            known = self.order.known[wave, self.order.wave[other]] >= epoch
            if other == wave or (self.order.block[other] == block and known):
                return
        second, first = side_of("uses", op, state, wave, lane), side_of("makes", by, state, maker)
        missing = "fence.proxy.tensormap::generic.acquire"
        error = LateData(
            f"{kernel_and_line(state, op)}: {second.where} copies by a tensor map that `{by.mnemonic}` has made, "
            f"and that nobody has acquired for it; is a {missing} on the map's address missing, or a barrier "
            f"behind it? (`{op.mnemonic}`)"
        )
        raise reported(error, "waitcheck", state, f"the tensor map at {address:#x}", second, first, missing)

    def _pairs(self, address: np.ndarray, mask: np.ndarray | None) -> list[tuple[int, int]]:
        waves, lanes = np.nonzero(np.ones(address.shape, bool) if mask is None else mask)
        return sorted({(int(wave), int(address[wave, lane])) for wave, lane in zip(waves, lanes, strict=True)})
