"""Threads (on AMD waves) that end without having come to a barrier of their block that others have come to."""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import MissedBarrier
from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks

NAME = "all meet"


class Passes:
    """What a batch keeps: passes, barriers that each unit has come to; ends: of a unit of each block that has ended."""

    def __init__(self, state: State) -> None:
        self.passes = np.zeros(state.unit_shape, np.int32)
        self.ends = np.full(state.blocks, -1, np.int64)  # flat number of the unit


class AllMeet(NoHooks):
    """The calls."""

    def before(self, op: Op) -> Call | None:
        if op.ends == "barrier" and op.kind == "barrier":
            return _came
        return None

    def after(self, op: Op) -> Call | None:
        return _ended if op.ends == "end" else None


def _came(state: State) -> None:
    passes = state.watch.kept[NAME].passes
    if state.act is None:
        passes += 1
    else:
        passes[state.act] += 1


def _ended(state: State) -> None:
    kept = state.watch.kept[NAME]
    passes = kept.passes.ravel()
    units = np.arange(passes.size) if state.act is None else np.flatnonzero(state.act)
    blocks = units // (passes.size // state.blocks)
    new = kept.ends[blocks] < 0
    kept.ends[blocks[new][::-1]] = units[new][::-1]
    wrong = np.flatnonzero(passes[units] != passes[kept.ends[blocks]])
    if not len(wrong):
        return
    pair = sorted((int(units[wrong[0]]), int(kept.ends[blocks[wrong[0]]])), key=lambda unit: int(passes[unit]))
    lanes = 1 if len(state.unit_shape) == 1 else state.lanes
    least, most = (state.where(*divmod(unit, lanes)) for unit in pair)
    raise MissedBarrier(
        f"kernel {state.program.name}: {least} came to fewer barriers ({passes[pair[0]]}) than {most} "
        f"({passes[pair[1]]}); every thread of a block must reach every __syncthreads(): put it outside of any `if`, "
        "and let nobody return before it"
    )


def hooks(program: Program) -> AllMeet:
    """The calls for a program."""
    return AllMeet()
