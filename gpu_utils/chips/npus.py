"""Ascend AI cores that a tile program can be lowered for: buffers, units and rates, one row each, with sources.

An AI core is one cube core (AIC: matrix products) and two vector cores (AIV). The numbers are those of CANN's platform
configuration, the file that Huawei's own compiler and run time read.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips.source import Source
from gpu_utils.chips.table import Table

CANN = Source("CANN platform_config Ascend950PR_957bx.ini", "2026-11-28")


@dataclass(frozen=True, kw_only=True)
class Npu:
    """One AI core and how many of them a chip has.

    name     as TileLang and CANN call it; arch: the architecture's name in TileLang
    cores    AI cores of a chip; vectors: vector cores of one AI core
    l1, l0a, l0b, l0c  bytes of the buffers of the cube core
    ub       bytes of the unified buffer of one vector core that a kernel may use (of 256 KiB)
    mhz      clock of the cube
    cube     (m, n, k) of the 16-bit product that the cube core does in a cycle
    vector_bytes  bytes of a vector register
    l2, memory    bytes of the chip's L2 and of its memory
    ddr_rate, l2_rate  bytes that a core reads in a cycle from memory and from L2
    l1_to_l0_rate, l0c_to_ub_rate  bytes in a cycle between the buffers
    source   where all of these are from
    """

    name: str
    arch: str
    cores: int
    vectors: int
    l1: int
    l0a: int
    l0b: int
    l0c: int
    ub: int
    mhz: int
    cube: tuple[int, int, int]
    vector_bytes: int
    l2: int
    memory: int
    ddr_rate: int
    l2_rate: int
    l1_to_l0_rate: int
    l0c_to_ub_rate: int
    source: Source


NPUS = Table(
    "NPU",
    {
        "ascend950": Npu(
            name="Ascend 950PR (957b)",
            arch="dav-3510",
            cores=28,
            vectors=2,
            l1=524_288,
            l0a=65_536,
            l0b=65_536,
            l0c=262_144,
            ub=253_952,
            mhz=1650,
            cube=(16, 16, 16),
            vector_bytes=256,
            l2=117_440_512,
            memory=120_259_084_288,
            ddr_rate=27,
            l2_rate=100,
            l1_to_l0_rate=256,
            l0c_to_ub_rate=128,
            source=CANN,
        )
    },
)
