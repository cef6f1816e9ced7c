"""An answer called twice, the second time with its programs in another order: what must be the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from gpu_utils.errors import BackendUnavailable
from gpu_utils.grading.exercise import Inputs
from gpu_utils.virtual import active_gpu, virtual_gpu


def in_both_orders(wanted: Callable[..., Any], inputs: Inputs) -> list[Any]:
    """Both results. Of the second call only launches are counted."""
    value = wanted(**inputs)
    try:
        target = active_gpu().target
    except BackendUnavailable:  # a real GPU has its own order every time
        return [value, wanted(**inputs)]
    with virtual_gpu(target, order="shuffled", seed=1, strict=True):
        return [value, wanted(**inputs)]


def other_bits(first: Tensor, again: Tensor, name: str) -> str:
    """How many sums of a vector changed, and the first of them; "" where all have the same bits.

    >>> import torch
    >>> other_bits(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), "db")
    '1 of 2 sums have other bits when the programs run in another order: db[1] was 2, then 2.5'
    """
    other = (first != again).nonzero()
    if not len(other):
        return ""
    at = int(other[0])
    return (
        f"{len(other)} of {len(first)} sums have other bits when the programs run in another order: {name}[{at}] was "
        f"{float(first[at]):.9g}, then {float(again[at]):.9g}"
    )
