"""Unit 13: profiling on both vendors. Its exercises, in the lab's order."""

NAMES = (
    # is the GPU busy?
    "read_trace",
    "gpu_idle",
    # the same table from either vendor
    "read_ncu",
    "read_rocprof",
    # what limits it?
    "roofline_points",
    "occupancy_from_counters",
    # find it, mend it, say what changed
    "diagnose",
    "fix",
    "regression",
)
