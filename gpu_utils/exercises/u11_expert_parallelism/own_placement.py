"""How busy GPUs are with experts as they come, and after redundant experts were placed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.exercises.u11_expert_parallelism import eplb_slips as slips


def expert_loads(experts: int = 64, seed: int = 0) -> list[int]:
    """Tokens of each expert, most of them near 1,000 and some far above: drawn, not measured."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp(0.8 * torch.randn(experts, generator=generator, dtype=torch.float64))
    return [int(1000 * each) for each in spread.tolist()]


def borne(load: list[int], phy2log: list[int], gpus: int) -> list[float]:
    """Tokens of each GPU, where the slots of an expert share its load evenly."""
    each = len(phy2log) // gpus
    return [sum(load[e] / phy2log.count(e) for e in phy2log[g * each : (g + 1) * each]) for g in range(gpus)]


def placed(
    load: list[int], num_replicas: int, gpus: int, eplb: Callable[..., Any] | None = None, num_groups: int = 1
) -> dict[str, float]:
    """Tokens of the busiest GPU over the mean: in the order of the experts, or by an answer to 11.eplb."""
    answer = eplb or slips.right
    phy2log = answer(load=load, num_replicas=num_replicas, num_groups=num_groups, num_nodes=1, num_gpus=gpus)[0]
    tokens = borne(load, [int(e) for e in phy2log], gpus)
    mean = sum(load) / gpus
    return {"busiest GPU, tokens": max(tokens), "mean": mean, "busiest over mean": max(tokens) / mean}
