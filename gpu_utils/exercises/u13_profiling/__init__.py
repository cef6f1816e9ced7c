"""Unit 13: profiling on both vendors. Its exercises, in the lab's order."""

NAMES = (
    # is the GPU busy?
    "read_trace",
    "gpu_idle",
    # reading counters
    "read_ncu",
    "read_rocprof",
)
