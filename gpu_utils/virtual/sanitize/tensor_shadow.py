"""waitcheck for tensor memory (sm_100): products, copies, loads and stores that meet before one is waited for.

PTX manual 9.1, "Memory Consistency Model for 5th generation of TensorCore operations": a warp's tcgen05.ld and .st are
complete when it has executed tcgen05.wait::ld or ::st, its tcgen05.mma and .cp when an mbarrier to which tcgen05.commit
was sent says so. The manual keeps some pairs of one thread in order (a product after a product with its accumulator and
shape, a product after a copy); here all of one thread are in order. Other warps learn of it through a barrier. The
tcgen05.fence that the manual wants around that barrier is not asked for: Triton 3.7.1 writes none.

The shadow has an entry for each column of each 16 lanes: a warp has a quarter of the lanes, and of these the shapes
with 16 rows take a half (Triton 3.7.1 gives the halves of one quarter to two warps).
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from gpu_utils.errors import LateData
from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.sanitize.order import Order
from gpu_utils.virtual.sanitize.report import kernel_and_line, reported, side_of

LANES, ROWS, COLUMNS = 128, 16, 512
WAITS = {
    "tensor load": "tcgen05.wait::ld",
    "tensor store": "tcgen05.wait::st",
    "tcgen05": "a wait for the mbarrier of tcgen05.commit",
}
"""Queue -> what waits for it."""


def queue_of(op: Op) -> str:
    """The queue on which an op accesses tensor memory."""
    if op.mnemonic.startswith("tcgen05.ld"):
        return "tensor load"
    return "tensor store" if op.mnemonic.startswith("tcgen05.st") else "tcgen05"


class TensorShadow:
    """By queue and whether it was a write, the last epochs of each wave's accesses: (blocks, waves, 8, 512) int32."""

    def __init__(self, state: State, order: Order) -> None:
        self.order = order
        self.shape = state.blocks, order.per_block, LANES // ROWS, COLUMNS
        self.epochs: dict[tuple[str, bool], np.ndarray] = {}
        self.ops: dict[tuple[str, bool], Op] = {}

    def access(
        self, state: State, op: Op, waves: np.ndarray, lanes: np.ndarray, column: int, count: int, writes: bool
    ) -> None:
        """Waves access `count` columns from `column` on in some lanes. Raises LateData."""
        queue = queue_of(op)
        parts = np.unique(lanes // ROWS)
        columns = slice(column, column + count)
        for wave in waves.tolist():
            block, own = int(self.order.block[wave]), int(self.order.wave[wave])
            for (other, wrote), epochs in self.epochs.items():
                if not writes and not wrote:
                    continue
                newest = epochs[block, :, parts, columns].max(axis=(0, 2))
                first = self.order.queues[other] * self.order.per_block
                late = newest > self.order.known[wave, first : first + self.order.per_block]
                if other == queue:
                    late[own] = False
                if late.any():
                    theirs = wave - own + int(np.argmax(late))
                    self._complain(state, op, wave, queue, other, theirs, self.ops[other, wrote], column)
            kept = self.epochs.get((queue, writes))
            if kept is None:
                kept = self.epochs[queue, writes] = np.zeros(self.shape, np.int32)
            kept[block, own, parts, columns] = self.order.now(queue)[wave]
        self.ops[queue, writes] = op

    def _complain(
        self, state: State, op: Op, wave: int, queue: str, other: str, theirs: int, first: Op, column: int
    ) -> NoReturn:
        second, before = side_of("accesses", op, state, wave), side_of("accesses", first, state, theirs)
        missing = WAITS[other] + ("" if wave == theirs else ", or a barrier behind it,")
        what = f"column {column} of tensor memory"
        error = LateData(
            f"{kernel_and_line(state, op)}: {second.where} accesses tensor memory from column {column} on, where "
            f"`{first.mnemonic}` of wave {int(self.order.wave[theirs])} may still be at work; is {missing} missing "
            f"between them? (`{op.mnemonic}`)"
        )
        raise reported(error, "waitcheck", state, what, second, before, missing)
