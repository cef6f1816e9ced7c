"""What must have happened before what, in one batch of blocks: vector clocks of the agents that share a block.

An agent is something whose actions happen in one order of their own: a wave, or one of its queues (what it has issued
and not yet waited for: cp.async, bulk copies, wgmma; on AMD its LDS accesses, its loads into LDS). A wave's actions of
one *epoch* are not told apart. A wave *knows* an epoch of an agent when all that the agent did up to it is complete and
visible to that wave. Waves learn at barriers, through mbarriers, and about queues by waiting for them.

Two accesses are ordered when the later one's wave knows the epoch of the earlier one's agent.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from gpu_utils.virtual.machine import State


class Order:
    """The clocks of a batch.

    queues: names of what a wave issues to, beside itself. The agent of queue q (0: the wave itself) of wave w of a
    block has the number q * waves_per_block + w. known (waves, agents) int32: the newest epoch of each agent of its
    block that a wave knows. epoch (waves, 1 + queues) int32: of each wave's own agents, the one that they are in.
    """

    def __init__(self, state: State, queues: tuple[str, ...]) -> None:
        self.queues = {name: number + 1 for number, name in enumerate(queues)}
        self.per_block = state.waves_per_block
        self.wave = state.wave_in_block  # (waves,)
        self.block = state.block_of_wave  # (waves,)
        agents = (1 + len(queues)) * self.per_block
        self.known = np.zeros((state.waves, agents), np.int32)
        self.epoch = np.ones((state.waves, 1 + len(queues)), np.int32)
        self.gathered: dict[Hashable, np.ndarray] = {}  # a barrier -> what those who arrived have released
        self.published: dict[Hashable, np.ndarray] = {}  # a split barrier -> what those who wait for it learn

    def agent(self, queue: str | None = None) -> np.ndarray:
        """The number of each wave's agent, (waves,) int16: the wave itself, or one of its queues."""
        number = 0 if queue is None else self.queues[queue]
        return (number * self.per_block + self.wave).astype(np.int16)

    def now(self, queue: str | None = None) -> np.ndarray:
        """The epoch in which each wave's agent acts now, (waves,)."""
        return self.epoch[:, 0 if queue is None else self.queues[queue]]

    def advance(self, queue: str, waves: np.ndarray | slice) -> None:
        """What these waves put on the queue from now on is of a new epoch: it can be waited for apart."""
        self.epoch[waves, self.queues[queue]] += 1

    def complete(self, queue: str, waves: np.ndarray | slice, epochs: np.ndarray | int) -> None:
        """These waves have waited: they know their own queue up to `epochs`."""
        rows = np.arange(len(self.wave))[waves]
        column = self.queues[queue] * self.per_block + self.wave[rows]
        self.known[rows, column] = np.maximum(self.known[rows, column], epochs)

    def released(self, waves: np.ndarray | slice) -> np.ndarray:
        """What these waves make known to whoever waits for them now, (n, agents); their own next epoch begins."""
        rows = np.arange(len(self.wave))[waves]
        vector = self.known[rows]
        vector[np.arange(len(rows)), self.wave[rows]] = self.epoch[rows, 0]
        self.epoch[rows, 0] += 1
        return vector

    def acquire(self, waves: np.ndarray | slice, vectors: np.ndarray) -> None:
        """These waves learn what `vectors` (agents,) or (n, agents) say."""
        self.known[waves] = np.maximum(self.known[waves], vectors)

    def barrier(self, waves: np.ndarray, key: Hashable = None) -> None:
        """These waves (numbers, in order; of one block or of several) leave a barrier of their block together.

        key: of the barrier, where others may have come with `arrive`: what they released is learned as well.
        """
        vectors = self.released(waves)
        blocks = self.block[waves]
        starts = np.flatnonzero(np.r_[True, blocks[1:] != blocks[:-1]])
        joined = np.maximum.reduceat(vectors, starts, axis=0)
        if key in self.gathered:
            joined = np.maximum(joined, self.gathered[key][blocks[starts]])
            self.gathered[key][blocks[starts]] = 0
        self.acquire(waves, np.repeat(joined, np.diff(np.r_[starts, len(waves)]), axis=0))

    def arrive(self, waves: np.ndarray, key: Hashable) -> None:
        """These waves release what they know into a barrier and go on."""
        if key not in self.gathered:
            self.gathered[key] = np.zeros((int(self.block[-1]) + 1, self.known.shape[1]), np.int32)
        np.maximum.at(self.gathered[key], self.block[waves], self.released(waves))

    def publish(self, blocks: np.ndarray, key: Hashable) -> None:
        """A split barrier is complete in these blocks, bool (blocks,)."""
        gathered = self.gathered.get(key)
        if gathered is not None:
            published = self.published.setdefault(key, np.zeros_like(gathered))
            published[blocks] = gathered[blocks]
            gathered[blocks] = 0

    def learn(self, waves: np.ndarray, key: Hashable) -> None:
        """These waves have waited for a split barrier."""
        if key in self.published:
            self.acquire(waves, self.published[key][self.block[waves]])
