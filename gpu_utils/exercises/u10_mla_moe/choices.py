"""What the exercises on routing share: choices that no rounding turns, and results whose order does not matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.grading.exercise import Inputs

CLEAR = 1e-4
"""Between the last that is chosen and the first that is not; a sum of float32 numbers is off by far less."""


def clear(values: Tensor, k: int) -> Tensor:
    """bool: in which rows the k largest values stand CLEAR above the others; all where nothing is left out.

    >>> clear(torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.00001, 2.0]]), 2).tolist()
    [True, False]
    """
    if k >= values.shape[-1]:
        return torch.ones(values.shape[:-1], dtype=torch.bool)
    best = values.topk(k + 1, dim=-1).values
    return best[..., k - 1] - best[..., k] > CLEAR


def sorted_pairs(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """A `call`: the answer's (weights, experts), rows sorted by expert. What is no such pair comes back as it is."""
    result = answer(**inputs)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return result
    weights, experts = result
    alike = isinstance(weights, torch.Tensor) and isinstance(experts, torch.Tensor) and weights.shape == experts.shape
    if not alike or experts.dim() != 2 or experts.dtype.is_floating_point:
        return result
    order = experts.argsort(dim=1)
    return weights.gather(1, order), experts.gather(1, order)


def sorted_rows(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """A `call`: the answer's experts, each row sorted. What is no matrix comes back as it is."""
    result = answer(**inputs)
    if not isinstance(result, torch.Tensor) or result.dim() != 2:
        return result
    return result.sort(dim=1).values
