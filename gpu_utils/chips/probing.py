"""What this machine has: the first GPU that torch sees, or its CPU, with the versions that matter."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from gpu_utils.chips.chip import Chip
from gpu_utils.chips.registry import chip_of_device
from gpu_utils.chips.targets import TARGETS

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
AMD_DRIVER = Path("/sys/module/amdgpu/version")


@dataclass(frozen=True)
class Probe:
    """The device that `gpu` means here, or the CPU.

    vendor    "nvidia", "amd" or "cpu"
    name      as the driver reports it; for a CPU its model
    target    "sm_90", "gfx942"; "" for a CPU
    lanes     lanes of a warp or wavefront; 0 for a CPU
    memory    bytes of device memory; for a CPU of main memory
    units     SMs, CUs, or the CPU's cores that this process may use
    devices   how many GPUs torch sees
    versions  name -> version: python, torch, triton, and cuda, hip, driver where they exist
    chip      the row of CHIPS for this device; None when it has none
    problem   one sentence when torch was built for a GPU and could not use one; else ""
    """

    vendor: str
    name: str
    target: str
    lanes: int
    memory: int
    units: int
    devices: int
    versions: dict[str, str] = field(default_factory=dict)
    chip: Chip | None = None
    problem: str = ""

    def __str__(self) -> str:
        gib = f"{self.memory / 2**30:.1f} GiB"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        if self.vendor == "cpu":
            lines = [f"{self.name}: {self.units} cores, {gib} of memory, no GPU", versions]
        else:
            unit, lanes = ("SMs", "warp") if self.vendor == "nvidia" else ("CUs", "wavefront")
            known = f"registry: {self.chip.name}" if self.chip else "not in the registry of chips"
            lines = [
                f"{self.name} ({self.target}): {self.units} {unit}, {gib}, {lanes} of {self.lanes} lanes",
                f"{self.devices} such device{'s' if self.devices != 1 else ''}; {known}",
                versions,
            ]
        return "\n".join([*lines, *([self.problem] if self.problem else [])])

    __repr__ = __str__


def probe() -> Probe:
    """Name the device, vendor, target, lanes, memory and versions of this machine.

    Nothing is raised: where a driver is broken, the Probe is of the CPU and its `problem` says why. The branch for AMD
    follows torch's documented properties on ROCm (`gcnArchName`, `warp_size`); it has never run on AMD hardware.
    """
    import torch

    versions = _versions(torch)
    built_for_gpu = torch.version.cuda is not None or torch.version.hip is not None
    try:
        if built_for_gpu and torch.cuda.is_available():
            return _gpu(torch, versions)
        problem = "torch is built for a GPU but sees none: is the driver loaded, and may this user use it?"
    except Exception as broken:
        first = str(broken).strip().splitlines()[0] if str(broken).strip() else "no message"
        problem = f"torch is built for a GPU, but asking for it failed: {type(broken).__name__}: {first}"
    return Probe(
        vendor="cpu",
        name=_cpu_model(),
        target="",
        lanes=0,
        memory=_main_memory(),
        units=_cores(),
        devices=0,
        versions=versions,
        problem=problem if built_for_gpu else "",
    )


def _gpu(torch: Any, versions: dict[str, str]) -> Probe:
    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip is not None:
        vendor, target = "amd", str(properties.gcnArchName).split(":")[0]
        driver = _first_match(AMD_DRIVER, r"(\S+)")
    else:
        vendor, target = "nvidia", f"sm_{properties.major}{properties.minor}"
        driver = _first_match(NVIDIA_DRIVER, r"Kernel Module.*?\s(\d+\.[\d.]+)")
    return Probe(
        vendor=vendor,
        name=properties.name,
        target=target,
        lanes=_lanes(properties, vendor, target),
        memory=int(properties.total_memory),
        units=int(properties.multi_processor_count),
        devices=torch.cuda.device_count(),
        versions={**versions, **({"driver": driver} if driver else {})},
        chip=chip_of_device(properties.name),
    )


def _lanes(properties: Any, vendor: str, target: str) -> int:
    if vendor == "nvidia":
        return 32
    known = TARGETS[target].lanes if target in TARGETS else 64 if target.startswith("gfx9") else 32
    return int(getattr(properties, "warp_size", known))


def _versions(torch: Any) -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    found["triton"] = "not installed"
    for name in ("triton", "triton-rocm"):  # the second is what PyTorch's ROCm build brings
        with contextlib.suppress(metadata.PackageNotFoundError):
            found["triton"] = metadata.version(name)
    for name in ("cuda", "hip"):
        version = getattr(torch.version, name)
        if version is not None:
            found[name] = version
    return found


def _first_match(path: Path, pattern: str) -> str:
    try:
        found = re.search(pattern, path.read_text(errors="replace"))
    except OSError:
        return ""
    return found.group(1) if found else ""


def _cpu_model() -> str:
    model = _first_match(Path("/proc/cpuinfo"), r"(?m)^model name\s*:\s*(.+)$")
    return model or platform.processor() or platform.machine() or "unknown CPU"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _main_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
