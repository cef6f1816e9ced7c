"""What the tensor exercises of this unit share: drawing inputs, and the tolerance of a chain of matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance


def normal(generator: torch.Generator, dtype: torch.dtype, *shape: int, std: float = 1.0) -> Tensor:
    """A CPU tensor of independent normal numbers with mean 0, drawn in float32 and rounded to `dtype`."""
    return (torch.randn(shape, generator=generator) * std).to(dtype)


def linear_weights(generator: torch.Generator, dtype: torch.dtype, n_in: int, n_out: int) -> tuple[Tensor, Tensor]:
    """Weight (n_out, n_in) and bias (n_out,) that keep numbers of size 1 at size 1; the bias is too large to "
    "forget."""
    return normal(generator, dtype, n_out, n_in, std=n_in**-0.5), normal(generator, dtype, n_out, std=0.5)


def doubled(value: Any) -> Any:
    """The same tree with its floating-point tensors in float64."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: doubled(item) for key, item in value.items()}
    return value


def chain_tolerance(dtype: torch.dtype, width: int, stages: int) -> Tolerance:
    """For `stages` operations in a row on numbers of size 1, the matrix products among them summing `width` terms.

    In float32 every addition rounds, so stages * width roundings reach an output. Narrower types sum in float32 and
    round once a stage.
    """
    k = stages if torch.finfo(dtype).bits < 32 else stages * width
    return tolerance(dtype, k=k, accumulator=dtype, roundings=stages)
