"""What a function's launches look like in a profile: its counters, exported as the vendor's tool does and read back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from gpu_utils.backends.profiled import launch_files
from gpu_utils.backends.recording import chosen_launches, record_launches
from gpu_utils.backends.rungs import SPILLS, Rows, needs_of
from gpu_utils.profiling.profile import Event
from gpu_utils.profiling.reading import read_texts
from gpu_utils.virtual import virtual_gpu


def evidence(function: Callable[..., Any], *args: Any, targets: Sequence[str] = ("sm_80", "gfx942")) -> Rows:
    """A row for each kernel that a call launches, on the virtual GPU of each target: "kernel, target" -> figures.

    args  of the function: tensors on the CPU and numbers

    launches, programs (blocks of all launches), waves, and from the exported counters the sectors of 32 bytes that
    a load of a wave touched (NVIDIA), or the lines of a load or store (AMD); from the compiler the width of a
    lane's widest load, registers of a lane, spills and the occupancy that the kernel can have. Errors: those of the
    launches; UnknownName for a target.
    """
    rows: Rows = {}
    for target in targets:
        with virtual_gpu(target) as gpu, chosen_launches(gpu) as chosen, record_launches() as recorded:
            function(*args)
        profile = read_texts(launch_files(chosen()))
        kernels: dict[str, list[Event]] = defaultdict(list)
        for event in profile.kernels:
            kernels[event.name].append(event)
        needs = needs_of(recorded, target)
        for name, events in kernels.items():
            need = needs[name]
            rows[f"{name}, {target}"] = {
                "launches": len(events),
                "programs": sum(_blocks(event) for event in events),
                "waves": _sum(events, "waves"),
                "sectors or lines an access": _transactions(events),
                "bits of a lane's load": need["widest load (bits)"],
                "registers": need["registers"],
                SPILLS: need[SPILLS],
                "occupancy (%)": need["occupancy (%)"],
            }
    return rows


def _blocks(event: Event) -> int:
    grid = event.value("grid")
    return int(grid[0] * grid[1] * grid[2]) if grid else int(event.value("blocks") or 0)


def _sum(events: Sequence[Event], column: str) -> int:
    return int(sum(event.value(column) or 0 for event in events))


def _transactions(events: Sequence[Event]) -> float:
    if sectors := _sum(events, "load_sectors"):
        return sectors / _sum(events, "load_requests")
    accesses = _sum(events, "load_instructions") + _sum(events, "store_instructions")
    return _sum(events, "cache_lines") / max(1, accesses)
