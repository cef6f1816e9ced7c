"""What torch.cuda says of the chip that stands for a target, from `gpu_utils/chips`."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips.caches import L2_OF_TARGET
from gpu_utils.chips.registry import CHIPS
from gpu_utils.chips.targets import KIB, Target

CUDA_VERSION = "13.0"
HIP_VERSION = "7.2.0"
"""What `torch.version.cuda` and `.hip` say: releases that torch 2.11 and later are built for."""

_STATIC_SHARED = 48 * KIB  # of a block of NVIDIA's without opting in: CCCL's page of dynamic_shared_memory
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class DeviceProperties:
    """`torch.cuda.get_device_properties`: bytes, counts; what no source gives is left out or 0."""

    name: str
    major: int
    minor: int
    gcnArchName: str  # noqa: N815  (torch's name)
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    clock_rate: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"


def capability(row: Target) -> tuple[int, int]:
    """(major, minor): of sm_90 (9, 0), of gfx942 (9, 4), as the builds of torch for each vendor say."""
    if row.vendor == "nvidia":
        return row.capability // 10, row.capability % 10
    digits = row.name.removeprefix("gfx")  # major, then one hexadecimal digit each for minor and stepping
    return int(digits[:-2]), int(digits[-2], 16)


def name_of(row: Target) -> str:
    """The product as a driver names it: vendor and chip."""
    if row.vendor == "nvidia":
        return f"NVIDIA {'GeForce ' if row.chip.startswith('RTX') else ''}{row.chip}"
    return f"AMD {'Instinct' if row.chip.startswith('MI') else 'Radeon'} {row.chip}"


def properties(row: Target) -> DeviceProperties:
    chip, l2 = CHIPS[row.chip], L2_OF_TARGET[row.name].sizes
    major, minor = capability(row)
    amd, cdna = row.vendor == "amd", row.family == "gfx9"
    return DeviceProperties(
        name=name_of(row),
        major=major,
        minor=minor,
        gcnArchName=f"{row.name}:sramecc+:xnack-" if cdna else row.name if amd else "",
        total_memory=int((chip.memory_gb.value or 0) * GIB),
        multi_processor_count=l2.units // 2 if row.family.startswith("gfx1") else l2.units,
        warp_size=row.lanes,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=row.waves_per_unit * row.lanes,
        regs_per_multiprocessor=row.registers * row.lanes * row.simds,
        shared_memory_per_block=row.shared_per_block if amd else _STATIC_SHARED,
        shared_memory_per_block_optin=row.shared_per_block,
        shared_memory_per_multiprocessor=row.shared_per_unit,
        L2_cache_size=l2.size,
    )
