"""Why a wait of AMDGCN is not needed: an argument over all paths of the kernel, executed or not.

The kernel as it is and the kernel without the wait go through all their states together. If no path uses a register
too early, and at every point where others could notice (a barrier, an atomic, an access of LDS after loads to LDS, an
access after one that acquires) both have the same in flight, nothing depends on the wait. An atomic that gives nothing
back acquires nothing: the wave never learns whether it came before or after those of others. A write-back of caches has
nothing to do before the first store, of this wave or, behind a barrier, of another. And where no wave reads what
another block may write meanwhile, nobody can tell in which order its atomics and stores are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from gpu_utils.virtual.global_order import waits_for_others
from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.sanitize.amd_automaton import Automaton, Late, Queues
from gpu_utils.virtual.sanitize.amd_counters import waits

_NOWHERE = -1
MOST_PAIRS = 20_000
"""Of states to look at; a program that has more gets no argument."""

NO_DATA = "it holds back no data: {} counts exports, repeated translations or images, of which the kernel has none"
NOTHING = "nothing that it waits for is in flight there, on any path"
AT_ONCE = "a later wait of the same straight code covers it before any use, barrier or atomic"
COVERED = "on every path a later wait covers it before any use, barrier or atomic"
UNUSED = "on every path a later wait covers it before any use, barrier or atomic, or the kernel ends without one"
ATOMICS_ALONE = "in this launch no block touches plainly what another has stored plainly: atomics need no order there"
NOT_READ = (
    "in this launch no tensor is loaded that is stored to: nobody can tell whether the store is done at a barrier"
)
IDLE_BARRIER = "in this launch the barrier behind it is not needed, and with it what the wave has done before"
IDLE_BARRIERS = "in this launch none of the barriers past which it may be in flight is needed"

_PUBLISHED = frozenset({"lds", "lds read", "load to lds", "store", "async", "tensor"})
_RELEASED = _PUBLISHED | {"load", "atomic", "write back"}
_STORES = frozenset({"store", "async", "tensor"})
_INTO_LDS = frozenset({"load to lds", "async", "tensor"})


@dataclass(frozen=True)
class Facts:
    """What is known of one launch.

    only_atomics  no block touches plainly what another has stored plainly: the order of its atomics decides nothing
    read_back     some tensor that the launch stores to is also loaded, or reached by an atomic
    idle          whether the launch needs none of some barriers, ops of the program
    """

    only_atomics: bool
    read_back: bool
    idle: Callable[[Collection[Op]], bool]


def unnecessary(program: Program, op: Op, facts: Facts | None = None) -> str | None:
    """Why the program, or one launch of it, does not need a wait; None where that cannot be shown. op: the wait.

    facts: of a launch that has ended without the wait, and in which no sanitizer has found anything.
    """
    between_blocks = waits_for_others(program) and not (facts and facts.only_atomics)
    counts = waits(program.target, op)
    whole, less = Automaton(program), Automaton(program, without=op.index)
    if not whole.waits[op.index]:
        return NO_DATA.format(", ".join(counts)) if counts else None
    if why := _at_once(whole, less, op):
        return why
    nothing: Queues = ((),) * len(whole.counters)
    storing = any(access.does in _STORES for own in whole.own for access in own)
    todo = [(program.entry, False, nothing, nothing)]
    seen = set(todo)
    crossed: set[int] = set()
    idle = True
    ends_apart = False
    while todo:
        start, stored, first, second = todo.pop()
        one, two = list(first), list(second)
        for each in whole.line(start):
            if less.late(each, two):
                return None
            told = between_blocks, stored
            if one != two and (left := _noticed(less, each, two, *told) - _noticed(less, each, one, *told)):
                barrier = _excused(program, each, set(left), facts)
                if barrier is None:
                    return None
                crossed.add(barrier)
            stored |= _at_barrier(each) and storing
            stored |= any(access.does in _STORES for access in whole.own[each.index])
            before = tuple(one)
            whole.apply(each, one)
            less.apply(each, two)
            if each.index == op.index:
                idle &= tuple(one) == before
        same = one == two
        pair = tuple(one), tuple(two)  # all of it: others may notice what fills no register
        follow = _following(program, start)
        ends_apart |= not follow and not same
        for after in follow:
            if (after, stored, *pair) not in seen:
                seen.add((after, stored, *pair))
                todo.append((after, stored, *pair))
        if len(seen) > MOST_PAIRS:
            return None
    if facts is not None:
        return _of_the_launch(program, crossed, facts)
    return NOTHING if idle else UNUSED if ends_apart else COVERED


def _at_once(whole: Automaton, less: Automaton, op: Op) -> str | None:
    """Why its own segment shows that a wait does nothing, whatever was in flight before: of paths there may be many.

    What was in flight before is the same in both, if the wait would let it be or an earlier one has waited for it.
    """
    start = max(start for start in whole.program.segments if start <= op.index)
    one: list[tuple[int, ...]] = [()] * len(whole.counters)
    done: set[tuple[int, str]] = set()  # (counter, order) of which nothing is left that was there before
    two = one
    told = waits_for_others(whole.program), True
    orders = {(i, access.order) for (i, _), access in whole.known.items()}
    for each in whole.line(start):
        for i, count in whole.waits[each.index]:
            of_counter = {key for key in orders if key[0] == i}
            if each is op:
                if any(order or not count for _, order in of_counter - done):
                    return None
            else:
                issued = Counter(whole.known[i, number].order for number in one[i])
                done |= {(i, order) for _, order in of_counter if count <= (issued[order] if order else 0)}
        if one != two and (less.late(each, two) or _noticed(less, each, two, *told) - _noticed(less, each, one, *told)):
            return None
        one, two = list(one), list(two)
        whole.apply(each, one)
        less.apply(each, two)
        if each.index >= op.index and one == two:
            return NOTHING if each is op else AT_ONCE
    return None


def _of_the_launch(program: Program, crossed: set[int], facts: Facts) -> str | None:
    """The arguments that a launch gives. crossed: what `_excused` has returned."""
    barriers = crossed - {_NOWHERE}
    if barriers and not facts.idle([program.ops[barrier] for barrier in barriers]):
        return None
    told = [IDLE_BARRIER if len(barriers) == 1 else IDLE_BARRIERS] if barriers else []
    told += [NOT_READ] if crossed - barriers else []
    told += [ATOMICS_ALONE] if facts.only_atomics and waits_for_others(program) else []
    return "; ".join(told) or None


def _excused(program: Program, at: Op, left: set[str], facts: Facts | None) -> int | None:
    """The barrier past which accesses of LDS are in flight without the wait; None where something else is as well.

    at: where something is noticed; left: what it does. _NOWHERE: only stores that nobody reads are in flight.
    """
    if facts is None or not _at_barrier(at) or (facts.read_back and "store" in left):
        return None
    if not left - {"store"}:
        return _NOWHERE
    if left - {"store", "lds", "lds read"}:
        return None
    behind = at.index
    while program.ops[behind].kind != "barrier":  # a signal: its wait comes on the same straight way
        behind += 1
        if behind == len(program.ops) or program.ops[behind].ends not in ("", "mask", "barrier"):
            return None
    return behind


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


def _noticed(
    automaton: Automaton, op: Op, queues: list[tuple[int, ...]], between_blocks: bool, stored: bool
) -> Counter[str]:
    """What is in flight before an op that others, or this wave's later accesses, could tell from its being done.

    How many accesses, by what they do. between_blocks: others are other blocks too. stored: something may have been
    stored to global memory before.
    """
    own = automaton.own[op.index]
    wanted: frozenset[str]
    if op.mnemonic.startswith("s_wait"):
        return Counter()
    if _at_barrier(op):
        wanted = _PUBLISHED
    elif op.communicates and between_blocks:
        wanted = _RELEASED if stored else _RELEASED - {"write back"}
    elif any(access.does.startswith("lds") for access in own):
        wanted = _INTO_LDS
    elif own:
        wanted = frozenset()
    else:
        return Counter()
    return Counter(
        access.does
        for access in automaton.in_flight(queues)
        if access.does in wanted or (between_blocks and access.acquires and access.registers)
    )


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
