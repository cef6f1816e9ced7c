"""Wrong answers to 11.combine, as learners write them; and right results that took the wrong way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Sum = Callable[[Tensor, Tensor], Tensor]
"""(results (T, k, D) in the dtype of y, weights (T, k)) -> (T, D)."""


def in_order(results: Tensor, weights: Tensor) -> Tensor:
    """In float32, in the order of k, rounded once."""
    out = torch.zeros(len(results), results.shape[2], device=results.device)
    for j in range(results.shape[1]):
        out += weights[:, j, None] * results[:, j].float()
    return out.to(results.dtype)


def unweighted(results: Tensor, weights: Tensor) -> Tensor:
    return in_order(results, torch.ones_like(weights))


def normalised(results: Tensor, weights: Tensor) -> Tensor:
    return in_order(results, weights / weights.sum(1, keepdim=True))


def narrow_sum(results: Tensor, weights: Tensor) -> Tensor:
    """Every addition is rounded to the dtype of y."""
    out = torch.zeros_like(results[:, 0])
    for j in range(results.shape[1]):
        out += (weights[:, j, None] * results[:, j].float()).to(results.dtype)
    return out


def narrow_weights(results: Tensor, weights: Tensor) -> Tensor:
    return in_order(results, weights.to(results.dtype).float())


def narrow_products(results: Tensor, weights: Tensor) -> Tensor:
    """Products are rounded to the dtype of y, and added in float32."""
    products = weights[:, :, None].to(results.dtype) * results
    return in_order(products, torch.ones_like(weights))


def backwards(results: Tensor, weights: Tensor) -> Tensor:
    return in_order(results.flip(1), weights.flip(1))


def wide_sum(results: Tensor, weights: Tensor) -> Tensor:
    return (weights.double()[:, :, None] * results.double()).sum(1).to(results.dtype)


def by_source(y: Tensor, counts: Tensor) -> Tensor:
    """Results in the order of 11.dispatch, put together by the rank that they go back to."""
    world, each = counts.shape
    source = torch.arange(world, device=y.device).repeat(each).repeat_interleave(counts.T.flatten())
    return y[source.argsort(stable=True)]


def brought_home(y: Tensor, counts: Tensor, experts: Tensor, group: Any, sorted_by_source: bool = True) -> Tensor:
    """(T * k, D): the results of this rank's copies, by expert, then token."""
    world, each = counts.shape
    owners = (experts.flatten() // each).bincount(minlength=world)
    back = y.new_empty(experts.numel(), y.shape[1])
    rows = by_source(y, counts) if sorted_by_source else y
    dist.all_to_all_single(back, rows.contiguous(), owners.tolist(), counts.sum(1).tolist(), group=group)
    return back


def in_place(back: Tensor, experts: Tensor) -> Tensor:
    """(T, k, D): each result where its expert stands in `experts`."""
    place = experts.flatten().argsort(stable=True).argsort()
    return back[place].view(*experts.shape, back.shape[1])


def as_it_came(back: Tensor, experts: Tensor) -> Tensor:
    return back.view(*experts.shape, back.shape[1])


def permuted_again(back: Tensor, experts: Tensor) -> Tensor:
    """By the permutation itself instead of its inverse."""
    return back[experts.flatten().argsort(stable=True)].view(*experts.shape, back.shape[1])


Answer = Callable[..., Any]


def answer(
    total: Sum = in_order,
    placed: Callable[[Tensor, Tensor], Tensor] = in_place,
    sorted_by_source: bool = True,
    wire: torch.dtype | None = None,
    out: torch.dtype | None = None,
) -> Answer:
    """wire: what rows travel as; out: of the result; None for the dtype of y."""

    def combine(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
        back = brought_home(y.to(wire or y.dtype), counts, experts, group, sorted_by_source)
        results = placed(back.to(y.dtype), experts)
        return total(results if out is None else results.to(out), weights)

    return combine


right = answer()


def weights_by_expert(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    """The results stand where they belong, the weights in the order of experts."""
    by_expert = weights.gather(1, experts.argsort(1))
    return right(y, counts, experts, by_expert, group)


def added_as_they_lie(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    """Results are added to their tokens one by one, by expert."""
    back = brought_home(y, counts, experts, group)
    order = experts.flatten().argsort(stable=True)
    out = torch.zeros(len(experts), y.shape[1])
    out.index_add_(0, order // experts.shape[1], weights.flatten()[order, None] * back.float())
    return out.to(y.dtype)


def equal_splits(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    back = y.new_empty(experts.numel(), y.shape[1])
    dist.all_to_all_single(back, by_source(y, counts), group=group)
    return in_order(in_place(back, experts), weights)


def splits_of_dispatch(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    """What was sent and what was received there, not turned round."""
    world, each = counts.shape
    owners = (experts.flatten() // each).bincount(minlength=world)
    back = y.new_empty(experts.numel(), y.shape[1])
    splits = counts.sum(1).tolist(), owners.tolist()
    dist.all_to_all_single(back, by_source(y, counts), *splits, group=group)
    return in_order(in_place(back, experts), weights)


def the_default_group(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    return right(y, counts, experts, weights, None)


def skips_without_tokens(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    if not len(experts):
        return y.new_zeros(0, y.shape[1])
    return right(y, counts, experts, weights, group)


def gathered(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    """All results go to all ranks."""
    everything: list[Any] = [None] * len(counts)
    dist.all_gather_object(everything, (y, counts), group=group)
    own, each = dist.get_rank(group), counts.shape[1]
    back = []
    for rows, arrived in everything:
        ends = arrived.T.flatten().cumsum(0).tolist()
        parts = rows.tensor_split(ends[:-1])
        back += [parts[local * len(counts) + own] for local in range(each)]
    return in_order(in_place(torch.cat(back), experts), weights)


# --- no answers at all ---------------------------------------------------------------------------------------------


def filled(value: float) -> Answer:
    def made(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
        return torch.full((len(experts), y.shape[1]), value, dtype=y.dtype)

    return made


def the_input(y: Tensor, counts: Tensor, experts: Tensor, weights: Tensor, group: Any) -> Tensor:
    return y
