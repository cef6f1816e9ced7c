"""The GPUs of a trace of torch.profiler, from its deviceProperties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_utils.chips import TARGETS, chip_of_device
from gpu_utils.profiling.profile import Device, Event
from gpu_utils.profiling.torch_args import whole

_NVIDIA = ("NVIDIA", "TESLA", "GEFORCE", "QUADRO", "TITAN", "RTX")
_AMD = ("AMD", "RADEON", "INSTINCT", "GFX")


def devices(head: Mapping[str, Any], seen: Iterable[str], calls: Iterable[Event]) -> dict[str, Device]:
    """Name of a device, as events have it ("0") -> what it is; for one without properties the vendor of the calls."""
    listed = head.get("deviceProperties") or head.get("computeProperties")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    vendor = next((found for call in calls if (found := _vendor_of_call(call.name))), None)
    known = {str(row.get("id", place)): _device(row, vendor) for place, row in enumerate(rows)}
    if vendor:
        known |= {name: Device(f"GPU {name}", vendor) for name in seen if name not in known}
    return known


def _vendor_of_call(name: str) -> str | None:
    return "amd" if name.startswith("hip") else "nvidia" if name.startswith("cu") else None


def _device(row: Mapping[str, Any], calls: str | None) -> Device:
    name = str(row.get("name", "")).strip() or "?"
    lanes = whole(row.get("warpSize"))
    vendor = _vendor(row, name.upper(), lanes) or calls
    arch = str(row.get("gcnArchName") or "").split(":")[0]
    chip = chip_of_device(name)
    target: str | None = arch or None
    if vendor == "nvidia":
        major, minor = (whole(row.get(f"compute{part}", row.get(part.lower()))) for part in ("Major", "Minor"))
        target = None if major is None or minor is None else f"sm_{major}{minor}"
    if target is None and chip is not None and TARGETS[chip.target].vendor == vendor:
        target = chip.target
    units = whole(row.get("numSms", row.get("multiProcessorCount")))
    return Device(name, vendor, target, units, lanes, virtual=row.get("virtual") is True)


def _vendor(row: Mapping[str, Any], name: str, lanes: int | None) -> str | None:
    if row.get("gcnArchName") or "maxSharedMemoryPerMultiProcessor" in row or lanes == 64 or name.startswith(_AMD):
        return "amd"  # the second key is in ROCm's properties only
    return "nvidia" if "regsPerMultiprocessor" in row or name.startswith(_NVIDIA) else None
