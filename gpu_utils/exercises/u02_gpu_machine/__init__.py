"""Unit 02: the GPU as a machine. Its exercises in the order of the lab."""

from __future__ import annotations

from gpu_utils.exercises.u02_gpu_machine import (
    arithmetic_intensity,
    attainable,
    bank_conflicts,
    divergence,
    kv_cache_bytes,
    occupancy_amd,
    occupancy_nvidia,
    tile_traffic,
    transactions,
)

EXERCISES = tuple(
    module.EXERCISE
    for module in (
        transactions,
        bank_conflicts,
        divergence,
        occupancy_nvidia,
        occupancy_amd,
        attainable,
        arithmetic_intensity,
        kv_cache_bytes,
        tile_traffic,
    )
)
