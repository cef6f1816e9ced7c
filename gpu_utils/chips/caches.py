"""The caches that decide memory traffic: the L2 of one chip for each target, and the line of its first-level cache.

A figure that no source confirms has the value None; `L2.sizes` then takes the default stated in DEFAULTS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_utils.chips.registry import CHIPS, ROCM_SPECS, Figure

MIB = 1 << 20

_NCU = "Nsight Compute profiling guide: a line of 128 bytes has four sectors of 32, each filled on its own"
_KFD_MI200 = "Linux drivers/gpu/drm/amd/amdkfd/kfd_crat.c, aldebaran_cache_info"
_KFD_RDNA = "Linux kfd_crat.c for gfx10; ROCm Compute Profiler counts 128 bytes for a cache access on gfx115x"
_GFX942_LINE = "public profiling tools for gfx942 take 128 bytes for one TCP_TOTAL_CACHE_ACCESSES"
_XCDS = (
    "Modular docs, chiplet_transform_chunked: 8 XCDs on MI300X and MI355X, each with an L2, blocks dealt round-robin"
)
_EA = "ROCm MI200 counters: the L2 reads from memory in requests of 32 or 64 bytes"
_L40 = "arXiv 2606.22588, measurements of an L40"


def _unknown(unit: str) -> Figure:
    return Figure(None, unit, "", "no confirmed source")


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


@dataclass(frozen=True)
class L2:
    """The L2 cache of one product that stands for a target.

    chip     the product
    size     of all parts together
    line     bytes that share a tag
    fill     bytes that one miss reads from memory
    ways     lines of a set
    parts    caches that do not see each other; blocks go to them round-robin
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


def _nvidia(chip: str, size: Figure, units: Figure) -> L2:
    line, sector = Figure(128, "bytes", _NCU), Figure(32, "bytes", _NCU)
    return L2(chip, size, line, sector, _unknown("lines"), Figure(1, "caches", _NCU), units, sector)


def _amd(key: str, line: Figure, fill: Figure, l1_line: Figure, parts: Figure) -> L2:
    chip = CHIPS[key]
    return L2(chip.name, chip.l2_mb, line, fill, _unknown("lines"), parts, chip.units, l1_line)


_ONE = Figure(1, "caches", f"{ROCM_SPECS}, which lists one L2 for the device (of MI250X: for a GCD)")
_EIGHT = Figure(8, "caches", _XCDS)
_RDNA_LINE = Figure(128, "bytes", _KFD_RDNA)

L2_OF_TARGET: Mapping[str, L2] = {
    "sm_80": _nvidia("A100 80GB SXM", CHIPS["A100"].l2_mb, CHIPS["A100"].units),
    "sm_89": _nvidia("L40", Figure(96, "MB", _L40), Figure(142, "SMs", _L40)),
    "sm_90": _nvidia("H100 SXM", CHIPS["H100"].l2_mb, CHIPS["H100"].units),
    "gfx90a": _amd(
        "MI250X", Figure(128, "bytes", _KFD_MI200), Figure(64, "bytes", _EA), Figure(64, "bytes", _KFD_MI200), _ONE
    ),
    "gfx942": _amd("MI300X", _unknown("bytes"), _unknown("bytes"), Figure(128, "bytes", _GFX942_LINE), _EIGHT),
    "gfx950": _amd("MI355X", _unknown("bytes"), _unknown("bytes"), _unknown("bytes"), _EIGHT),
    "gfx1100": _amd("RX 7900 XTX", _RDNA_LINE, _unknown("bytes"), _RDNA_LINE, _ONE),
    "gfx1201": _amd("RX 9070 XT", _unknown("bytes"), _unknown("bytes"), _unknown("bytes"), _ONE),
}
"""Target -> the L2 of one of its chips, for every target that a virtual GPU executes."""
