"""Drawn pairs of training runs: loss curves of a reference and of a port, seed by seed, with and without a bug."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SEEDS, STEPS, TAIL = 6, 80, 20


def drawn_curves(
    draws: int,
    *,
    size: float,
    rho: float,
    white: float,
    between: float,
    shift: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """(reference, port), each float64 (draws, SEEDS, STEPS), in nats; row i of both has one seed and the same batches.

    size     of the noise between two right runs with one seed, in nats
    rho      from one step to the next, how much of that noise stays
    white    noise of each step alone, as a part of `size`
    between  what another seed does to a whole curve, as a multiple of `size`; other batches do a third of it
    shift    of the port's last TAIL steps, in standard errors of the mean over seeds and these steps
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    time = torch.arange(STEPS, dtype=torch.float64)
    falling = 3 + 4 * torch.exp(-6 * time / STEPS)
    seeds = between * size * normal(draws, SEEDS, 1)
    batches = between / 3 * size * normal(draws, SEEDS, STEPS)
    reference = falling + seeds + batches
    step = normal(draws, SEEDS, STEPS)
    slow = [step[..., 0]]
    for i in range(1, STEPS):
        slow.append(rho * slow[-1] + math.sqrt(1 - rho**2) * step[..., i])
    early = 1 + 3 * torch.exp(-6 * time / STEPS)  # while the curve falls, runs lie further apart
    apart = size * early * (torch.stack(slow, -1) + white * normal(draws, SEEDS, STEPS))
    apart[..., -TAIL:] += shift * standard_error(size, rho, white)
    return reference, reference + apart


def standard_error(size: float, rho: float, white: float) -> float:
    """Of the mean over the seeds of the mean over the last TAIL steps; `early` is 1 there but for a hundredth."""
    lags = torch.arange(TAIL, dtype=torch.float64)
    correlated = float((rho ** (lags[:, None] - lags).abs()).mean())
    return size * math.sqrt((correlated + white**2 / TAIL) / SEEDS)
