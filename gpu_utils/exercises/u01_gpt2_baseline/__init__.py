"""Unit 01: a GPT-2 written, counted and trained. Its exercises in the order of the lab."""

from __future__ import annotations

from gpu_utils.exercises.u01_gpt2_baseline import (
    activation_memory,
    attention,
    block,
    flops_per_token,
    grad_accumulation,
    init,
    kv_cache,
    lr_schedule,
    mlp,
    param_count,
)

EXERCISES = tuple(
    module.EXERCISE
    for module in (
        attention,
        mlp,
        block,
        init,
        param_count,
        flops_per_token,
        grad_accumulation,
        lr_schedule,
        kv_cache,
        activation_memory,
    )
)
