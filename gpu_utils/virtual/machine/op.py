"""One decoded instruction, as the machine sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def nothing(state: Any) -> None:
    """The `run` of an op that changes nothing, such as a wait: the machine counts it and does not call it."""


@dataclass(slots=True, eq=False)
class Op:
    """One decoded instruction.

    run(state) executes it for the units in `state.act` and the lanes in `state.mask`. What it
    returns matters only when `ends` is set:
      ""        nothing.
      "branch"  which units go to `target`: True, False or a bool array of the shape of the units
                (only the entries of running units are looked at); the others go on with the next op.
      "jump"    the op index to go to: an int, or an int array of the shape of the units.
      "barrier" None (the whole block, barrier 0), (number, threads or None), or one of `barriers.py`.
      "end"     the running units end: nothing, or a bool array of the units that end (the rest goes on).
      "sync"    None, or a bool array of the units that must stand here before any unit of their wave goes on.
      "mask"    nothing; a plain op that changed EXEC: the machine recounts the active lanes after it.
    kind is the class for the counters, see counters.KINDS. `line` is a source line (file, number).
    reads, writes: names of registers, as in the text, with those that the text leaves out (AMD's exec, vcc, scc, m0).
    A register of which the op keeps some bits is read as well; one that keeps its value in idle lanes is not.
    guards: those of `reads` that only say which lanes take part (AMD's exec, the predicate of a PTX guard).
    communicates: what it does to memory, others wait for, or it waits for them: atomics, ordered accesses, waits.
    polls: it reads memory that another block may change meanwhile. takes: it swaps a value in, as a lock does.
    acquires, releases: between programs, in global memory, by itself; see global_order.py.
    in_order: it updates global memory, so that the order of blocks may show.
    skips: a branch over code that the units which take it have no part in; the others come to its target as well.
    A decoder fills an op in; nothing changes it once its Program is made.
    """

    run: Callable[[Any], Any]
    mnemonic: str
    kind: str
    text: str = ""
    line: tuple[str, int] | None = None
    ends: str = ""
    target: int | None = None
    index: int = -1
    flops: int = 0  # of one wave, for matrix instructions
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()
    communicates: bool = False
    polls: bool = False
    takes: bool = False
    in_order: bool = False
    acquires: bool = False
    releases: bool = False
    skips: bool = False
