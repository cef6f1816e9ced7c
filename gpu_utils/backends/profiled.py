"""Launches of virtual GPUs as the vendors' profilers write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_utils.virtual import VirtualGpu
from gpu_utils.virtual.export import ncu_csv, rocprof_counters_csv, rocprof_trace_csv


def profile_files(gpu: VirtualGpu, *, wide: bool = False) -> dict[str, str]:
    """What the profiler of the GPU's vendor would write of its launches: name of a file -> its text.

    "ncu.csv" on NVIDIA, long or (wide) as `--page raw`; "kernel_trace.csv" and "counter_collection.csv" on AMD. Bytes
    of memory are there after a run with l2=True. There are no times: a virtual GPU has no clock.
    """
    return launch_files(gpu.launches, wide=wide)


def launch_files(launches: Sequence[Any], *, wide: bool = False) -> dict[str, str]:
    """The same for some launches on one target; {} for none."""
    if not launches:
        return {}
    if launches[0].chip.vendor == "nvidia":
        return {"ncu.csv": ncu_csv(launches, wide=wide)}
    return {
        "kernel_trace.csv": rocprof_trace_csv(launches),
        "counter_collection.csv": rocprof_counters_csv(launches),
    }
