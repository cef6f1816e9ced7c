"""What is known of the mbarriers of a batch: who has arrived in the running phase, and what a wait for it teaches.

PTX manual, chapter on mbarrier: an arrive releases, a test_wait or try_wait that says true acquires, unless they are
.relaxed. Bytes that a bulk copy has brought count for the phase in which they arrive. A wait for a phase that is over
says true at once and teaches what was over then: not the data of the running phase.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import UninitialisedShared
from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.sanitize.order import Order
from gpu_utils.virtual.sanitize.report import kernel_and_line, reported, side_of

RELEASES = {"arrive": None, "copies": "cp.async", "commit": "tcgen05"}
"""Action that releases -> the queue of what it waits for, or None."""


class Mbarriers:
    """By the index of its 64-bit word in the batch's shared memory, each mbarrier's clocks.

    gathered: what those who arrived in the running phase released, (agents,). over: what the phases that are over did.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.gathered: dict[int, np.ndarray] = {}
        self.over: dict[int, np.ndarray] = {}
        self.vectors: dict[int, np.ndarray] = {}  # of this op: wave -> what it releases
        self.seen: set[tuple[int, int]] = set()  # of this op: (word, wave)

    def begin(self) -> None:
        """Another op begins to change mbarriers."""
        self.vectors, self.seen = {}, set()

    def changed(self, state: State, op: Op, action: str, word: int, wave: int, lane: int, over: bool) -> None:
        """A lane has done an action on an mbarrier; over: that ended the phase.

        action: init, inval, arrive, relaxed (an arrive), copies and commit (an arrive when the lane's cp.async, its
        tcgen05 so far are done), expect_tx, complete_tx.
        """
        if (word, wave) not in self.seen:
            self.seen.add((word, wave))
            self._touch(state, op, [wave], [word], "store" if action in ("init", "inval") else "atomic", None)
            if action == "init":
                self._renew(word)
            elif action in RELEASES:
                self.gathered[word] = np.maximum(self.gathered[word], self._released(wave, action))
        if action == "inval":
            self.gathered.pop(word, None)
            self.over.pop(word, None)
        elif over:
            self._end_phase(word)
            self.seen = {pair for pair in self.seen if pair[0] != word}

    def copied(self, state: State, op: Op, word: int, wave: int, lane: int, over: bool) -> None:
        """The bytes of a bulk copy that `wave` has issued have arrived; its next copy is of another epoch."""
        self._touch(state, op, [wave], [word], "atomic", "bulk")
        column = self.order.queues["bulk"] * self.order.per_block + int(self.order.wave[wave])
        self.gathered[word][column] = max(self.gathered[word][column], self.order.now("bulk")[wave])
        self.order.advance("bulk", np.array([wave]))
        if over:
            self._end_phase(word)

    def waited(self, state: State, op: Op, words: np.ndarray, over: np.ndarray, acquires: bool) -> None:
        """Lanes have seen that a phase is over: words int and over bool, (waves, lanes)."""
        waves, lanes = np.nonzero(over)
        if not len(waves):
            return
        pairs = np.unique(np.stack([waves, words[waves, lanes]], axis=1), axis=0)
        for wave, word in pairs.tolist():
            self.check(state, op, word, wave, int(np.argmax(over[wave])))
        alone = len(np.unique(pairs[:, 0])) == len(pairs)
        for some in [pairs] if alone else [pair[None] for pair in pairs]:
            self._touch(state, op, some[:, 0], some[:, 1], "atomic", None)
            if acquires:
                self.order.acquire(some[:, 0], np.stack([self.over[word] for word in some[:, 1].tolist()]))

    def _renew(self, word: int) -> None:
        self.gathered[word] = np.zeros(self.order.known.shape[1], np.int32)
        self.over[word] = self.gathered[word].copy()

    def _end_phase(self, word: int) -> None:
        self.over[word] = np.maximum(self.over[word], self.gathered[word])

    def _released(self, wave: int, action: str) -> np.ndarray:
        """What a wave makes known by an arrive; of a queue only where the arrival waits for what is on it."""
        if wave not in self.vectors:
            rows = np.array([wave])
            vector = self.order.released(rows)[0]
            queue = RELEASES[action]
            if queue:
                column = self.order.queues[queue] * self.order.per_block + int(self.order.wave[wave])
                vector[column] = self.order.now(queue)[wave]
                self.order.advance(queue, rows)
            self.vectors[wave] = vector
        return self.vectors[wave]

    def _touch(self, state: State, op: Op, waves, words, kind: str, queue: str | None) -> None:
        state.shared.touch(state, op, np.asarray(waves), 8 * np.asarray(words)[:, None], 8, kind, queue)

    def check(self, state: State, op: Op, word: int, wave: int, lane: int) -> None:
        """Raise UninitialisedShared where no mbarrier has been made at a word."""
        if word in self.over:
            return
        offset = 8 * word % state.shared.stride
        error = UninitialisedShared(
            f"{kernel_and_line(state, op)}: {state.where(wave, lane)} uses the mbarrier at offset {offset} of shared "
            f"memory, which nobody has initialised; an mbarrier.init must come first, and a barrier behind it "
            f"(`{op.text}`)"
        )
        second = side_of("uses", op, state, wave, lane)
        missing = "mbarrier.init"
        what = f"the mbarrier at offset {offset} of shared memory"
        raise reported(error, "waitcheck", state, what, second, None, missing)
