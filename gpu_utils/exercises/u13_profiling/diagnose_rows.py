"""What 13.diagnose is given: the events and kernels of a run of the small training program, as plain rows."""

from __future__ import annotations

import functools
from typing import Any

from gpu_utils.exercises.u13_profiling.small_training import SmallRun, small_run
from gpu_utils.profiling.profile import Event

COLUMNS_GIVEN = (
    *("grid", "block", "waves", "registers", "shared_bytes", "scratch_bytes", "occupancy_limit"),
    *("load_requests", "load_sectors", "store_requests", "store_sectors"),
    *("load_instructions", "store_instructions", "cache_lines"),
    *("shared_passes", "conflict_passes", "shared_cycles", "conflict_cycles"),
)
"""Columns of the one table that a row of a kernel has; None where the vendor's tool has no such counter."""

Rows = list[dict[str, Any]]


def diagnosis_rows(run: SmallRun) -> tuple[Rows, Rows]:
    """(events, kernels) of a run, read from the files that it left.

    events   kind, name, lane, start, end (ns) of kernels, copies, launches and syncs, in the order of their starts
    kernels  name, duration (ns) and COLUMNS_GIVEN of each launch, in the order of their starts
    """
    events = [_event(event) for event in run.profile.of("kernel", "copy", "launch", "sync")]
    return events, [_kernel(event) for event in run.profile.kernels]


def _event(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("kind", "name", "lane", "start", "end")}


def _kernel(event: Event) -> dict[str, Any]:
    row = {"name": event.name, "duration": event.duration}
    return row | {name: event.value(name) for name in COLUMNS_GIVEN}


@functools.cache
def kept_run(target: str, fault: str | None, kernel: str | None, steps: int, seed: int) -> SmallRun:
    """`small_run`: kept, because one check asks several times for the same."""
    return small_run(target, fault, kernel=kernel, steps=steps, seed=seed)
