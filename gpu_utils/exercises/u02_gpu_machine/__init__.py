"""Unit 02: the GPU as a machine: access, divergence, occupancy, roofline, memory. Its exercises, in the lab's order."""

NAMES = (
    "transactions",
    "bank_conflicts",
    "divergence",
    "occupancy_nvidia",
    "occupancy_amd",
    "attainable",
    "arithmetic_intensity",
    "kv_cache_bytes",
    "tile_traffic",
)
