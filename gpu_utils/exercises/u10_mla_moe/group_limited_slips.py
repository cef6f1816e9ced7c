"""Wrong answers to 10.group_limited, as learners write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Values = Callable[[Tensor], Tensor]


def of_two_best(parts: Tensor) -> Tensor:
    return parts.topk(2, dim=2).values.sum(2)


def of_best(parts: Tensor) -> Tensor:
    return parts.amax(2)


def of_all(parts: Tensor) -> Tensor:
    return parts.sum(2)


def of_second(parts: Tensor) -> Tensor:
    return parts.topk(2, dim=2).values[..., 1]


def of_two_worst(parts: Tensor) -> Tensor:
    return parts.topk(2, dim=2, largest=False).values.sum(2)


def answer(
    *,
    value: Values = of_two_best,
    groups_by_scores: bool = False,
    chosen_by_scores: bool = False,
    forbidden: float = -torch.inf,
    strided: bool = False,
    spared: int = 0,
    local: bool = False,
    as_many: bool = False,
) -> Callable[..., Tensor]:
    """value: of a group, from (T, groups, size); forbidden: what stands in for experts of other groups; strided: groups
    are e % groups; spared: groups kept beyond `keep`; local: numbers within the kept groups; as_many: k of each."""

    def group_limited(scores: Tensor, bias: Tensor, groups: int, keep: int, k: int) -> Tensor:
        T, E = scores.shape
        group_of = torch.arange(E) % groups if strided else torch.arange(E) // (E // groups)
        by = torch.argsort(group_of, stable=True)
        choice = scores + bias
        parts = (scores if groups_by_scores else choice)[:, by].view(T, groups, -1)
        kept = value(parts).topk(min(keep + spared, groups), dim=1).indices
        if local:
            inside = choice.view(T, groups, -1).gather(1, kept[..., None].expand(-1, -1, E // groups))
            return inside.flatten(1).topk(k).indices
        allowed = (group_of[None, :, None] == kept[:, None, :]).any(2)
        final = scores if chosen_by_scores else choice
        if as_many:
            return _shared_out(final, kept, groups, k)
        return torch.where(allowed, final, forbidden).topk(k).indices

    return group_limited


def _shared_out(choice: Tensor, kept: Tensor, groups: int, k: int) -> Tensor:
    """k / keep experts of each kept group, rounded up, as many as are asked for."""
    T, E = choice.shape
    size = E // groups
    each = min(-(-k // kept.shape[1]), size)
    inside = choice.view(T, groups, size).gather(1, kept[..., None].expand(-1, -1, size))
    best = inside.topk(each, dim=2).indices + kept[..., None] * size
    return best.flatten(1)[:, :k]


def no_groups(scores: Tensor, bias: Tensor, groups: int, keep: int, k: int) -> Tensor:
    return (scores + bias).topk(k).indices


def best_are_cut(scores: Tensor, bias: Tensor, groups: int, keep: int, k: int) -> Tensor:
    """The k best of all first; those of groups that are not kept are replaced from the kept ones."""
    size = scores.shape[1] // groups
    first = (scores + bias).topk(k).indices // size
    counts = torch.nn.functional.one_hot(first, groups).sum(1)
    return answer(value=lambda parts: counts.to(parts))(scores, bias, groups, keep, k)
