"""Launches of virtual GPUs as the vendors' profilers write them."""

from __future__ import annotations

from gpu_utils.virtual import VirtualGpu
from gpu_utils.virtual.export import ncu_csv, rocprof_counters_csv, rocprof_trace_csv


def profile_files(gpu: VirtualGpu, *, wide: bool = False) -> dict[str, str]:
    """What the profiler of the GPU's vendor would write of its launches: name of a file -> its text.

    "ncu.csv" on NVIDIA, long or (wide) as `--page raw`; "kernel_trace.csv" and "counter_collection.csv" on AMD. Bytes
    of memory are there after a run with l2=True. There are no times: a virtual GPU has no clock.
    """
    if gpu.model.vendor == "nvidia":
        return {"ncu.csv": ncu_csv(gpu.launches, wide=wide)}
    return {
        "kernel_trace.csv": rocprof_trace_csv(gpu.launches),
        "counter_collection.csv": rocprof_counters_csv(gpu.launches),
    }
