"""Which loops of a kernel may wait: for lanes of the same block, for other blocks, or for a lock."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_utils.virtual.machine.op import Op

# A loop that waits for another block is short.
WAIT_OPS = 64


def inner_loops(ops: Sequence[Op]) -> dict[int, tuple[int, ...]]:
    """Jump back of each loop -> those of the loops inside of it, indices of ops."""
    loops = [(op.target, op.index) for op in ops if op.target is not None and op.target <= op.index]
    return {back: tuple(end for begin, end in loops if start <= begin and end < back) for start, back in loops}


def find_loops(ops: Sequence[Op]) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """(spinning, waiting, locks), indices of ops.

    spinning: jumps back of loops that communicate; waiting: of short ones that may wait for another block.
    locks: the ops of loops that take a lock: always the same value is swapped in, until the old one pleases.
    """
    spinning: set[int] = set()
    waiting: set[int] = set()
    locks: set[int] = set()
    for op in ops:
        if op.target is None or op.target > op.index:
            continue
        loop = ops[op.target : op.index]
        if any(each.communicates for each in loop):
            spinning.add(op.index)
        if len(loop) <= WAIT_OPS and any(each.polls for each in loop):
            waiting.add(op.index)
            if any(each.takes and not _feeds_itself(each, loop) for each in loop):
                locks.update(each.index for each in loop)
    return frozenset(spinning), frozenset(waiting), frozenset(locks)


def _feeds_itself(atomic: Op, loop: Sequence[Op]) -> bool:
    """Whether what an atomic returned decides what it swaps in next time: then it works on a value and is no lock."""
    made_of: dict[str, set[str]] = {}
    for op in loop:
        if op is not atomic:
            for register in op.writes:
                made_of.setdefault(register, set()).update(op.reads - op.guards)
    reached: set[str] = set()
    new = set(atomic.reads - atomic.guards)
    while new:
        reached |= new
        new = set[str]().union(*(made_of.get(register, ()) for register in new)) - reached
    return bool(atomic.writes & reached)
