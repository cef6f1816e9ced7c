"""The L2 cache of one chip for each target, as the model of cache traffic takes it: TARGETS and CHIPS joined.

A figure that no source confirms has the value None; `L2.sizes` then takes the default stated in DEFAULTS.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips.figure import Figure
from gpu_utils.chips.registry import CHIPS
from gpu_utils.chips.table import Table
from gpu_utils.chips.targets import TARGETS

MIB = 1 << 20


@dataclass(frozen=True)
class CacheSizes:
    """The L2 as numbers: bytes of all parts together, of a line, of one fill from memory; lines of a set; parts that
    each serve some of the blocks (one per chiplet)."""

    size: int
    line: int
    fill: int
    ways: int
    parts: int
    units: int


@dataclass(frozen=True, kw_only=True)
class L2:
    """The L2 cache of one product that stands for a target: the target's Cache and what the chip adds.

    chip     the product
    size     of all parts together
    units    SMs or CUs of the chip
    l1_line  bytes of one access to the vector L1 (AMD); a sector (NVIDIA)
    """

    chip: str
    size: Figure
    line: Figure
    fill: Figure
    ways: Figure
    parts: Figure
    units: Figure
    l1_line: Figure

    @property
    def sizes(self) -> CacheSizes:
        """The figures, with DEFAULTS for those that are not known.

        >>> L2_OF_TARGET["gfx942"].sizes.parts, L2_OF_TARGET["sm_80"].sizes.ways
        (8, 16)
        """
        mib = self.size.value if self.size.value is not None else DEFAULTS["size"]
        rest = {name: int(getattr(self, name).value or DEFAULTS[name]) for name in DEFAULTS if name != "size"}
        return CacheSizes(size=int(mib * MIB), **rest)


DEFAULTS = {"size": 8, "line": 128, "fill": 128, "ways": 16, "parts": 1, "units": 64}
"""What stands in for an unknown figure: size in MiB, the others in bytes or as counts. Assumptions, not facts."""


def _of(target: str) -> L2:
    row = TARGETS[target]
    chip = CHIPS[row.chip]
    assert row.cache is not None, f"{target} is executed: its row needs a cache"
    return L2(chip=chip.name, size=chip.l2_mb, units=chip.units, l1_line=row.l1_line, **vars(row.cache))


L2_OF_TARGET: Table[L2] = Table(
    "L2 cache of a target", {name: _of(name) for name, row in TARGETS.items() if row.executed}
)
"""Target -> the L2 of one of its chips, for every target that a virtual GPU executes."""
