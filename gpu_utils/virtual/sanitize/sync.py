"""synccheck: barriers that not all threads reach, barriers in divergent code, wrong counts and member masks.

A thread (on AMD a wave) that ends after fewer barriers of the whole block than another of its block is reported. CUDA's
guide lets threads that have exited be absent from later barriers; this rule reports what that hides: a __syncthreads()
behind an early return. (compute-sanitizer's manual names a condition that threads do not share, and is silent on those
that have exited.) Named barriers of a part of a block are not counted.

PTX: `bar.sync` is `barrier.sync.aligned`, for which the manual wants all threads of a warp, so a part of a warp is
reported there; `barrier.sync` without `.aligned` counts threads, and is not. A count of threads must be a multiple of
32, and a barrier's number below 16. A member mask must name the lane that executes; lanes that it names and that have
ended are allowed (CUDA's guide asks only those that have not exited), and those that never come are BarrierDeadlock.
AMD's s_barrier is of the wave and takes no lanes, so only the count of barriers remains there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.errors import MissedBarrier
from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.sanitize.guards import lanes_of
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks
from gpu_utils.virtual.sanitize.report import Side, kernel_and_line, reported, side_of

WARP, BARRIERS = 32, 16


class _Passed:
    """What synccheck keeps of a batch: barriers that each unit has come to, and who ended first in each block."""

    def __init__(self, state: State) -> None:
        self.passes = np.zeros(state.unit_shape, np.int32)
        self.ended = np.full(state.blocks, -1, np.int32)  # barriers of the first that ended
        self.who = np.zeros((state.blocks, 2), np.int64)  # its wave and lane
        self.live: np.ndarray = np.ones(state.unit_shape, bool)
        if state.absent is not None:
            self.live = np.logical_not(state.absent)
        if self.live.ndim > len(state.unit_shape):
            self.live = np.asarray(self.live.any(axis=1))


class SyncHooks(NoHooks):
    """The hooks of one program."""

    def __init__(self, program: Program) -> None:
        self.by_lane = program.unit == "lane"
        self.barriers = [op for op in program.ops if op.ends == "barrier"]

    def before(self, op: Op) -> Call | None:
        if op.ends == "barrier" and op.kind == "barrier":
            return lambda state: _barrier(state, op, self.by_lane)
        if op.ends == "end" and self.barriers:
            return lambda state: _end(state, op, self.barriers)
        slot = getattr(op, "members", None)
        if slot is not None and op.ends != "sync":
            return lambda state: _members(state, op, slot)
        return None


def _kept(state: State) -> _Passed:
    found = state.watch.kept.get("synccheck")
    if found is None:
        found = state.watch.kept["synccheck"] = _Passed(state)
    return found


def _running(state: State, kept: _Passed) -> np.ndarray:
    return kept.live if state.act is None else state.act & kept.live


def _barrier(state: State, op: Op, by_lane: bool) -> None:
    kept = _kept(state)
    units = _running(state, kept)
    threads = state.waves_per_block * state.lanes
    request = op.run(state) if by_lane else None
    number, count = (0, None) if request is None else request
    if by_lane:
        if not 0 <= number < BARRIERS or (count is not None and (count % WARP or not 0 < count <= threads)):
            wave, lane = (int(at) for at in np.argwhere(units)[0])
            _raise(
                state,
                op,
                side_of("waits", op, state, wave, lane),
                None,
                f"barrier {number} of {count} threads",
                f"a barrier has a number below {BARRIERS} and waits for a multiple of {WARP} threads, at most the "
                f"{threads} of a block",
                "a right count of threads",
            )
        apart = units.any(axis=1) & (units != kept.live).any(axis=1)
        if np.count_nonzero(apart) and (op.mnemonic.startswith("bar.") or ".aligned" in op.text):
            wave = int(apart.argmax())
            lane, other = int(units[wave].argmax()), int((kept.live[wave] & ~units[wave]).argmax())
            _raise(
                state,
                op,
                side_of("waits", op, state, wave, lane),
                Side("is elsewhere", "", None, state.where(wave, other)),
                f"barrier {number}",
                "an aligned barrier is for whole warps: put it outside of any `if` on which threads of a warp differ",
                "the other lanes of the warp",
            )
    if count is None or count == threads:
        kept.passes[units] += 1


def _end(state: State, op: Op, barriers: list[Op]) -> None:
    kept = _kept(state)
    units = _running(state, kept)
    ending = op.run(state) if op.reads else None
    if ending is not None:
        units = units & ending
    if not np.count_nonzero(units):
        return
    kept.live = kept.live & ~units
    wave, *lanes = np.nonzero(units)
    lane = lanes[0] if lanes else np.zeros_like(wave)
    block, passes = state.block_of_wave[wave], kept.passes[units]
    new = np.unique(block[kept.ended[block] < 0], return_index=False)
    for each in new.tolist():
        first = int(np.flatnonzero(block == each)[0])
        kept.ended[each], kept.who[each] = passes[first], (wave[first], lane[first])
    wrong = passes != kept.ended[block]
    if np.count_nonzero(wrong):
        at = int(wrong.argmax())
        mine, theirs = (int(wave[at]), int(lane[at]), int(passes[at])), int(kept.ended[block[at]])
        other = (*(int(v) for v in kept.who[block[at]]), theirs)
        least, most = sorted((mine, other), key=lambda one: one[2])
        barrier = barriers[min(least[2], len(barriers) - 1)]
        _raise(
            state,
            barrier,
            Side("ends", op.text, op.line, state.where(*least[:2])),
            side_of("waits", barrier, state, *most[:2]),
            "a barrier of the block",
            f"it came to fewer barriers ({least[2]}) than {state.where(*most[:2])} ({most[2]}); every thread of a "
            "block must reach every __syncthreads(): put it outside of any `if`, and let nobody return before it",
            "the barrier on the way of the thread that ended",
        )


def _members(state: Any, op: Op, slot: int) -> None:
    row = state.r[slot]
    lanes = np.arange(WARP, dtype=np.uint32)
    named = (np.broadcast_to(row, (state.waves, WARP)) >> lanes & 1) != 0
    guard = lanes_of(state, op)
    missing = ~named if guard is None else guard & ~named
    if np.count_nonzero(missing):
        wave, lane = (int(at) for at in np.argwhere(missing)[0])
        mask = int(np.broadcast_to(row, (state.waves, WARP))[wave, lane])
        _raise(
            state,
            op,
            side_of("takes part", op, state, wave, lane),
            None,
            f"member mask {mask:#010x}",
            "the mask does not name this lane; every lane that executes a .sync instruction must be in its own mask",
            "the lane's bit in the member mask",
        )


def _raise(state: State, op: Op, second: Side, first: Side | None, what: str, advice: str, missing: str) -> None:
    other = "" if first is None else f" ({first.where} {first.does})"
    error = MissedBarrier(
        f"{kernel_and_line(state, op)}: {second.where} {second.does}{other}, {what}: {advice} (`{op.text}`)"
    )
    raise reported(error, "synccheck", state, what, second, first, missing)
