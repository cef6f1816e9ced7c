"""The targets that a virtual GPU executes, and the cache of decoded kernels."""

from __future__ import annotations

from functools import cache, lru_cache

from gpu_utils.analytic.access import SHAPES
from gpu_utils.chips.targets import TARGETS
from gpu_utils.virtual.isa import Isa, Model
from gpu_utils.virtual.machine import Program


@cache
def _ptx() -> Isa:
    from gpu_utils.virtual import ptx

    return ptx


@cache
def _amdgcn() -> Isa:
    from gpu_utils.virtual import amdgcn

    return amdgcn


_ISA = {"nvidia": _ptx, "amd": _amdgcn}


def _model(name: str) -> Model:
    limits = TARGETS[name]
    return Model(_ISA[limits.vendor], limits.lanes, limits.shared_per_block, SHAPES[name])


MODELS: dict[str, Model] = {
    name: _model(name) for name in ("sm_80", "sm_89", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
}


@lru_cache(maxsize=256)
def decode(text: str, target: str, name: str | None) -> Program:
    """The decoded kernel; the same text is decoded once."""
    return MODELS[target].isa.decode(text, target, name)
