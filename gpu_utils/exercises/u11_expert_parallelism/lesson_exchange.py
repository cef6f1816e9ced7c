"""What lesson 11 shows of dispatch and combine: exchanges on real ranks, their bytes, and sums in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_utils.distributed import Ranks, run_ranks
from gpu_utils.exercises.u11_expert_parallelism import dispatch_slips, fp8_dispatch_slips


def routed(tokens: Sequence[int], num_experts: int, k: int, seed: int = 0) -> list[Tensor]:
    """For each rank int64 (tokens, k): different experts, chosen evenly at random.

    >>> [chosen.shape for chosen in routed((3, 0), 8, 2)]
    [torch.Size([3, 2]), torch.Size([0, 2])]
    """
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(n, num_experts, generator=generator).argsort(1)[:, :k] for n in tokens]


def exchanged(x: Sequence[Tensor], experts: Sequence[Tensor], num_experts: int, once: bool = False) -> Ranks:
    """A dispatch on real ranks. values: (rows, counts) of each rank, as 11.dispatch asks for; sent: bytes.

    x, experts  of each rank; once: a token travels once to each rank, and its copies are made there
    """
    each = [{"x": own, "experts": chosen} for own, chosen in zip(x, experts, strict=True)]
    way = dispatch_slips.once_for_a_rank if once else dispatch_slips.right
    return run_ranks(way, len(each), each, {"num_experts": num_experts, "group": None}, seconds=60.0)


def left_early(rank: int) -> Any:
    """A function for `run_ranks`: one of the ranks returns before an all-to-all that the others make."""

    def exchange() -> Tensor:
        x, came = torch.zeros(4), torch.zeros(4)
        if dist.get_rank() != rank:
            dist.all_to_all_single(came, x)
        return came

    return exchange


def sums_in_orders(terms: Tensor, orders: int, seed: int = 0) -> list[Tensor]:
    """float32 sums of (k, ...) terms along the first axis, one after the other, each time in another order."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(orders):
        total = torch.zeros(terms.shape[1:])
        for j in torch.randperm(len(terms), generator=generator).tolist():
            total = total + terms[j]
        found.append(total)
    return found


def through_wire(x: Tensor, way: str) -> Tensor:
    """float32: what is left of the rows of x after they travelled as "BF16", or as "FP8" with a scale for each 1 x 128.

    >>> through_wire(torch.tensor([[1.0, 0.3]]), "FP8").tolist()
    [[1.0, 0.2857142984867096]]
    """
    if way == "BF16":
        return x.bfloat16().float()
    codes, scales = fp8_dispatch_slips.tiles(x)
    return codes.float() * fp8_dispatch_slips.spread(scales, x.shape[1])
