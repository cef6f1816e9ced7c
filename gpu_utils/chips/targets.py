"""What a compiler builds for, and the limits that decide occupancy there.

A target is an instruction set with its limits per block and per compute unit (SM or CU); a chip is a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_utils.errors import UnknownName

KIB = 1024


@dataclass(frozen=True)
class Target:
    """One instruction set.

    name             "sm_90", "gfx942"
    vendor           "nvidia" or "amd"
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
    source           where these figures come from
    """

    name: str
    vendor: str
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
    source: str

    @property
    def waves_per_unit(self) -> int:
        """Most warps or wavefronts on one SM or CU (gfx11, gfx12: on one WGP)."""
        return self.simds * self.waves_per_simd


_CUDA = (
    "CUDA programming guide, compute capabilities: 64K 32-bit registers an SM, 255 a thread, 32 lanes; "
    "1 KB of shared memory a block is the system's; NVIDIA's cuda_occupancy.h, which comes with Triton: "
    "256 registers and 128 bytes at a time"
)
_LLVM = (
    "LLVM AMDGPUBaseInfo.cpp for registers, waves, barriers and what LDS is handed out in; "
    "LDS per block: Triton's AMD TargetInfo"
)


def _nvidia(name: str, waves: int, block_kib: int, unit_kib: int, blocks: int, note: str) -> Target:
    shared = (block_kib * KIB, unit_kib * KIB, 128, 1 * KIB)
    return Target(name, "nvidia", 32, 4, waves // 4, 512, 8, 255, *shared, blocks, None, f"{_CUDA}; {note}")


def _cdna(name: str, lds_kib: int, lds_granule: int) -> Target:
    return Target(name, "amd", 64, 4, 8, 512, 8, 512, lds_kib * KIB, lds_kib * KIB, lds_granule, 0, 16, 800, _LLVM)


def _rdna(name: str) -> Target:
    source = f"{_LLVM}; 128 KiB of LDS a WGP of two CUs: ROCm docs/reference/gpu-arch-specs.rst"
    return Target(name, "amd", 32, 4, 16, 1536, 24, 256, 64 * KIB, 128 * KIB, 512, 0, 32, None, source)


class _Table(Mapping[str, Target]):
    def __init__(self, rows: list[Target]) -> None:
        self._rows = {row.name: row for row in rows}

    def __getitem__(self, name: str) -> Target:
        if name not in self._rows:
            raise UnknownName("target", name, self._rows)
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


TARGETS: Mapping[str, Target] = _Table(
    [
        _nvidia("sm_80", 64, 163, 164, 32, "Ampere tuning guide for 64 warps and 32 blocks an SM"),
        _nvidia("sm_89", 48, 99, 100, 24, "Ada tuning guide for 48 warps and 24 blocks an SM"),
        _nvidia("sm_90", 64, 227, 228, 32, "Hopper tuning guide for 64 warps and 32 blocks an SM"),
        _nvidia("sm_100", 64, 227, 228, 32, "as sm_90; shared memory of B200 has no confirmed source of its own"),
        _cdna("gfx90a", 64, 512),
        _cdna("gfx942", 64, 512),
        _cdna("gfx950", 160, 1280),
        _rdna("gfx1100"),
        _rdna("gfx1201"),
    ]
)
"""Every target that the compiler accepts. An unknown name raises UnknownName with the nearest.

>>> TARGETS["gfx942"].lanes, TARGETS["sm_90"].lanes
(64, 32)
"""
