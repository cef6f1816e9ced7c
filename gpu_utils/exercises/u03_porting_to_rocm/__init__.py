"""Unit 03: from CUDA to ROCm. Its exercises in the order of the lab."""

from gpu_utils.exercises.u03_porting_to_rocm import (
    ballot,
    lane_id,
    warp_reduce,
)

EXERCISES = tuple(module.EXERCISE for module in (warp_reduce, ballot, lane_id))
