"""The targets that a virtual GPU executes, their instruction sets, and the cache of decoded kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache

from gpu_utils.chips.table import Table
from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.virtual.isa import Isa
from gpu_utils.virtual.machine import Program

MODELS: Table[Target] = Table("virtual GPU", {name: row for name, row in TARGETS.items() if row.executed})
"""Target -> its row, for every target that a virtual GPU executes."""


@cache
def _ptx() -> Isa:
    from gpu_utils.virtual import ptx

    return ptx


@cache
def _amdgcn() -> Isa:
    from gpu_utils.virtual import amdgcn

    return amdgcn


ISAS: Mapping[str, Callable[[], Isa]] = {"ptx": _ptx, "amdgcn": _amdgcn}
"""`Target.isa` -> what gives the instruction set, whose tables are made when they are first wanted."""


def isa_of(target: str) -> Isa:
    """The instruction set of a target that a virtual GPU executes. Raises UnknownName for others."""
    return ISAS[MODELS[target].isa]()


@lru_cache(maxsize=256)
def decode(text: str, target: str, name: str | None) -> Program:
    """The decoded kernel; the same text is decoded once."""
    return isa_of(target).decode(text, target, name)
