"""What 03.launch_env asks for: the settings of each process of a job on a described node."""

from __future__ import annotations

from typing import Any

from gpu_utils.analytic.node import generation
from gpu_utils.analytic.node_rules import OVERRIDE_VARIABLE
from gpu_utils.analytic.visibility import CUDA, HIP, ROCR

Environments = list[dict[str, str]]
Description = dict[str, Any]


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def settings_of(node: Description) -> dict[str, str]:
    """What a job on this node needs beside its GPUs."""
    settings = {}
    if node["target"] == "gfx942" and len(node["use"]) > 1:
        settings["NCCL_MIN_NCHANNELS"] = "112"
        if node["overlap"]:
            settings |= {"TORCH_NCCL_HIGH_PRIORITY": "1", "GPU_MAX_HW_QUEUES": "2"}
    kin = next((target for target in node["built_for"] if generation(target) == generation(node["target"])), None)
    if node["target"] not in node["built_for"] and kin:
        settings[OVERRIDE_VARIABLE] = f"{kin[3:-2]}.{kin[-2]}.{kin[-1]}"
    if node["tuned_gemms"]:
        settings |= {"PYTORCH_TUNABLEOP_ENABLED": "1", "PYTORCH_TUNABLEOP_TUNING": "0"}
    return settings


def mask_of(node: Description) -> dict[str, str]:
    if node["vendor"] == "nvidia":
        return {CUDA: joined(node["use"])}
    below = numbers(node["inherited"][ROCR]) if ROCR in node["inherited"] else list(range(node["gpus"]))
    return {HIP: joined([below.index(gpu) for gpu in node["use"]])}


def launch_env_reference(node: Description) -> Environments:
    """One right answer; the check accepts others too."""
    return [mask_of(node) | settings_of(node) for _ in node["use"]]
