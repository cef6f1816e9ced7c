"""Why a commit, wait or fence of PTX is not needed: arguments over all paths of the kernel, executed or not.

Groups: the kernel as it is and the kernel without the op go through all paths together. Of each access that is in
flight they keep how many groups were committed behind it. If what the kernel as it is has waited for is, before any
use, complete without the op too, nothing depends on the op. wgmma.fence: the automaton of registers finds no fault
without it. fence.proxy.async: nothing that waves write reaches the async proxy without another fence.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.machine.program import Segment
from gpu_utils.virtual.sanitize.ptx_async import FENCE, GROUPS, Groups, number_of
from gpu_utils.virtual.sanitize.ptx_registers import PRODUCT, Automaton, Where
from gpu_utils.virtual.sanitize.queues import ASYNC_PROXY, queue_of

MOST_STATES = 20_000
"""Of points and states to look at; a program that has more gets no argument."""

IDLE = "nothing is in flight there, on any path"
COVERED = "on every path a later wait covers what it concerns before any use of it"
UNSEEN = "on every path another fence.proxy.async stands between a wave's write and the async proxy's read"
UNWRITTEN = "the async proxy reads nothing there that a wave wrote: cp.async and bulk copies need no such fence"
FENCED = "on every path, since another wgmma.fence, registers of the wgmma were accessed only to write an A fragment"

NOTICED = {
    "mbarrier.init": "another mbarrier.init stands before every use: a use of one that nobody has made is an error",
    "mbarrier.arrive": "nothing waits for the phase that lacks the arrival: such a wait would not have ended",
    "mbarrier.expect_tx": "nothing waits for the phase that lacks the bytes: such a wait would not have ended",
}
"""Beginning of a mnemonic -> the argument from a launch without the op that ended without a report."""

_DONE = -1
_GENERIC = tuple(
    f"{stem}.{kind}{n}" for stem in ("st", "ld", "atom", "red") for kind in "bsuf" for n in (8, 16, 32, 64)
)
_WRITES = ("st.", "stmatrix.", "atom.", "red.", "tensormap.replace.")
Pair = tuple[
    int, int
]  # groups committed behind an access in the program, _DONE when waited for; the same without the op
Flight = frozenset[Pair]


def unnecessary(program: Program, op: Op) -> str | None:
    """Why a PTX program does not need an op; None where that cannot be shown. op: of `program.ops`.

    To be asked after a launch without the op has ended and no sanitizer has found anything.
    """
    name = op.mnemonic
    for groups in GROUPS:
        if name.startswith(tuple(filter(None, (groups.commit, groups.wait, groups.all)))):
            return _group(program, op, groups)
    for beginning, why in NOTICED.items():
        if name.startswith(beginning):
            return why
    if name.startswith("wgmma.fence"):
        return _register_fence(program, op)
    if name.startswith(FENCE):
        return _proxy_fence(program, op)
    return None


def _group(program: Program, removed: Op, groups: Groups) -> str | None:
    automaton = Automaton(program)
    most = max((number_of(op) for op in program.ops if op.mnemonic.startswith(groups.wait)), default=0) + 1
    idle = True

    def step(op: Op, at: Flight) -> Iterable[Flight] | None:
        nonlocal idle
        if any(first == _DONE for first, _ in at) and _uses(op, groups.queue, automaton):
            return None
        after = _flight(op, at, groups, most, removed)
        if op is removed:
            idle &= not at
        return {after, at} if op.guards and op.kind == "wait" else {after}

    if not _on_every_path(program, frozenset(), step):
        return None
    return IDLE if idle else COVERED


def _flight(op: Op, at: Flight, groups: Groups, most: int, removed: Op) -> Flight:
    """What is in flight after an op in the program, and in the one without the op that was removed."""
    name, acts = op.mnemonic, op is not removed
    if name.startswith(groups.commit):
        return frozenset(
            (first if first == _DONE else min(first + 1, most), min(second + acts, most)) for first, second in at
        )
    if name.startswith(groups.wait) or (groups.all and name.startswith(groups.all)):
        least = number_of(op) + 1 if name.startswith(groups.wait) else 0
        left = {(_DONE if first >= least else first, second) for first, second in at if not (acts and second >= least)}
        return frozenset(left)
    if op.kind != "wait" and queue_of("ptx", op) == groups.queue:
        return at | {(0, 0)}
    return at


def _uses(op: Op, queue: str, automaton: Automaton) -> bool:
    """Whether an op may make use of what a wait for a queue has completed, or tell others of it.

    Copies into shared memory are used by every access of it; what only reads it, by writes, and by the end of the
    program, when the memory is given to another block. wgmma also by accesses of its registers.
    """
    if op.ends in ("barrier", "jump") or op.mnemonic.startswith(("mbarrier", "cp.async.mbarrier", "tcgen05.commit")):
        return True
    if op.kind == "wait":
        return False
    if op.ends == "end":
        return queue == "bulk store"
    if queue == "wgmma" and automaton.concerns(op) and not op.mnemonic.startswith(PRODUCT):
        return True
    on = queue_of("ptx", op)
    if on is not None:
        return queue == "cp.async" or on in ("cp.async", "bulk")
    reads = op.mnemonic.startswith(("ld.", "ldmatrix.")) and queue != "cp.async"
    return (op.kind == "shared" and not reads) or op.mnemonic.startswith(_GENERIC)


def _register_fence(program: Program, removed: Op) -> str | None:
    automaton = Automaton(program)

    def step(op: Op, at: Where) -> Iterable[Where] | None:
        if op is removed or not automaton.concerns(op):
            return {at}
        after, fault = automaton.step(op, at)
        if fault:
            return None
        return {after, at} if op.guards else {after}

    return FENCED if _on_every_path(program, automaton.start, step) else None


def _proxy_fence(program: Program, removed: Op) -> str | None:
    written = False

    def step(op: Op, dirty: bool) -> Iterable[bool] | None:
        nonlocal written
        name = op.mnemonic
        if name.startswith(FENCE) and not name.endswith(".global"):
            written |= dirty and op is removed
            return {dirty} if op is removed or op.guards else {False}
        if name.startswith(_WRITES) and op.kind != "global":
            return {True}
        reads = queue_of("ptx", op) in ASYNC_PROXY - {"bulk"} and op.kind != "wait"
        return None if reads and dirty else {dirty}

    if not _on_every_path(program, False, step):
        return None
    return UNSEEN if written else UNWRITTEN


def _on_every_path(program: Program, start: Hashable, step: Callable[[Op, Any], Iterable[Any] | None]) -> bool:
    """Go from state to state on all paths from the entry; False where `step` returns None or there are too many."""
    todo: list[tuple[int, Hashable]] = [(program.entry, start)]
    seen = set(todo)
    while todo:
        place, state = todo.pop()
        segment = program.segments[place]
        states = {state}
        for op in (*segment.ops, *([segment.stop] if segment.stop else [])):
            after: set[Hashable] = set()
            for each in states:
                found = step(op, each)
                if found is None:
                    return False
                after.update(found)
            states = after
        for after_it in following(program, segment):
            fresh = {(after_it, each) for each in states} - seen
            seen |= fresh
            todo += fresh
        if len(seen) > MOST_STATES:
            return False
    return True


def following(program: Program, segment: Segment) -> list[int]:
    """Where lanes may go on behind a segment; behind a jump through a register, anywhere."""
    stop, places = segment.stop, [segment.next]
    if stop is not None and stop.ends == "end":
        places = [segment.next] if stop.guards else []
    elif stop is not None and stop.ends == "branch":
        assert stop.target is not None
        places = [stop.target, segment.next] if stop.guards else [stop.target]
    elif stop is not None and stop.ends == "jump":
        places = list(program.segments)
    return [place for place in places if place in program.segments]
