"""Why a wait of AMDGCN is not needed: an argument over all paths of the kernel, executed or not.

The kernel as it is and the kernel without the wait go through all their states together. If no path uses a register
too early, and at every point where others could notice (a barrier, an atomic, an access of LDS after loads to LDS, an
access after one that acquires) both have the same in flight, nothing depends on the wait. An atomic that gives nothing
back acquires nothing: the wave never learns whether it came before or after those of others. A write-back of caches has
nothing to do before the first store, of this wave or, behind a barrier, of another. And where no wave reads what
another block may write meanwhile, nobody can tell in which order its atomics and stores are done.
"""

from __future__ import annotations

from gpu_utils.virtual.global_order import waits_for_others
from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.sanitize.amd_automaton import Automaton, Late, Queues
from gpu_utils.virtual.sanitize.amd_counters import waits

MOST_PAIRS = 20_000
"""Of states to look at; a program that has more gets no argument."""

NO_DATA = "it holds back no data: {} counts exports, repeated translations or images, of which the kernel has none"
NOTHING = "nothing that it waits for is in flight there, on any path"
COVERED = "on every path a later wait covers it before any use, barrier or atomic"
UNUSED = "on every path a later wait covers it before any use, barrier or atomic, or the kernel ends without one"

_PUBLISHED = frozenset({"lds", "lds read", "load to lds", "store", "async", "tensor"})
_STORES = frozenset({"store", "async", "tensor"})
_INTO_LDS = frozenset({"load to lds", "async", "tensor"})


def unnecessary(program: Program, op: Op) -> str | None:
    """Why the program does not need a wait; None where that cannot be shown. op: of `program.ops`, the wait."""
    counts = waits(program.target, op)
    whole, less = Automaton(program), Automaton(program, without=op.index)
    if not whole.waits[op.index]:
        return NO_DATA.format(", ".join(counts)) if counts else None
    nothing: Queues = ((),) * len(whole.counters)
    storing = any(access.does in _STORES for own in whole.own for access in own)
    todo = [(program.entry, False, nothing, nothing)]
    seen = set(todo)
    idle = True
    ends_apart = False
    while todo:
        start, stored, first, second = todo.pop()
        one, two = list(first), list(second)
        for each in whole.line(start):
            if less.late(each, two):
                return None
            if one != two and _noticed(less, each, one, stored) != _noticed(less, each, two, stored):
                return None
            stored |= _at_barrier(each) and storing
            stored |= any(access.does in _STORES for access in whole.own[each.index])
            before = tuple(one)
            whole.apply(each, one)
            less.apply(each, two)
            if each.index == op.index:
                idle &= tuple(one) == before
        same = one == two
        pair = (whole.trimmed(one),) * 2 if same else (tuple(one), tuple(two))
        follow = _following(program, start)
        ends_apart |= not follow and not same
        for after in follow:
            if (after, stored, *pair) not in seen:
                seen.add((after, stored, *pair))
                todo.append((after, stored, *pair))
        if len(seen) > MOST_PAIRS:
            return None
    return NOTHING if idle else UNUSED if ends_apart else COVERED


def late_without(program: Program, op: Op) -> Late | None:
    """A use of a register that comes too early on some path, executed or not, once a wait is gone; None without one.

    op: of `program.ops`, the wait. Of more than MOST_PAIRS states the rest is not looked at.
    """
    automaton = Automaton(program, without=op.index)
    todo = [(program.entry, 0)]
    seen = set(todo)
    while todo and len(seen) <= MOST_PAIRS:
        start, state = todo.pop()
        move = automaton.move(start, state)
        if move.late is not None:
            return move.late
        fresh = {(place, move.after) for place in _following(program, start)} - seen
        seen |= fresh
        todo += fresh
    return None


def _at_barrier(op: Op) -> bool:
    return op.ends == "barrier" or op.mnemonic.startswith("s_barrier")


def _noticed(automaton: Automaton, op: Op, queues: list[tuple[int, ...]], stored: bool) -> list[tuple[str, int]]:
    """What is in flight before an op that others, or this wave's later accesses, could tell from its being done."""
    own = automaton.own[op.index]
    if op.mnemonic.startswith("s_wait"):
        return []
    if _at_barrier(op):
        wanted, acquires = _PUBLISHED, True
    elif op.communicates and waits_for_others(automaton.program):
        wanted, acquires = _PUBLISHED | {"load", "atomic"} | ({"write back"} if stored else set()), True
    elif any(access.does.startswith("lds") for access in own):
        wanted, acquires = _INTO_LDS, True
    elif own:
        wanted, acquires = frozenset(), True
    else:
        return []
    return [
        (access.counter, access.op)
        for access in automaton.in_flight(queues)
        if access.does in wanted or (acquires and access.acquires and access.registers)
    ]


def _following(program: Program, start: int) -> list[int]:
    """Where a wave may go on behind a segment; behind a jump through a register, anywhere."""
    segment = program.segments[start]
    stop = segment.stop
    places = [segment.next]
    if stop is not None and stop.ends == "end":
        places = []
    elif stop is not None and stop.ends == "branch":
        assert stop.target is not None
        places = [stop.target] if stop.mnemonic == "s_branch" else [stop.target, segment.next]
    elif stop is not None and stop.ends == "jump":
        places = list(program.segments)
    return [place for place in places if place in program.segments]
