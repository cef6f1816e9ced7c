"""Unit 03: from CUDA to ROCm. Its exercises in the order of the lab."""

from __future__ import annotations

from gpu_utils.exercises.u03_porting_to_rocm import (
    ballot,
    device_agnostic,
    fp8_dtype,
    hipify_fixups,
    inline_asm,
    lane_id,
    launch_env,
    port_gpt2,
    shared_budget,
    triage,
    warp_reduce,
)

EXERCISES = tuple(
    module.EXERCISE
    for module in (
        warp_reduce,
        ballot,
        lane_id,
        shared_budget,
        fp8_dtype,
        hipify_fixups,
        device_agnostic,
        inline_asm,
        launch_env,
        triage,
        port_gpt2,
    )
)
