"""Numbers that the inputs of several exercises are drawn from."""

from __future__ import annotations

import torch
from torch import Tensor


def signed(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """float32 of size 0.5 to 1.5 and of both signs: what is lost, or counted twice, is never lost in a tolerance."""
    size = torch.rand(shape, generator=generator) + 0.5
    return size * (1 - 2 * torch.randint(2, shape, generator=generator))
