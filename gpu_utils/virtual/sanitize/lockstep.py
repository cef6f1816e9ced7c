"""lockstep: what two lanes of one wave do to one byte of shared memory with nothing that lets them meet in between.

On NVIDIA the lanes of a warp run in any order since Volta: only a barrier, a __syncwarp(), a vote or a shuffle orders
them. On AMD a wave has one program counter, so that its machine code is right; the source says nothing that would keep
the order elsewhere, or in a compiler that moves the accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_utils.errors import Race
from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks
from gpu_utils.virtual.sanitize.report import kernel_and_line, reported, side_of
from gpu_utils.virtual.shared_patterns import Pattern

_NOBODY, _SEVERAL = -1, -2
_DOES = {"load": "reads", "store": "writes", "atomic": "updates"}
_DONE = {"load": "read", "store": "written", "atomic": "updated"}


class Lockstep(NoHooks):
    """The calls: lanes that come to a barrier or to an instruction at which they meet begin anew."""

    def after(self, op: Op) -> Call | None:
        if op.ends == "barrier" or getattr(op, "members", None) is not None:
            return _met
        return None


def _met(state: State) -> None:
    count = state.watch.kept["lockstep"].met
    if state.mask is None:
        count += 1
    else:
        count[state.mask] += 1


class _Seen:
    """Who touched each byte last: the thread of the batch, how often it had met others, and by which op."""

    def __init__(self, size: int) -> None:
        self.thread, self.met, self.op = (np.full(size, _NOBODY, np.int32) for _ in range(3))

    def note(self, at: np.ndarray, thread: np.ndarray, met: np.ndarray, op: int) -> None:
        again = (self.thread[at] != thread) & (self.thread[at] >= 0) & (self.met[at] == met) & (self.op[at] == op)
        self.thread[at], self.met[at], self.op[at] = thread, met, op
        several = again | (self.thread[at] != thread)
        if np.count_nonzero(several):
            self.thread[at[several]] = _SEVERAL


class LaneShadow:
    """For each byte the lane that wrote it last and the one that read it last."""

    def __init__(self, state: State) -> None:
        self.shared, self.lanes = state.shared, state.lanes
        self.met = np.zeros((state.waves, state.lanes), np.int32)
        self.written, self.read = _Seen(len(self.shared.bytes)), _Seen(len(self.shared.bytes))
        self.by_atomic = np.zeros(len(self.shared.bytes), bool)

    def load(self, state: State, op: Op, pattern: Pattern, offset: int, size: int) -> None:
        at, thread, met = self._places(pattern, offset, size)
        self._meet(state, op, at, thread, met, "load", self.written, ~self.by_atomic[at])
        self.read.note(at, thread, met, op.index)

    def store(self, state: State, op: Op, pattern: Pattern, offset: int, values: Sequence[np.ndarray]) -> None:
        width = values[0].itemsize
        at, thread, met = self._places(pattern, offset, width * len(values))
        new = np.stack([np.ravel(value) for value in values], axis=1).view(np.uint8).reshape(at.shape)
        changes = self.shared.bytes[at] != new
        self._meet(state, op, at, thread, met, "store", self.written, changes)
        self._meet(state, op, at, thread, met, "store", self.read, changes)
        self.written.note(at, thread, met, op.index)
        self.by_atomic[at] = False

    def stored(self, state: State, op: Op, pattern: Pattern, offset: int, values: Sequence[np.ndarray]) -> None:
        """Which lane of one store comes last, lockstep does not say either: nothing to add."""

    def atomic(self, state: State, op: Op, pattern: Pattern, offset: int, size: int) -> None:
        at, thread, met = self._places(pattern, offset, size)
        self._meet(state, op, at, thread, met, "atomic", self.written, ~self.by_atomic[at])
        self.written.note(at, thread, met, op.index)
        self.by_atomic[at] = True

    def touch(
        self, state: State, op: Op, waves: np.ndarray, flat: np.ndarray, size: int, kind: str, queue: str | None
    ) -> None:
        """What no lane does itself is ordered by waits."""

    def _places(self, pattern: Pattern, offset: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bytes (n, size), thread of the batch, how often it has met others) of the lanes that take part."""
        thread = np.arange(pattern.flat.size).reshape(pattern.flat.shape)
        flat, met = pattern.flat, self.met
        if pattern.mask is not None:
            flat, met, thread = flat[pattern.mask], met[pattern.mask], thread[pattern.mask]
        at = (flat.ravel() + offset)[:, None] + np.arange(size)
        return at, np.broadcast_to(thread.ravel()[:, None], at.shape), np.broadcast_to(met.ravel()[:, None], at.shape)

    def _meet(
        self,
        state: State,
        op: Op,
        at: np.ndarray,
        thread: np.ndarray,
        met: np.ndarray,
        kind: str,
        seen: _Seen,
        matters: Any,
    ) -> None:
        other = seen.thread[at]
        found = matters & (other != thread) & (other != _NOBODY) & (seen.met[at] == met) & (seen.op[at] != op.index)
        if not np.count_nonzero(found):
            return
        found &= (other == _SEVERAL) | (other // self.lanes == thread // self.lanes)
        if not np.count_nonzero(found):
            return
        row, byte = (int(v) for v in np.argwhere(found)[0])
        wave, lane = divmod(int(thread[row, byte]), self.lanes)
        whose, first = int(other[row, byte]), state.program.ops[int(seen.op[at[row, byte]])]
        done = "read" if seen is self.read else "atomic" if self.by_atomic[at[row, byte]] else "store"
        done = "load" if done == "read" else done
        who = "other lanes of its wave have" if whose == _SEVERAL else f"lane {whose % self.lanes} of its warp has"
        nvidia = state.program.unit == "lane"
        why = (
            "lanes of a warp run in any order since Volta, is a __syncwarp() missing?"
            if nvidia
            else "on AMD the lanes of a wave run in step, so this machine code is right, but nothing in its source may "
            "say so; elsewhere it needs a __syncwarp() or a barrier"
        )
        offset = f"offset {int(at[row, byte]) % self.shared.stride} of shared memory (LDS)"
        error = Race(
            f"{kernel_and_line(state, op)}: {state.where(wave, lane)} {_DOES[kind]} what {who} {_DONE[done]}, and "
            f"nothing stands between them; {why} (`{op.text}`; {offset})"
        )
        other_side = side_of(_DOES[done], first, state, wave, whose % self.lanes if whose >= 0 else 0)
        missing = "__syncwarp()" if nvidia else "__syncwarp() or a barrier"
        side = side_of(_DOES[kind], op, state, wave, lane)
        raise reported(error, "lockstep", state, offset, side, other_side, missing)


def hooks(program: Program) -> Lockstep:
    """The calls for a program."""
    return Lockstep()
