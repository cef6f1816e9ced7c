"""What lesson 11 runs on its ranks: a ring that notes what each rank holds after every step, and sums in two orders."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from gpu_utils.exercises.u11_expert_parallelism.rings import all_reduced


def ring_watched(x: Tensor) -> list[Tensor]:
    """On each rank: what it holds at first and after each of the 2 (n - 1) steps of a ring all-reduce.

    x  (pieces,), as many pieces as ranks; sums of pieces that are not there yet are what they are so far
    """
    steps = [x.clone()]
    everybody = range(dist.get_world_size())
    all_reduced(x, everybody, dist.get_rank(), seen=lambda chunks: steps.append(chunks.flatten().clone()))
    return steps


def ring_sum(x: Tensor) -> Tensor:
    """On each rank: the sum of 1-d x over all ranks, each piece added around the ring from another rank on."""
    return all_reduced(x, range(dist.get_world_size()), dist.get_rank())
