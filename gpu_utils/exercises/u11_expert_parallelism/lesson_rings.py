"""What lesson 11 runs on its ranks: a ring that notes what each rank holds after every step."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from gpu_utils.exercises.u11_expert_parallelism.rings import all_reduced


def ring_watched(x: Tensor) -> list[Tensor]:
    """On each rank: what it holds at first and after each of the 2 (n - 1) steps of a ring all-reduce.

    x  (numbers,), of any length: padded with zeros to one piece for each rank. A sum that is not complete yet is what
       it is so far
    """
    steps = [x.clone()]
    everybody = range(dist.get_world_size())
    all_reduced(x, everybody, dist.get_rank(), seen=lambda chunks: steps.append(chunks.flatten().clone()))
    return steps
