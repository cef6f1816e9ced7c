"""Unit 02: the GPU as a machine: access, divergence, occupancy, roofline, memory. Its exercises, in the lab's order."""

NAMES = (
    "coalesce",
    "bank_conflicts",
    "transpose",
    "converge",
    "occupancy",
    "sized_reduction",
    "best_tile",
    "serve",
)
