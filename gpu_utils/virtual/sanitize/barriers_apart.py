"""Why a barrier of PTX is not needed: what stands before it and behind it has no memory in common, or one wave does it.

A barrier of the whole block parts what can come before it, as far back as another such barrier, from what can come
behind it, as far as another. It is not needed where neither side writes a kind of memory that the other touches, or
where one wave of a block alone does all of that: its own accesses are in order without a barrier. What
runs on by itself (copies, products of tensor cores) counts as before every barrier that can come after it, up to a wait
of its kind: whether that waits for the right ones is the matter of waitcheck and racecheck.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.machine.program import Segment
from gpu_utils.virtual.sanitize.guards import running
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks, instrumented
from gpu_utils.virtual.sanitize.ptx_needed import following

APART = (
    "on every path, what stands between it and the barriers next to it writes no kind of memory that both sides touch"
)

ONE_WAVE = (
    "between it and the barriers next to it, one wave of a block alone executes in this launch what touches a kind of "
    "memory on both sides"
)

_WHOLE = re.compile(r"(bar|barrier(\.cta)?)\.sync(\.aligned)?\s+0\s*;?")
_NOTHING = (
    *("tcgen05.wait", "tcgen05.fence", "tcgen05.relinquish", "wgmma.fence", "wgmma.commit", "wgmma.wait"),
    *("cp.async.wait", "cp.async.commit", "cp.async.bulk.wait", "cp.async.bulk.commit"),
)
_EFFECTS = {
    "ld.shared": "s",
    "ldmatrix": "s",
    "st.shared": "S",
    "stmatrix": "S",
    "atom.shared": "S",
    "red.shared": "S",
    "mbarrier.init": "SB",
    "mbarrier.inval": "SB",
    "mbarrier": "b",
    "ld.global": "g",
    "st.global": "G",
    "atom.global": "G",
    "red.global": "G",
    "tensormap": "GS",
    "tcgen05.ld": "t",
    "tcgen05.st": "T",
    "tcgen05.mma": "sT",
    "tcgen05.cp": "sT",
    "tcgen05.alloc": "ST",
    "tcgen05.dealloc": "T",
    "tcgen05.commit": "b",
    "wgmma.mma": "s",
    "cp.async.bulk": "gGsSb",
    "cp.async.mbarrier": "b",
    "cp.async": "gS",
}
"""Beginning of a mnemonic -> what it reads (small letter) or writes: shared, global or tensor memory, or mbarriers."""
_EVERYTHING = "gGsStTbB"
_RUNS_ON = {
    ("tcgen05.ld",): "tcgen05.wait::ld",
    ("tcgen05.st",): "tcgen05.wait::st",
    ("tcgen05.mma", "tcgen05.cp"): "mbarrier.try_wait",
    ("wgmma.mma", "cp.async", "cp.reduce"): None,
}
"""What runs on by itself -> what waits for it; None: what does is not looked at."""
_MEMORY = ("ld", "st", "atom", "red", "tcgen05", "wgmma", "cp", "multimem", "tensormap", "mbarrier", "call")


Effects = dict[str, set[int]]
"""What is read or written, in the letters of _EFFECTS -> the ops that do it, by index."""


class Executed(NoHooks):
    """Calls that note which waves of a block execute an op that touches memory. waves: by the index of an op."""

    def __init__(self) -> None:
        self.waves: dict[int, set[int]] = defaultdict(set)

    def before(self, op: Op) -> Call | None:
        if not _effects([op]):
            return None

        def note(state: State) -> None:
            self.waves[op.index].update(state.wave_in_block[running(state, op)].tolist())

        return note


def apart(program: Program, barrier: Op, run: Callable[[Program], Any]) -> str | None:
    """Why a launch of a PTX program does not need a barrier; None where that cannot be shown.

    barrier: of `program.ops`. run: repeats the launch with another program in the place of this one.
    """
    if not _whole_block(barrier) or any(op.ends == "jump" for op in program.ops):
        return None
    before: dict[int, list[int]] = defaultdict(list)
    for start, segment in program.segments.items():
        for place in following(program, segment):
            before[place].append(start)
    home = next(segment for segment in program.segments.values() if segment.stop is barrier)
    ahead = _touched(program, barrier, following(program, home), forwards=True, before=before)
    behind = _touched(program, barrier, before[home.start], forwards=False, before=before)
    _join(behind, _effects(home.ops))
    for runs_on, wait in _RUNS_ON.items():
        _join(behind, _effects(_running(program, home, before, runs_on, wait)))
    meeting: list[set[int]] = []
    for small, large in ("sS", "gG", "tT", "bB"):
        there, here = (side.get(large, set()) | side.get(small, set()) for side in (behind, ahead))
        if there and here and (large in behind or large in ahead):
            meeting.append(there | here)
    if not meeting:
        return APART
    executed = Executed()
    run(instrumented(program, [executed]))
    alone = all(len(set().union(*(executed.waves[op] for op in ops))) <= 1 for ops in meeting)
    return ONE_WAVE if alone else None


def _whole_block(op: Op) -> bool:
    return op.ends == "barrier" and not op.guards and _WHOLE.fullmatch(op.text.strip()) is not None


def _effects(ops: Iterable[Op]) -> Effects:
    found: Effects = {}
    for op in ops:
        name = op.mnemonic
        if name.startswith(_NOTHING) or not name.startswith(_MEMORY) or ".param" in name:
            continue
        for letter in next((what for start, what in _EFFECTS.items() if name.startswith(start)), _EVERYTHING):
            found.setdefault(letter, set()).add(op.index)
    return found


def _join(effects: Effects, more: Effects) -> None:
    for letter, ops in more.items():
        effects.setdefault(letter, set()).update(ops)


def _touched(
    program: Program, barrier: Op, places: Iterable[int], forwards: bool, before: dict[int, list[int]]
) -> Effects:
    """What can be touched from there on, up to other barriers; with `forwards` False, against the way."""
    found: Effects = {}
    todo, seen = list(places), set(places)
    while todo:
        segment = program.segments[todo.pop()]
        meets = segment.stop is not None and segment.stop is not barrier and _whole_block(segment.stop)
        if forwards or not meets:  # a barrier ends its segment: against the way nothing of it is behind the barrier
            _join(found, _effects(segment.ops))
        if meets:
            continue
        more = following(program, segment) if forwards else before[segment.start]
        fresh = set(more) - seen
        seen |= fresh
        todo += fresh
    return found


def _running(
    program: Program, home: Segment, before: dict[int, list[int]], runs_on: tuple[str, ...], wait: str | None
) -> Iterable[Op]:
    """The ops of these names that can come before the end of a segment with no wait between."""
    todo, seen = [home.start], {home.start}
    while todo:
        segment = program.segments[todo.pop()]
        for op in reversed(segment.ops):
            if wait is not None and op.mnemonic.startswith(wait):
                break
            if op.mnemonic.startswith(runs_on):
                yield op
        else:
            fresh = set(before[segment.start]) - seen
            seen |= fresh
            todo += fresh
