"""Wrong answers to 10.gate, as learners write them: one gate, a part of which is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


def _chosen(weights: Tensor, scale: float) -> Tensor:
    return weights / weights.sum(1, keepdim=True) * scale


def answer(
    *,
    scores: Callable[[Tensor], Tensor] = torch.sigmoid,
    choice: Callable[[Tensor, Tensor], Tensor] = torch.add,
    weighs: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda scores, bias, experts: scores.gather(1, experts),
    ends: Callable[[Tensor, Tensor, float], Tensor] = lambda weights, scores, scale: _chosen(weights, scale),
    wide: bool = True,
    largest: bool = True,
    ordered: bool = False,
) -> Callable[..., Pair]:
    """scores (of logits), what is chosen by, what the weights are of, how they end; wide: in float32."""

    def gate(x: Tensor, weight: Tensor, bias: Tensor, k: int, scale: float) -> Pair:
        logits = x.float() @ weight.float().T if wide else (x @ weight.to(x.dtype).T)
        of = scores(logits)
        experts = choice(of, bias).topk(k, largest=largest).indices
        weights = ends(weighs(of, bias, experts), of, scale)
        if ordered:
            experts = experts.sort(dim=1).values
        return weights.float(), experts

    return gate


def bias_before_sigmoid(x: Tensor, weight: Tensor, bias: Tensor, k: int, scale: float) -> Pair:
    scores = torch.sigmoid(x.float() @ weight.float().T + bias)
    weights, experts = scores.topk(k)
    return _chosen(weights, scale), experts


def softmax_of_chosen(x: Tensor, weight: Tensor, bias: Tensor, k: int, scale: float) -> Pair:
    scores = torch.sigmoid(x.float() @ weight.float().T)
    experts = (scores + bias).topk(k).indices
    return torch.softmax(scores.gather(1, experts), dim=1) * scale, experts


def in_dtype_of_x(x: Tensor, weight: Tensor, bias: Tensor, k: int, scale: float) -> Any:
    weights, experts = answer()(x, weight, bias, k, scale)
    return weights.to(x.dtype), experts


def softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=1)


def scores_alone(scores: Tensor, bias: Tensor) -> Tensor:
    return scores


def with_bias(scores: Tensor, bias: Tensor, experts: Tensor) -> Tensor:
    return (scores + bias).gather(1, experts)


def less_bias(scores: Tensor, bias: Tensor, experts: Tensor) -> Tensor:
    """The score, found again by subtraction."""
    return (scores + bias).gather(1, experts) - bias[experts]


def not_normalised(weights: Tensor, scores: Tensor, scale: float) -> Tensor:
    return weights * scale


def over_all(weights: Tensor, scores: Tensor, scale: float) -> Tensor:
    return weights / scores.sum(1, keepdim=True) * scale


def without_scale(weights: Tensor, scores: Tensor, scale: float) -> Tensor:
    return _chosen(weights * scale, 1.0)


def with_epsilon(weights: Tensor, scores: Tensor, scale: float) -> Tensor:
    return weights / (weights.sum(1, keepdim=True) + 1e-6) * scale


def scaled_down(weights: Tensor, scores: Tensor, scale: float) -> Tensor:
    return _chosen(weights, 1 / scale)
