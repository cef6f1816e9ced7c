"""Profiles of the small training program as rows that an answer to 13.regression takes."""

from __future__ import annotations

import math
from typing import Any

from gpu_utils.chips.targets import TARGETS
from gpu_utils.profiling.profile import Device, Event, Profile


def launch_rows(profile: Profile) -> list[dict[str, Any]]:
    """One dict for each launch, with the fields of 13.regression; None where the profile does not know.

    memory_bytes  where no counter of memory is there: what loads and stores moved between the first-level cache and the
                  L2, in sectors (NVIDIA) or lines (AMD)
    occupancy     where nobody measured it: the theoretical one
    """
    return [
        {
            "name": event.name,
            "start": event.start,
            "duration": event.duration,
            "grid": math.prod(event.value("grid")),
            "memory_bytes": _bytes(event, profile.devices[event.device]),
            "registers": event.value("registers"),
            "shared_bytes": event.value("shared_bytes"),
            "occupancy": event.value("occupancy") or event.value("occupancy_limit"),
        }
        for event in profile.kernels
    ]


def _bytes(event: Event, device: Device) -> int | None:
    if (known := event.value("memory_bytes")) is not None:
        return known
    pieces = ("load_sectors", "store_sectors") if device.vendor == "nvidia" else ("cache_lines",)
    counts = [event.value(name) for name in pieces]
    if device.target is None or None in counts:
        return None
    return sum(counts) * TARGETS[device.target].segment
