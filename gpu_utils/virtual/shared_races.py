"""Barriers that are missing: two waves of a block that meet in shared memory with no barrier between them.

Lanes of a warp of NVIDIA run in any order too, since Volta: one that reads what another has written, with no
__syncwarp() or shuffle between, races. And with `all_meet` every thread of a block must come to every barrier.

All waves of a block run in step here, so a result does not show it; on a GPU they run in any order. Two accesses race
when waves of one block touch the same byte in the same stretch between two barriers and one of them writes another
value; and whatever barriers the second has met, when the first has met none since: a barrier of one wave orders
nothing. Atomics may meet each other; the lanes of one take their turns in an order that no kernel can foresee. Other
ways to order waves (a flag that is polled) are not known to this rule: it is for kernels that order waves by barriers
alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.errors import MissedBarrier, Race
from gpu_utils.virtual.machine import Op, State, source_of
from gpu_utils.virtual.shared_memory import Shared
from gpu_utils.virtual.words import UINT

_NOBODY, _SEVERAL = -1, -2
_DOES = {"load": "reads", "store": "writes", "atomic": "updates"}


class SharedWatch:
    """Give it to `VirtualGpu.watch_shared`: a launch that races in shared memory (LDS) then raises Race.

    all_meet: a thread (on AMD a wave) that ends without having come to a barrier of its block raises MissedBarrier.
    """

    def __init__(self, all_meet: bool = False) -> None:
        self.all_meet = all_meet

    def begin(self, state: Any) -> None:
        """Called for every batch of blocks before its first instruction."""
        state.shared = _WatchedShared(state.shared, state)

    def __call__(self, state: Any, op: Op) -> None:
        """Called by the machine after each instruction."""
        if op.ends == "barrier":
            state.shared.passed(state, state.shared.passes)
        elif op.ends == "sync":
            state.shared.passed(state, state.shared.syncs)
        elif op.ends == "end" and self.all_meet:
            state.shared.ended(state)


class _WatchedShared:
    """Shared memory that remembers, for each byte, who wrote it and who read it since which barrier."""

    def __init__(self, shared: Shared, state: State) -> None:
        self.shared = shared
        size = len(shared.bytes)
        self.passes = np.zeros(state.unit_shape, np.int32)  # barriers that a wave (on NVIDIA: a lane) has come to
        self.syncs = np.zeros(state.unit_shape, np.int32)  # the same of barriers, votes and shuffles of a warp
        self.ends: dict[int, tuple[int, int, int]] = {}  # block -> (wave, lane, passes) of one that has ended
        self.lane, self.synced_at = (np.full(size, -1, np.int32) for _ in range(2))  # of who wrote the byte
        self.writer, self.reader = (np.full(size, _NOBODY, np.int32) for _ in range(2))
        self.written_at, self.read_at = (np.full(size, -1, np.int32) for _ in range(2))
        self.by_atomic = np.zeros(size, bool)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shared, name)

    def passed(self, state: State, count: np.ndarray) -> None:
        """The running waves (lanes) have come to a barrier: one more in `count`."""
        if state.act is None:
            count += 1
        else:
            count[state.act] += 1

    def ended(self, state: State) -> None:
        """The running waves (lanes) end: all of a block must have come to as many barriers."""
        units = np.ones(state.unit_shape, bool) if state.act is None else state.act
        for unit in np.argwhere(units):
            wave, lane, passes = int(unit[0]), int(unit[1]) if len(unit) > 1 else 0, int(self.passes[tuple(unit)])
            first = self.ends.setdefault(int(state.block_of_wave[wave]), (wave, lane, passes))
            if passes != first[2]:
                least, most = sorted((first, (wave, lane, passes)), key=lambda one: one[2])
                raise MissedBarrier(
                    f"kernel {state.program.name}: {state.where(*least[:2])} came to fewer barriers ({least[2]}) than "
                    f"{state.where(*most[:2])} ({most[2]}); every thread of a block must reach every __syncthreads(): "
                    "put it outside of any `if`, and let nobody return before it"
                )

    def load(
        self, state: State, op: Op, base: Any, width: int, count: int = 1, mask: Any = None, offset: int = 0
    ) -> Any:
        words = self.shared.load(state, op, base, width, count, mask, offset)
        self._meet(state, op, base, width * count, mask, offset, "load")
        return words

    def store(
        self, state: State, op: Op, base: Any, values: list[np.ndarray], width: int, mask: Any = None, offset: int = 0
    ) -> None:
        new = np.stack([np.broadcast_to(value, base.shape) for value in values], axis=-1).astype(UINT[width])
        self._meet(state, op, base, width * len(values), mask, offset, "store", new.view(np.uint8))
        self.shared.store(state, op, base, values, width, mask, offset)

    def atomic(
        self,
        state: State,
        op: Op,
        base: Any,
        width: int,
        kind: str,
        value: Any,
        compare: Any = None,
        mask: Any = None,
        returns: bool = True,
        offset: int = 0,
    ) -> np.ndarray:
        self._meet(state, op, base, width, mask, offset, "atomic")
        turn = (np.arange(state.lanes) * 19 + 7) % state.lanes  # 19 is odd, so every lane has one turn

        def moved(rows: Any) -> Any:
            return None if rows is None else np.broadcast_to(rows, base.shape)[:, turn]

        old = self.shared.atomic(
            state, op, moved(base), width, kind, moved(value), moved(compare), moved(mask), returns, offset
        )
        return old[:, np.argsort(turn)]

    def _meet(
        self, state: State, op: Op, base: Any, size: int, mask: Any, offset: int, kind: str, new: Any = None
    ) -> None:
        """Wave by wave: compare with what others have done since the last barrier, and note this access."""
        passes = np.broadcast_to(self.passes if self.passes.ndim == 2 else self.passes[:, None], base.shape)
        latest = self.passes.max(axis=1) if self.passes.ndim == 2 else self.passes

        def unordered(who: np.ndarray, when: np.ndarray) -> np.ndarray:
            """Where an access, if there was one, is of this stretch, or its wave has come to no barrier since."""
            return (when == now) | (when >= 0) & (who >= 0) & (latest[who] <= when)

        place = base.astype(np.int64) + offset
        place = place & 0xFFFFFFFF if base.dtype == np.uint32 else place
        inside = (place >= 0) & (place + size <= self.shared.size)  # what is not raises below
        taking = inside if mask is None else inside & np.broadcast_to(mask, base.shape)
        for wave in np.flatnonzero(taking.any(axis=1)):
            lanes = np.flatnonzero(taking[wave])
            at = (place[wave, lanes] + self.shared.block_base[wave])[:, None] + np.arange(size)
            now = np.broadcast_to(passes[wave, lanes][:, None], at.shape)
            clash = unordered(self.writer[at], self.written_at[at]) & (self.writer[at] != wave)
            if kind == "atomic":
                clash &= ~self.by_atomic[at]
            if new is not None:
                clash &= self.shared.bytes[at] != new[wave, lanes]
            others = unordered(self.reader[at], self.read_at[at]) & (self.reader[at] != wave) & (kind != "load")
            if new is not None:
                others &= self.shared.bytes[at] != new[wave, lanes]
            for found, whom, verb in ((clash, self.writer, "written"), (others, self.reader, "read")):
                if np.count_nonzero(found):
                    lane, byte = (int(v) for v in np.argwhere(found)[0])
                    self._complain(state, op, int(wave), int(at[lane, byte]), kind, int(whom[at[lane, byte]]), verb)
            self._of_one_warp(state, op, int(wave), lanes, at, kind, now)
            if kind == "load":
                alone = (self.read_at[at] != now) | (self.reader[at] == wave)
                self.reader[at] = np.where(alone, wave, _SEVERAL)
                self.read_at[at] = now
            else:
                plain = (self.written_at[at] == now) & ~self.by_atomic[at] | (kind == "store")
                self.writer[at], self.written_at[at], self.by_atomic[at] = wave, now, ~plain

    def _of_one_warp(
        self, state: State, op: Op, wave: int, lanes: np.ndarray, at: np.ndarray, kind: str, now: np.ndarray
    ) -> None:
        """On NVIDIA: a lane that reads what another lane of its warp has written; note who writes."""
        if self.syncs.ndim == 1:
            return
        syncs = self.syncs[wave, lanes][:, None]
        if kind == "load":
            other = (self.written_at[at] == now) & (self.writer[at] == wave) & (self.lane[at] != lanes[:, None])
            found = other & (self.synced_at[at] == syncs) & ~self.by_atomic[at]
            if np.count_nonzero(found):
                row, byte = (int(v) for v in np.argwhere(found)[0])
                raise Race(
                    f"kernel {state.program.name}{source_of(op)}: {state.where(wave, int(lanes[row]))} reads what lane "
                    f"{int(self.lane[at[row, byte]])} of its warp has written, and nothing stands between them; lanes "
                    f"of a warp run in any order since Volta, is a __syncwarp() missing? (`{op.text}`)"
                )
        else:
            self.lane[at] = lanes[:, None]
            self.synced_at[at] = syncs

    def _complain(self, state: State, op: Op, wave: int, byte: int, kind: str, other: int, verb: str) -> None:
        who = "other waves have" if other == _SEVERAL else f"wave {other % state.waves_per_block} has"
        if kind == "store" and verb == "written":
            advice = "should each wave have a place of its own, or is a __syncthreads() missing?"
        else:
            advice = "waves run in any order, is a __syncthreads() missing?"
        raise Race(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, 0)} {_DOES[kind]} offset "
            f"{byte % self.shared.stride} of shared memory (LDS), which {who} {verb}, and no barrier stands between "
            f"them; {advice} (`{op.text}`)"
        )
