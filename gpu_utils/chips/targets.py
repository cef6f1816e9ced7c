"""What a compiler builds for: one row per target holds every fact that the library knows of it.

A target is an instruction set with its limits per block and per compute unit (SM or CU); a chip is a product. What
other modules need of a target (the virtual GPUs, sizes of transactions, the L2, the FP8 types) derives from its row.
Over 400 lines because it is a table: one row for each target, with its sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_utils.chips.figure import Figure, unknown
from gpu_utils.chips.source import Source
from gpu_utils.chips.table import Table
from gpu_utils.errors import UnknownName

KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Family:
    """What all targets of one family of instruction sets share.

    name    what the names of its targets start with
    vendor  "nvidia" or "amd"
    isa     "ptx" or "amdgcn": which decoder reads its assembly text
    waits   the counters that its instructions for waiting name (LLVM AMDGPU backend); NVIDIA's assembler hides its own
    """

    name: str
    vendor: str
    isa: str
    waits: tuple[str, ...] = ()


FAMILIES: Table[Family] = Table(
    "family of targets",
    {
        "sm": Family(name="sm", vendor="nvidia", isa="ptx"),
        "gfx9": Family(name="gfx9", vendor="amd", isa="amdgcn", waits=("vmcnt", "lgkmcnt", "expcnt")),
        "gfx11": Family(name="gfx11", vendor="amd", isa="amdgcn", waits=("vmcnt", "vscnt", "lgkmcnt", "expcnt")),
        "gfx12": Family(
            name="gfx12",
            vendor="amd",
            isa="amdgcn",
            waits=("loadcnt", "storecnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt", "expcnt"),
        ),
    },
)
FP8 = ("none", "ocp", "fnuz")
"""Flavours of 8-bit floats that matrix instructions take: none, the two of the OCP standard, AMD's FNUZ of MI300."""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """The L2 of the chip that stands for a target; its size is the chip's.

    line   bytes that share a tag
    fill   bytes that one miss reads from memory
    ways   lines of a set
    parts  caches that do not see each other; blocks go to them round-robin
    """

    line: Figure
    fill: Figure
    ways: Figure
    parts: Figure


@dataclass(frozen=True, kw_only=True)
class Target:
    """One instruction set with its limits.

    name             "sm_90", "gfx942"
    family           of FAMILIES: "sm", "gfx9" (CDNA), "gfx11" (RDNA3), "gfx12" (RDNA4)
    lanes            lanes of a warp or wavefront
    simds            parts of an SM or CU that each hold registers and waves
    waves_per_simd   most warps or wavefronts that one such part holds at a time
    registers        32-bit vector registers that one such part has for each lane
    granule          registers are handed out to a wave in multiples of this many, per lane
    registers_max    most registers that one lane can have (AMD: VGPRs and AGPRs together where they share a file)
    shared_per_block bytes of shared memory (LDS) that one block can have
    shared_per_unit  bytes that one SM or CU has for all its blocks (gfx11, gfx12: of the two CUs of a WGP)
    shared_granule   bytes: shared memory is handed out to a block in multiples of this
    shared_reserved  bytes that the system takes from each block's share
    blocks_per_unit  most blocks on one SM or CU; on AMD it binds blocks of two waves and more, each of which holds one
                     of as many barriers
    scalars          scalar registers that one part has for all its waves; None where they never limit
    l1_line          bytes of one access to the first-level cache: a sector (NVIDIA), a line of the vector L1 (AMD)
    banks            banks of shared memory (LDS), 4 bytes each
    fp8              of FP8: the 8-bit floats of its conversions and matrix instructions
    matrix           its matrix instructions: "mma", "wgmma", "tcgen05", "mfma", "wmma"
    inputs           what their operands can be: "f16", "bf16", "tf32", "xf32", "f32", "f64", "i8", "fp8", "f8f6f4"
                     (integers of 4 bits and 1 are left out)
    flushes_halves   whether matrix instructions take float16 and bfloat16 denormals for zero
    chip             of CHIPS: the product that stands for it where a figure of a whole chip is needed
    cache            the L2 of that chip; None where the target is not executed
    executed         whether a virtual GPU executes it
    sources          limit -> the source that says it
    """

    name: str
    family: str
    lanes: int
    simds: int
    waves_per_simd: int
    registers: int
    granule: int
    registers_max: int
    shared_per_block: int
    shared_per_unit: int
    shared_granule: int
    shared_reserved: int
    blocks_per_unit: int
    scalars: int | None
    l1_line: Figure
    banks: int
    fp8: str
    matrix: tuple[str, ...]
    inputs: tuple[str, ...]
    flushes_halves: bool = False
    chip: str
    cache: Cache | None = None
    executed: bool = False
    sources: Mapping[str, Source]

    def __post_init__(self) -> None:
        if not self.name.startswith(FAMILIES[self.family].name):
            raise UnknownName(f"target of the family {self.family}", self.name, [f"{self.family}..."])
        if self.fp8 not in FP8:
            raise UnknownName("flavour of 8-bit floats", self.fp8, FP8)

    @property
    def vendor(self) -> str:
        """ "nvidia" or "amd"."""
        return FAMILIES[self.family].vendor

    @property
    def source(self) -> str:
        """Where its limits come from, all sources in one line; docs/facts.md has them limit by limit."""
        return "; ".join(dict.fromkeys(source.where for source in self.sources.values()))

    @property
    def isa(self) -> str:
        """ "ptx" or "amdgcn"."""
        return FAMILIES[self.family].isa

    @property
    def waits(self) -> tuple[str, ...]:
        """The counters that instructions wait for: "vmcnt" and others before gfx12, "loadcnt" and others on it."""
        return FAMILIES[self.family].waits

    @property
    def capability(self) -> int:
        """NVIDIA's compute capability as names have it, 90 for sm_90; 0 for a target of AMD."""
        return capability_of(self.name) or 0

    @property
    def waves_per_unit(self) -> int:
        """Most warps or wavefronts on one SM or CU (gfx11, gfx12: on one WGP)."""
        return self.simds * self.waves_per_simd

    @property
    def segment(self) -> int:
        """Bytes of one transaction with global memory, as the counters report it.

        >>> TARGETS["sm_90"].segment, TARGETS["gfx90a"].segment, TARGETS["gfx942"].segment
        (32, 64, 128)
        """
        return int(self.l1_line.value or ASSUMED_LINE)

    @property
    def for_triton(self) -> tuple[str, int | str, int]:
        """What Triton's GPUTarget takes: backend, architecture, lanes.

        >>> TARGETS["sm_90"].for_triton, TARGETS["gfx942"].for_triton
        (('cuda', 90, 32), ('hip', 'gfx942', 64))
        """
        return ("cuda", self.capability, self.lanes) if self.vendor == "nvidia" else ("hip", self.name, self.lanes)


ASSUMED_LINE = 128
"""Bytes of a line of the vector L1 where no source confirms one: as on gfx942."""


def capability_of(name: str) -> int | None:
    """The compute capability in the name of an NVIDIA target, known to TARGETS or not; None for other names.

    >>> capability_of("sm_90"), capability_of("sm_90a"), capability_of("gfx942")
    (90, 90, None)
    """
    found = re.fullmatch(r"sm_(\d{2,3})[af]?", name)
    return int(found[1]) if found else None


_DAY = "2026-11-22"
_CCCL = Source("NVIDIA's CCCL, libcudacxx/include/cuda/__device/arch_traits.h in github.com/NVIDIA/cccl", _DAY)
_OCCUPANCY = Source("NVIDIA's cuda_occupancy.h, which comes with Triton 3.7", _DAY)
_LLVM = Source("LLVM AMDGPUBaseInfo.cpp", _DAY, "excerpt")
_TRITON = Source("Triton's AMD TargetFeatures::getSharedMemorySize", _DAY, "excerpt")
_SPECS = Source("ROCm docs/reference/gpu-arch-specs.rst", _DAY)
_SPECS_NEW = Source("rocm.docs.amd.com/en/7.13.0-preview/reference/gpu-specs.html", _DAY, "excerpt")
_SPECS_RDNA4 = Source("rocm.docs.amd.com/en/latest/reference/gpu-specs.html", _DAY, "not opened")
_PIPELINES = Source("ROCm Compute Profiler docs/conceptual/pipeline-descriptions.rst", _DAY)
_SECTOR = Source(
    "NVIDIA's answers in forums.developer.nvidia.com 312884 and 49571: a line of 128 bytes has four sectors of 32, "
    "each filled on its own",
    _DAY,
    "excerpt",
)
_KFD_MI200 = Source("Linux drivers/gpu/drm/amd/amdkfd/kfd_crat.c, aldebaran_cache_info", _DAY, "not opened")
_KFD_RDNA = Source(
    "Linux kfd_crat.c for gfx10; ROCm Compute Profiler counts 128 bytes for a cache access on gfx115x",
    _DAY,
    "not opened",
)
_PROFILER = "AMD's rocprofiler-compute, analysis_configs/{}/1600_vector_l1_data_cache.yaml in ROCm/rocm-systems"
_DEALT = Source(
    "Modular docs, chiplet_transform_chunked: 8 XCDs on MI300X and MI355X, each with an L2, blocks dealt round-robin",
    _DAY,
    "not opened",
)
_EA = Source("ROCm docs/conceptual/gpu-arch/mi300-mi200-performance-counters.rst", _DAY)
_L2_PROFILER = Source("ROCm Compute Profiler docs/conceptual/l2-cache.rst", _DAY)
_LINES_128 = (
    "the counter TCP_TOTAL_CACHE_ACCESSES times 128; its documentation still says lines of 64 for MI accelerators"
)
_ONE = _SPECS.figure(1, "caches", "it lists one L2 for the device (of MI250X: for a GCD)")
_EIGHT = _DEALT.figure(8, "caches")

_SECTORS = Cache(
    line=_SECTOR.figure(128, "bytes"),
    fill=_SECTOR.figure(32, "bytes"),
    ways=unknown("lines"),
    parts=_SECTOR.figure(1, "caches", "the model's choice: an A100's or H100's two partitions count as one"),
)

# Limit -> who says it. A row that differs in a limit names its own source for it.
_OF_SM: Mapping[str, Source] = {
    **dict.fromkeys(("lanes", "registers", "registers_max", "waves_per_simd"), _CCCL),
    **dict.fromkeys(("shared_per_block", "shared_per_unit", "shared_reserved", "blocks_per_unit"), _CCCL),
    **dict.fromkeys(("simds", "granule", "shared_granule", "scalars"), _OCCUPANCY),
}
_OF_AMD: Mapping[str, Source] = {
    **dict.fromkeys(("registers", "granule", "registers_max", "waves_per_simd", "blocks_per_unit"), _LLVM),
    **dict.fromkeys(("scalars", "shared_granule", "shared_reserved"), _LLVM),
    "shared_per_block": _TRITON,
}
_OF_CDNA: Mapping[str, Source] = {**_OF_AMD, "lanes": _SPECS, "simds": _PIPELINES, "shared_per_unit": _SPECS}
_OF_RDNA: Mapping[str, Source] = {**_OF_AMD, "lanes": _SPECS, "simds": _LLVM, "shared_per_unit": _SPECS}

# What the rows below share; a row that differs says so itself.
_SM: dict[str, Any] = {
    "family": "sm",
    "lanes": 32,
    "simds": 4,
    "registers": 512,
    "granule": 8,
    "registers_max": 255,
    "shared_granule": 128,
    "shared_reserved": 1 * KIB,
    "scalars": None,
    "l1_line": _SECTOR.figure(32, "bytes"),
    "banks": 32,
    "cache": _SECTORS,
}
_CDNA: dict[str, Any] = {
    "family": "gfx9",
    "lanes": 64,
    "simds": 4,
    "waves_per_simd": 8,
    "registers": 512,
    "granule": 8,
    "registers_max": 512,
    "shared_reserved": 0,
    "blocks_per_unit": 16,
    "scalars": 800,
    "matrix": ("mfma",),
    "sources": _OF_CDNA,
}
_RDNA: dict[str, Any] = {
    "lanes": 32,
    "simds": 4,
    "waves_per_simd": 16,
    "registers": 1536,
    "granule": 24,
    "registers_max": 256,
    "shared_per_block": 64 * KIB,
    "shared_per_unit": 128 * KIB,
    "shared_granule": 512,
    "shared_reserved": 0,
    "blocks_per_unit": 32,
    "scalars": None,
    "banks": 32,
    "matrix": ("wmma",),
    "sources": _OF_RDNA,
}

_ROWS = (
    Target(
        **_SM,
        name="sm_80",
        waves_per_simd=16,
        shared_per_block=163 * KIB,
        shared_per_unit=164 * KIB,
        blocks_per_unit=32,
        fp8="none",
        matrix=("mma",),
        inputs=("f16", "bf16", "tf32", "f64", "i8"),
        chip="A100",
        executed=True,
        sources=_OF_SM,
    ),
    Target(
        **_SM,
        name="sm_89",
        waves_per_simd=12,
        shared_per_block=99 * KIB,
        shared_per_unit=100 * KIB,
        blocks_per_unit=24,
        fp8="ocp",
        matrix=("mma",),
        inputs=("f16", "bf16", "tf32", "f64", "i8", "fp8"),
        chip="L40",
        executed=True,
        sources=_OF_SM,
    ),
    Target(
        **_SM,
        name="sm_90",
        waves_per_simd=16,
        shared_per_block=227 * KIB,
        shared_per_unit=228 * KIB,
        blocks_per_unit=32,
        fp8="ocp",
        matrix=("mma", "wgmma"),
        inputs=("f16", "bf16", "tf32", "f64", "i8", "fp8"),
        chip="H100",
        executed=True,
        sources=_OF_SM,
    ),
    Target(
        **_SM,
        name="sm_100",
        waves_per_simd=16,
        shared_per_block=227 * KIB,
        shared_per_unit=228 * KIB,
        blocks_per_unit=32,
        fp8="ocp",
        matrix=("mma", "tcgen05"),
        inputs=("f16", "bf16", "tf32", "f64", "i8", "fp8", "f8f6f4"),
        chip="B200",
        executed=True,
        sources=_OF_SM,
    ),
    Target(
        **_SM,
        name="sm_120",
        waves_per_simd=12,
        shared_per_block=99 * KIB,
        shared_per_unit=100 * KIB,
        blocks_per_unit=24,
        fp8="ocp",
        matrix=("mma",),
        inputs=("f16", "bf16", "tf32", "f64", "i8", "fp8", "f8f6f4"),
        chip="RTX 5090",
        executed=True,
        sources=_OF_SM,
    ),
    Target(
        **_CDNA,
        name="gfx90a",
        shared_per_block=64 * KIB,
        shared_per_unit=64 * KIB,
        shared_granule=512,
        l1_line=Source(_PROFILER.format("gfx90a"), _DAY).figure(64, "bytes", "the counter times 64"),
        banks=32,
        fp8="none",
        inputs=("i8", "f16", "bf16", "f32", "f64"),
        flushes_halves=True,
        chip="MI250X",
        cache=Cache(
            line=_L2_PROFILER.figure(128, "bytes"),
            fill=_EA.figure(64, "bytes", "the L2 reads from memory in requests of 32 or 64 bytes"),
            ways=unknown("lines"),
            parts=_ONE,
        ),
        executed=True,
    ),
    Target(
        **_CDNA,
        name="gfx942",
        shared_per_block=64 * KIB,
        shared_per_unit=64 * KIB,
        shared_granule=512,
        l1_line=Source(_PROFILER.format("gfx942"), _DAY).figure(128, "bytes", _LINES_128),
        banks=32,
        fp8="fnuz",
        inputs=("i8", "f16", "bf16", "f32", "f64", "fp8", "xf32"),
        chip="MI300X",
        cache=Cache(line=unknown("bytes"), fill=unknown("bytes"), ways=unknown("lines"), parts=_EIGHT),
        executed=True,
    ),
    Target(
        **{**_CDNA, "sources": {**_OF_CDNA, "shared_per_unit": _SPECS_NEW, "lanes": _SPECS_NEW}},
        name="gfx950",
        shared_per_block=160 * KIB,
        shared_per_unit=160 * KIB,
        shared_granule=1280,
        l1_line=Source(_PROFILER.format("gfx950"), _DAY).figure(128, "bytes", _LINES_128),
        banks=64,
        fp8="ocp",
        inputs=("i8", "f16", "bf16", "f32", "f64", "fp8", "f8f6f4"),
        chip="MI355X",
        cache=Cache(line=unknown("bytes"), fill=unknown("bytes"), ways=unknown("lines"), parts=_EIGHT),
        executed=True,
    ),
    Target(
        **_RDNA,
        name="gfx1100",
        family="gfx11",
        l1_line=_KFD_RDNA.figure(128, "bytes"),
        fp8="none",
        inputs=("i8", "f16", "bf16"),
        chip="RX 7900 XTX",
        cache=Cache(line=_KFD_RDNA.figure(128, "bytes"), fill=unknown("bytes"), ways=unknown("lines"), parts=_ONE),
        executed=True,
    ),
    Target(
        **{**_RDNA, "sources": {**_OF_RDNA, "lanes": _SPECS_RDNA4, "shared_per_unit": _SPECS_RDNA4}},
        name="gfx1201",
        family="gfx12",
        l1_line=unknown("bytes"),
        fp8="ocp",
        inputs=("i8", "f16", "bf16", "fp8"),
        chip="RX 9070 XT",
        cache=Cache(line=unknown("bytes"), fill=unknown("bytes"), ways=unknown("lines"), parts=_ONE),
        executed=True,
    ),
)

TARGETS: Table[Target] = Table("target", {row.name: row for row in _ROWS})
"""Every target that the compiler accepts. An unknown name raises UnknownName with the nearest.

>>> TARGETS["gfx942"].lanes, TARGETS["sm_90"].lanes
(64, 32)
"""
