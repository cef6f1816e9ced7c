"""Attention as buffers in the memories of an SM, a CU and an AI core: how large, where, live from which step to which.

A round of the loop computes one tile of scores, in steps. A buffer is written in the first step of its life and read in
the last. Which offsets and which tiles are right is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_utils.chips import TARGETS
from gpu_utils.chips.npus import NPUS
from gpu_utils.errors import BadArgument, UnknownName

THREADS = 256
"""Threads of the block on an SM or a CU: two groups of four warps, or a wave on each SIMD."""

KEPT_BACK = 32
"""Registers of a thread that the plan leaves to addresses and counters: an assumption, the compiler decides."""

Memories = dict[str, dict[str, int]]
Buffers = list[dict[str, Any]]


@dataclass(frozen=True)
class Placed:
    """One copy of a buffer in one part of a memory: bytes from `offset` on, in the steps `first` to `last`, both in."""

    name: str
    memory: str
    offset: int
    bytes: int
    first: int
    last: int

    def meets(self, other: Placed) -> bool:
        """Whether both are live in some step and have a byte in common.

        >>> Placed("S in UB", "UB", 0, 64, 1, 2).meets(Placed("P", "UB", 32, 64, 2, 3))
        True
        >>> Placed("S in UB", "UB", 0, 64, 1, 2).meets(Placed("P", "UB", 32, 64, 3, 4))
        False
        """
        alive = self.memory == other.memory and self.first <= other.last and other.first <= self.last
        return alive and self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


def placed(
    memories: Mapping[str, Any], buffers: Sequence[Any], tile: Mapping[str, int], offsets: Mapping[str, Sequence[int]]
) -> list[Placed]:
    """What each copy of each buffer covers with these offsets; for the rules see the lab.

    >>> one = {"name": "K", "memory": "L1", "shape": ["keys", 4], "itemsize": 2, "copies": "stages", "live": [0, 1]}
    >>> placed({"L1": {"parts": 1}}, [one], {"queries": 1, "keys": 8, "stages": 2}, {"K": [0, 64]})[1]
    Placed(name='K', memory='L1', offset=64, bytes=64, first=0, last=1)
    """
    end, found = max(one["live"][1] for one in buffers), []
    for one in buffers:
        rows, *more = (tile.get(size, size) for size in one["shape"])
        size = -(-rows // memories[one["memory"]]["parts"]) * one["itemsize"]
        for each in more:
            size *= each
        several = tile.get(one["copies"], one["copies"]) > 1
        first, last = (0, end) if several else one["live"]
        found += [Placed(one["name"], one["memory"], at, size, first, last) for at in offsets[one["name"]]]
    return found


def attention_buffers(machine: str, d: int = 128) -> tuple[Memories, Buffers]:
    """The memories of a machine, and the buffers of attention with 16-bit operands and vectors of d in them.

    machine  "sm_90", "gfx942" or "ascend950"
    memories name -> bytes of one part, how many parts share the rows of a tile, alignment of an offset in bytes
    buffers  name, memory, shape (names of tile sizes, or numbers), itemsize in bytes, copies (1 or "stages"), live

    Raises UnknownName for another machine, BadArgument for d below 1. Sizes are those of TARGETS and NPUS.

    >>> memories, buffers = attention_buffers("ascend950")
    >>> memories["UB"]
    {'bytes': 253952, 'parts': 2, 'align': 32}
    >>> buffers[1]
    {'name': 'K', 'memory': 'L1', 'shape': ['keys', 128], 'itemsize': 2, 'copies': 'stages', 'live': [0, 1]}
    """
    if machine not in STEPS:
        raise UnknownName("machine with a plan", machine, STEPS)
    if d < 1:
        raise BadArgument(f"d is {d}; expected at least 1, 128 in most models")
    buffers = [
        {
            "name": name,
            "memory": memory,
            "shape": [d if size == "d" else size for size in shape],
            "itemsize": itemsize,
            "copies": copies,
            "live": list(live),
        }
        for name, memory, shape, itemsize, copies, live in _BUFFERS[machine]
    ]
    return _memories(machine), buffers


def _memories(machine: str) -> Memories:
    if machine in NPUS:
        npu = NPUS[machine]
        cube = {"L1": npu.l1, "L0A": npu.l0a, "L0B": npu.l0b, "L0C": npu.l0c}
        found = {name: {"bytes": size, "parts": 1, "align": 512} for name, size in cube.items()}
        return found | {"UB": {"bytes": npu.ub, "parts": npu.vectors, "align": 32}}
    target = TARGETS[machine]
    a_thread = min(target.registers_max, target.simds * target.lanes * target.registers // THREADS)
    nvidia = target.vendor == "nvidia"
    shared = {"bytes": target.shared_per_block, "parts": 1, "align": 1024 if nvidia else 16}
    registers = {"bytes": 4 * THREADS * (a_thread - KEPT_BACK), "parts": 1, "align": 4 * THREADS}
    return {"shared" if nvidia else "LDS": shared, "registers": registers}


STEPS = {
    "sm_90": ("K arrives", "S = Q K", "softmax", "O += P V"),
    "gfx942": ("K arrives", "S = Q K", "softmax", "O += P V"),
    "ascend950": ("K arrives", "S = Q K", "softmax", "P to L1", "P V", "O += P V"),
}
"""What each step of a round does. On the AI core softmax and the sum are the vector cores', the products the cube's."""

_BUFFERS: dict[str, tuple[tuple[str, str, tuple[str, ...] | tuple[str, int], int, int | str, tuple[int, int]], ...]] = {
    "sm_90": (
        ("Q", "shared", ("queries", "d"), 2, 1, (0, 3)),
        ("K", "shared", ("keys", "d"), 2, "stages", (0, 1)),
        ("V", "shared", ("keys", "d"), 2, "stages", (2, 3)),
        ("S", "registers", ("queries", "keys"), 4, 1, (1, 2)),
        ("P", "registers", ("queries", "keys"), 2, 1, (2, 3)),
        ("O", "registers", ("queries", "d"), 4, 1, (0, 3)),
        ("max and sum", "registers", ("queries", 2), 4, 1, (0, 3)),
    ),
    "gfx942": (
        ("Q", "registers", ("queries", "d"), 2, 1, (0, 3)),
        ("K", "LDS", ("keys", "d"), 2, "stages", (0, 1)),
        ("V", "LDS", ("keys", "d"), 2, "stages", (2, 3)),
        ("S", "registers", ("queries", "keys"), 4, 1, (1, 2)),
        ("P", "LDS", ("queries", "keys"), 2, 1, (2, 3)),
        ("O", "registers", ("queries", "d"), 4, 1, (0, 3)),
        ("max and sum", "registers", ("queries", 2), 4, 1, (0, 3)),
    ),
    "ascend950": (
        ("Q", "L1", ("queries", "d"), 2, 1, (0, 5)),
        ("K", "L1", ("keys", "d"), 2, "stages", (0, 1)),
        ("V", "L1", ("keys", "d"), 2, "stages", (3, 4)),
        ("P", "L1", ("queries", "keys"), 2, 1, (3, 4)),
        ("Q in L0A", "L0A", ("queries", "d"), 2, 1, (1, 1)),
        ("P in L0A", "L0A", ("queries", "keys"), 2, 1, (4, 4)),
        ("K in L0B", "L0B", ("keys", "d"), 2, 1, (1, 1)),
        ("V in L0B", "L0B", ("keys", "d"), 2, 1, (4, 4)),
        ("S in L0C", "L0C", ("queries", "keys"), 4, 1, (1, 2)),
        ("PV in L0C", "L0C", ("queries", "d"), 4, 1, (4, 5)),
        ("S in UB", "UB", ("queries", "keys"), 4, 1, (2, 2)),
        ("P in UB", "UB", ("queries", "keys"), 2, 1, (2, 3)),
        ("PV in UB", "UB", ("queries", "d"), 4, 1, (5, 5)),
        ("O", "UB", ("queries", "d"), 4, 1, (0, 5)),
        ("max and sum", "UB", ("queries", 2), 4, 1, (0, 5)),
    ),
}
