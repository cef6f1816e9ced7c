"""Which loops of a kernel may wait: for lanes of the same block, for other blocks, or for a lock."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpu_utils.virtual.machine.op import Op

# A loop that waits for another block is short.
WAIT_OPS = 64
_COMMUNICATES = re.compile(r"atom|try_wait|test_wait|volatile|acquire|relaxed")
_POLLS = re.compile(r"atom|\bld\..*(?:volatile|acquire|relaxed)|_load_.*(?:\bsc1\b|\bglc\b|SCOPE_DEV|SCOPE_SYS)")
_TAKES = re.compile(r"(?:cmpswap|\bcas\b|_swap|\bexch\b)")
_STORES = re.compile(r"^st\.|_store_|^ds_write")
_REGISTER = re.compile(r"%\w+|\b[va]\d+|\b[va]\[\d+:\d+\]")


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
        if any(_COMMUNICATES.search(each.mnemonic) for each in loop):
            spinning.add(op.index)
        if len(loop) <= WAIT_OPS and any(_POLLS.search(each.text) for each in loop):
            spinning.add(op.index)
            waiting.add(op.index)
            if any(_TAKES.search(each.mnemonic) and not _feeds_itself(each, loop) for each in loop):
                locks.update(each.index for each in loop)
    return frozenset(spinning), frozenset(waiting), frozenset(locks)


def _registers(text: str) -> list[set[str]]:
    """The registers of each operand in order, the destination first; a guard `@%p` is no operand."""
    found = []
    for name in _REGISTER.findall(text.split(" ", 1)[1] if text.startswith("@") else text):
        first, _, last = name[2:-1].partition(":")
        found.append({f"{name[0]}{i}" for i in range(int(first), int(last) + 1)} if last else {name})
    return found


def _feeds_itself(atomic: Op, loop: Sequence[Op]) -> bool:
    """Whether what an atomic returned decides what it swaps in next time: then it works on a value and is no lock."""
    made_of: dict[str, set[str]] = {}
    for op in loop:
        if op is not atomic and not _STORES.search(op.mnemonic) and (operands := _registers(op.text)):
            for register in operands[0]:
                made_of.setdefault(register, set()).update(*operands[1:])
    operands = _registers(atomic.text)
    reached, new = set[str](), set[str]().union(*operands[1:])
    while new:
        reached |= new
        new = set[str]().union(*(made_of.get(register, ()) for register in new)) - reached
    return bool(operands and operands[0] & reached)
