"""What racecheck says: both sides, and what must stand between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from gpu_utils.errors import LateData, Race
from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.sanitize.footprint import Footprint
from gpu_utils.virtual.sanitize.report import Side, kernel_and_line, reported, side_of

# A mark of the shadow: the number of an access, whether several waves wrote one value there, the wave in its block.
NUMBER, AGREED, WAVE = 7, 1 << 6, 63
_DOES = {"load": ("reads", "read"), "store": ("writes", "written"), "atomic": ("updates", "updated")}


def _lds(target: str) -> str:
    return "s_wait_dscnt 0x0" if target.startswith("gfx12") else "s_waitcnt lgkmcnt(0)"


def _loads(target: str) -> str:
    return "s_wait_loadcnt 0x0" if target.startswith("gfx12") else "s_waitcnt vmcnt(0)"


WAITS: dict[str, str | Callable[[str], str]] = {
    "cp.async": "cp.async.wait_group",
    "bulk": "a wait for the copy's mbarrier",
    "bulk store": "cp.async.bulk.wait_group.read",
    "wgmma": "wgmma.wait_group",
    "tcgen05": "a wait for the mbarrier of tcgen05.commit",
    "lds": _lds,
    "load to lds": _loads,
    "async": "s_wait_asynccnt 0x0",
    "tensor": "s_wait_tensorcnt 0x0",
}
"""Queue -> what waits for it, or a function of the target."""


@dataclass(slots=True, eq=False)
class Access:
    """One access of a batch that not all waves know of.

    queue: its number, 0 for the waves themselves. kind: "load", "store" or "atomic". epochs (waves,) int32: those of
    its agents, 0 for waves that take no part. stretch (waves,): the epochs that the waves themselves were in.
    """

    op: Op
    foot: Footprint
    queue: int
    kind: str
    epochs: np.ndarray
    wave: np.ndarray
    number: int = 0
    stretch: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def marks(self) -> np.ndarray:
        """What it leaves in the shadow, int32 (n,)."""
        return np.int32(self.number << NUMBER) | self.wave[self.foot.rows]


def complain(shadow: Any, state: State, access: Access, first: Access, lane: int, entry: int, whose: int) -> NoReturn:
    """Raise Race or LateData. lane, entry: of `access.foot`; whose: the wave of the block that made the first one."""
    row, at = int(access.foot.rows[lane]), int(access.foot.index[lane, entry])
    theirs = row - int(access.wave[row]) + whose
    byte = at * access.foot.grain
    here, there = _side(access, state, row, int(access.foot.lanes[lane])), _first(first, state, theirs, at)
    target, names = state.program.target, {number: name for name, number in shadow.order.queues.items()}
    wait = _wait(names.get(first.queue), target)
    if (
        not wait
        and access.queue in shadow.proxy
        and (theirs == row or shadow.order.known[row, whose] >= first.epochs[theirs])
    ):
        _unfenced(shadow, state, access, first, here, there, byte)
    passed = access is not first and shadow.order.known[row, whose] >= first.stretch[theirs]
    does, done = _DOES[access.kind][0], _DOES[first.kind][1]
    offset = f"offset {byte % shadow.shared.stride} of shared memory (LDS)"
    begin = f"{kernel_and_line(state, access.op)}: {here.where} {does} {offset}, which "
    end = f"(`{access.op.text}`; {_place(first)})"
    sync = "__syncthreads()" if shadow.isa == "ptx" else "__syncthreads(), s_barrier"
    tool = "racecheck"
    if theirs == row:
        tool, missing = "waitcheck", wait
        verb = (
            "is still being read"
            if first.kind == "load"
            else "an asynchronous access of its own wave may not have written yet"
        )
        error: Race | LateData = LateData(f"{begin}{verb}; is {wait} missing before it? {end}")
    elif passed and wait:
        missing = f"{wait} before the barrier"
        error = Race(
            f"{begin}wave {whose} has {done}; a barrier stands between them, but wave {whose} came to it before that "
            f"was complete; is {missing} missing? {end}"
        )
    else:
        missing = f"a barrier ({sync})"
        if access.kind == "store" and first.kind != "load":
            advice = "should each wave have a place of its own, or is a __syncthreads() missing?"
        else:
            advice = "waves run in any order, is a __syncthreads() missing?"
        error = Race(f"{begin}wave {whose} has {done}, and no barrier stands between them; {advice} {end}")
    raise reported(error, tool, state, offset, here, there, missing)


def _unfenced(shadow: Any, state: State, access: Access, first: Access, here: Side, there: Side, byte: int) -> NoReturn:
    """Raise Race: the accesses are ordered, but the async proxy does not see what a wave has written."""
    offset = f"offset {byte % shadow.shared.stride} of shared memory (LDS)"
    error = Race(
        f"{kernel_and_line(state, access.op)}: {here.where} {here.does} {offset} through the async proxy, which an "
        f"ordinary access has {_DOES[first.kind][1]}; is a fence.proxy.async missing between them? "
        f"(`{access.op.text}`; {_place(first)})"
    )
    raise reported(error, "racecheck", state, offset, here, there, "fence.proxy.async")


def _wait(queue: str | None, target: str) -> str:
    found = WAITS[queue] if queue else ""
    return found if isinstance(found, str) else found(target)


def _side(access: Access, state: State, row: int, lane: int) -> Side:
    return side_of(_DOES[access.kind][0], access.op, state, row, lane)


def _first(access: Access, state: State, row: int, entry: int) -> Side:
    foot = access.foot
    found = np.flatnonzero((foot.rows == row) & (foot.index == entry).any(axis=1))
    return _side(access, state, row, int(foot.lanes[found[-1]]) if len(found) else 0)


def _place(access: Access) -> str:
    line = f"{access.op.line[0].rsplit('/', 1)[-1]}:{access.op.line[1]}: " if access.op.line else ""
    return f"{line}`{access.op.text}`"
