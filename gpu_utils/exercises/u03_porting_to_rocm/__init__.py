"""Unit 03: from CUDA to ROCm. The names of its exercises, in the order of the lab."""

NAMES = (
    "warp_reduce",
    "ballot",
    "lane_id",
    "shared_budget",
    "fp8_weights",
    "hipify_fixups",
    "device_agnostic",
    "inline_asm",
    "launch_env",
    "triage",
    "port_gpt2",
)
