"""Routing of tokens to experts, measured: loads, imbalance, dropped tokens, and the two losses that balance.

Tokens T, experts E, chosen k. `experts` is int64 (T, k), distinct in a row; `scores` (T, E) are positive, one for each
expert. All are pure functions of tensors; those of scores can be differentiated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpu_utils.errors import BadArgument


def loads(experts: Tensor, num_experts: int) -> Tensor:
    """How many of the chosen places each expert has: int64 (E,), with zeros where it has none; T k in all.

    >>> loads(torch.tensor([[0, 2], [2, 3]]), 5).tolist()
    [1, 0, 2, 1, 0]
    """
    if experts.numel() and int(experts.max()) >= num_experts:
        raise BadArgument(f"expert {int(experts.max())} was chosen of {num_experts}; they count from 0")
    return torch.bincount(experts.flatten(), minlength=num_experts)


def imbalance(loads: Tensor) -> float:
    """Largest load over the mean: 1 where all are equal, E / k where all tokens choose the same k experts.

    >>> imbalance(torch.tensor([2, 2, 2, 2])), imbalance(torch.tensor([6, 0, 1, 1]))
    (1.0, 3.0)
    """
    total = int(loads.sum())
    return float(loads.max()) * len(loads) / total if total else 1.0


def capacity(tokens: int, k: int, num_experts: int, factor: float) -> int:
    """Places that each expert has for a batch: factor times the mean load, rounded up.

    >>> capacity(tokens=100, k=2, num_experts=16, factor=1.25)  # 1.25 * 12.5 = 15.6
    16
    """
    return math.ceil(factor * tokens * k / num_experts)


def fits(experts: Tensor, num_experts: int, places: int) -> Tensor:
    """Which choices find a place: bool of the shape of experts. Tokens queue in their order; who comes late is dropped.

    >>> fits(torch.tensor([[0, 1], [0, 2], [0, 1]]), 3, places=2).tolist()
    [[True, True], [True, True], [False, True]]
    """
    chosen = torch.nn.functional.one_hot(experts.flatten(), num_experts)
    before = chosen.cumsum(0) - chosen
    return (before.gather(1, experts.flatten()[:, None]) < places).view(experts.shape)


def groups_reached(experts: Tensor, size: int) -> Tensor:
    """How many groups of `size` neighbours hold the experts of each token: int64 (T,).

    >>> groups_reached(torch.tensor([[0, 3, 9], [4, 5, 6]]), size=4).tolist()
    [2, 1]
    """
    group = (experts // size).sort(dim=1).values
    return 1 + (group.diff(dim=1) != 0).sum(1)


def sequence_loss(scores: Tensor, experts: Tensor, k: int, alpha: float) -> Tensor:
    """The sequence-wise balance loss of DeepSeek-V3: alpha * sum over experts of f P, a mean over sequences.

    scores (..., T, E) and experts (..., T, k): the last but one axis runs over the tokens of one sequence. f is the
    expert's share of the places times E (1 where all are equal), and has no gradient; P is the mean over tokens of the
    scores, each token's divided by their sum. The least value is near alpha: equal f and P give it exactly.

    Source: DeepSeek-V3 technical report (arXiv 2412.19437), equations 17 to 20.

    >>> even = torch.full((4, 2), 0.5)
    >>> round(sequence_loss(even, torch.tensor([[0], [1], [0], [1]]), k=1, alpha=0.1).item(), 6)
    0.1
    """
    tokens, num_experts = scores.shape[-2:]
    chosen = torch.nn.functional.one_hot(experts, num_experts).sum((-3, -2))
    f = chosen * (num_experts / (k * tokens))
    P = (scores / scores.sum(-1, keepdim=True)).mean(-2)
    return alpha * (f * P).sum(-1).mean()


def auxiliary_loss(scores: Tensor, experts: Tensor, k: int, alpha: float) -> Tensor:
    """The same over the whole batch, all its sequences as one: balance is asked of the batch, not of each sequence.

    >>> one_each = torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]]])  # two sequences of one token
    >>> experts = torch.tensor([[[0]], [[1]]])
    >>> of_batch = auxiliary_loss(one_each, experts, 1, 1.0)
    >>> round(of_batch.item(), 3), round(sequence_loss(one_each, experts, 1, 1.0).item(), 3)
    (1.0, 1.8)
    """
    return sequence_loss(scores.flatten(0, -2), experts.flatten(0, -2), k, alpha)
