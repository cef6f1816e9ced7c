"""Launches of virtual GPUs as the vendors' profilers write them, and such texts read back."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_utils.profiling.profile import Profile
from gpu_utils.profiling.reading import text_profile
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


def profile_of(files: Mapping[str, str]) -> Profile:
    """What texts say together: name of a file -> its text, of any profiler that gpu_utils.profiling reads.

    Raises ProfileUnreadable, one sentence, for a text that no reader can use.
    """
    from gpu_utils.profiling.joining import joined

    return joined([text_profile(name, text) for name, text in files.items()])
