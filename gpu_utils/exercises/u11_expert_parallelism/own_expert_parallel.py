"""Unit 10's model over ranks with a learner's own dispatch and combine, beside the same training on one rank."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.distributed import run_ranks
from gpu_utils.exercises.u11_expert_parallelism.expert_parallel_ranks import (
    CONFIG,
    MOMENTUM,
    RATE,
    Combine,
    Dispatch,
    ModelOnRanks,
    new_model,
    new_optimizer,
)

SEQUENCES = 16

TERMS = max(SEQUENCES * CONFIG.n_positions, CONFIG.vocab_size)
"""Of the longest sum: a gradient's over the tokens of a step, or a softmax's over the vocabulary."""


@dataclass(frozen=True)
class Alone:
    """A run on one rank that holds everything.

    losses  of each step, in nats per token
    norms   of the gradient of each step
    first   gradients of the first step: name of the weight -> gradient
    """

    losses: list[float]
    norms: list[float]
    first: dict[str, Tensor]


def trained_alone(steps: list[tuple[Tensor, Tensor]], dtype: torch.dtype = torch.float32) -> Alone:
    model = new_model().to(dtype)
    optimizer = new_optimizer(model)
    losses: list[float] = []
    norms: list[float] = []
    first: dict[str, Tensor] = {}
    for tokens, targets in steps:
        loss = model.loss(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        first = first or gradients
        norms.append(float(torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()))
        optimizer.step()
        losses.append(loss.item())
    return Alone(losses, norms, first)


@functools.cache
def _references(steps: int) -> tuple[Alone, Alone]:
    """One rank in float64, and in float32: the same for every run of so many steps."""
    given = ModelOnRanks.batches(steps, SEQUENCES)
    return trained_alone(given, torch.float64), trained_alone(given)


def share(terms: int) -> float:
    """How much of its size a float32 sum of that many terms of either sign may be off, whatever their order.

    Source: gpu_utils/analytic/tolerance.py, for terms whose sum has the size 1.
    """
    return tolerance(torch.float32, k=terms, magnitude=terms**-0.5).atol


def bounds(exact: Alone) -> list[float]:
    """How far float32 losses may be off from `exact`, where nothing but the rounding and the order of sums differs.

    A loss is a sum, off by `share` of itself. So is the gradient g of each step s, which moves the weights for all
    later steps, by SGD's rate and momentum. To first order, and if everything pointed the worst way, the loss of step
    t is off by

        share * (loss_t + |g_t| * sum over s < t of rate * (1 - momentum^(t - s)) / (1 - momentum) * |g_s|)

    >>> [f"{bound:.1e}" for bound in bounds(Alone([7.0, 7.0], [1.0, 1.0], {}))]
    ['5.3e-05', '5.4e-05']
    """
    found = []
    for t, (loss, norm) in enumerate(zip(exact.losses, exact.norms, strict=True)):
        moved = [(1 - MOMENTUM ** (t - s)) / (1 - MOMENTUM) * RATE * exact.norms[s] for s in range(t)]
        found.append(share(TERMS) * (loss + norm * sum(moved)))
    return found


def furthest(found: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """The largest |difference| / |exact| of these weights' gradients; inf where one should be zero and is not.

    >>> ones = torch.ones(2)
    >>> furthest({"a": ones, "b": 0 * ones}, {"a": ones.double()}), furthest({"b": ones}, {"a": ones.double()})
    (0.0, inf)
    """
    most = 0.0
    for name, got in found.items():
        right = exact.get(name, torch.zeros_like(got)).double()
        apart, size = float((got.double() - right).norm()), float(right.norm())
        most = max(most, apart / size if size else math.inf if apart else 0.0)
    return most


def _rank(
    steps: list[tuple[Tensor, Tensor]],
    expert_ranks: int,
    dispatch: Dispatch | None,
    combine: Combine | None,
    sum_over_replicas: bool,
) -> dict[str, Any]:
    ranks = ModelOnRanks(expert_ranks, dispatch, combine, sum_over_replicas=sum_over_replicas)
    losses = [ranks.step(*steps[0])]
    first = ranks.gradients()
    losses += [ranks.step(*batch) for batch in steps[1:]]
    return {"losses": losses, "first": first, "pairs": ranks.pairs, **ranks.held}


@dataclass(frozen=True)
class ExpertParallel:
    """A training run over ranks, beside the same run on one.

    losses   name of the run -> loss of each step in nats per token
    off      name -> largest difference of a loss from one rank in float64, over all steps
    may      the largest that such a difference may be for float32 (see `bounds`)
    gradients      name -> largest |difference| / |gradient| from float64, over all weights and ranks, first step
    gradients_may  the largest that this may be for float32 (see `share`)
    within   whether the ranks' losses and gradients are within these bounds, step by step and weight by weight
    weights  name of the kind -> how many a rank holds
    sent     [source][destination] -> bytes that dispatch and combine sent; gradients are not in it
    bytes_of_a_pair  bytes that crossed between ranks for a token and one of its experts, in a step, both passes
    """

    losses: dict[str, list[float]]
    off: dict[str, float]
    may: float
    gradients: dict[str, float]
    gradients_may: float
    within: bool
    weights: dict[str, int]
    sent: list[list[int]]
    bytes_of_a_pair: float
    seconds: float

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {
            name: {
                "first loss": every[0],
                "last loss": every[-1],
                "losses off by": self.off[name],
                "first gradients off by": self.gradients[name],
            }
            for name, every in self.losses.items()
        }
        next(iter(found.values()))["within the bounds"] = self.within
        found["float32 may be"] = {"losses off by": self.may, "first gradients off by": self.gradients_may}
        return found


def expert_parallel(
    dispatch: Dispatch | None = None,
    combine: Combine | None = None,
    expert_ranks: int = 4,
    replicas: int = 2,
    steps: int = 12,
    sum_over_replicas: bool = True,
    seconds: float = 120.0,
) -> ExpertParallel:
    """Train unit 10's model, small, on expert_ranks * replicas processes, and alone in float32 and float64.

    dispatch, combine  answers to 11.dispatch and 11.combine; the course's own for None. All of it in float32.
    sum_over_replicas  False forgets to sum the experts' gradients over the replicas
    """
    given = ModelOnRanks.batches(steps, SEQUENCES)
    exact, alone = _references(steps)
    shared = {
        "steps": given,
        "expert_ranks": expert_ranks,
        "dispatch": dispatch,
        "combine": combine,
        "sum_over_replicas": sum_over_replicas,
    }
    found = run_ranks(_rank, expert_ranks * replicas, shared=shared, seconds=seconds)
    first = found.values[0]
    on_ranks = f"{expert_ranks} x {replicas} ranks"
    losses = {on_ranks: first["losses"], "one rank": alone.losses, "one rank, float64": exact.losses}
    apart = {name: [abs(a - b) for a, b in zip(every, exact.losses, strict=True)] for name, every in losses.items()}
    gradients = {
        on_ranks: max(furthest(value["first"], exact.first) for value in found.values),
        "one rank": furthest(alone.first, exact.first),
        "one rank, float64": 0.0,
    }
    most = bounds(exact)
    pairs = sum(value["pairs"] for value in found.values)
    whole = sum(p.numel() for p in new_model().parameters())
    return ExpertParallel(
        losses=losses,
        off={name: max(every) for name, every in apart.items()},
        may=max(most),
        gradients=gradients,
        gradients_may=share(TERMS),
        within=all(a <= b for a, b in zip(apart[on_ranks], most, strict=True)) and gradients[on_ranks] <= share(TERMS),
        weights={"all of the model": whole, "on a rank": first["all"], "of these in its experts": first["experts"]},
        sent=found.sent,
        bytes_of_a_pair=sum(map(sum, found.sent)) / pairs,
        seconds=found.seconds,
    )
