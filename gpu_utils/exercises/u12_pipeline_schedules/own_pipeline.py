"""GPT-2 in stages on real ranks, by an order of the learner's: its gradients, its losses and when each step ran.

Each step is computed, and then sleeps until its cost is over, in place of a GPU that would be busy so long: the ranks
share the few cores of a CPU. What is seen is real order, real messages and real waiting, at costs that are given.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.schedules import Costs, Run, Schedule, arranged
from gpu_utils.distributed import Wires, run_ranks
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u11_expert_parallelism.expert_parallel_ranks import ModelOnRanks
from gpu_utils.exercises.u11_expert_parallelism.own_expert_parallel import furthest, share
from gpu_utils.exercises.u12_pipeline_schedules.checker import faults
from gpu_utils.exercises.u12_pipeline_schedules.ranks import Rank
from gpu_utils.exercises.u12_pipeline_schedules.simulator import alive, simulate
from gpu_utils.exercises.u12_pipeline_schedules.stages import CONFIG, new_model

SEQUENCES = 2
"""Of a micro-batch."""

COSTS = Costs(F=0.02, I=0.02, W=0.02, link=0.002)
"""Seconds."""


@dataclass(frozen=True)
class Pipelined:
    """A training run on ranks.

    losses         of each step, in nats per token
    gradients      largest |difference| / |gradient| from the whole model in float64, over all weights, first step
    gradients_may  the largest that this may be for float32 sums in another order
    measured       when each step of each rank ran, in seconds, in the last pass
    simulated      the same on paper, at the given costs; None where they were not padded
    sent           [source][destination] -> bytes of activations and their gradients, all passes
    """

    losses: list[float]
    gradients: float
    gradients_may: float
    measured: Run
    simulated: Run | None
    sent: list[list[int]]

    @property
    def within(self) -> bool:
        """Whether the gradients are those of the whole model."""
        return self.gradients <= self.gradients_may

    @property
    def rows(self) -> dict[str, Any]:
        """For a table."""
        found: dict[str, Any] = {
            "gradients off by": self.gradients,
            "float32 may be": self.gradients_may,
            "the whole model's": self.within,
        }
        if self.simulated is not None:
            found |= {"s, simulated": self.simulated.seconds, "s, measured": self.measured.seconds}
        return found | {"first loss": self.losses[0], "last loss": self.losses[-1]}


def _batches(steps: int, micros: int) -> list[tuple[Tensor, Tensor]]:
    """Of each step the tokens and those that follow them, (micros, SEQUENCES, n_positions) int64."""
    given = ModelOnRanks.batches(steps, micros * SEQUENCES)
    return [(x.view(micros, SEQUENCES, -1), y.view(micros, SEQUENCES, -1)) for x, y in given]


@functools.cache
def _exact(micros: int) -> dict[str, Tensor]:
    """Gradients of the whole model in the first step, float64."""
    tokens, targets = _batches(1, micros)[0]
    model = new_model().double()
    model.loss(tokens.flatten(0, 1), targets.flatten(0, 1)).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def _on_a_rank(
    schedule: Schedule, costs: Costs | None, batches: list[tuple[Tensor, Tensor]], number: int
) -> dict[str, Any]:
    torch.set_num_threads(1)
    rank = Rank(schedule)
    lasts = [costs.of(step) if costs else 0.0 for step in schedule.order[number]]
    first: dict[str, Tensor] = {}
    losses, spans = [], []
    for tokens, targets in batches:
        spans = rank.step(tokens, targets, lasts)
        gradients = rank.reduce()
        first = first or {name: gradient.clone() for name, gradient in gradients.items()}
        losses.append(rank.loss)
        rank.optimizer.step()
    return {"spans": spans, "first": first, "losses": losses}


def _measured(schedule: Schedule, values: list[dict[str, Any]]) -> Run:
    """Its clock starts with the first step of any rank."""
    start = min(begin for value in values for begin, _ in value["spans"])
    spans = tuple(tuple((begin - start, end - start) for begin, end in value["spans"]) for value in values)
    return Run(schedule, spans, alive(schedule))


def pipelined(
    order: Any,
    m: int = 8,
    layout: str = "line",
    v: int = 1,
    *,
    padded: bool = True,
    steps: int = 2,
    seconds: float = 30.0,
    **costs: Any,
) -> Pipelined:
    """Train a small GPT-2 of 8 layers in stages on processes, each doing its steps of an order, one after the other.

    order, m, layout, v  as for `lesson.simulated`; the stages share the 8 layers
    padded   False for steps that last as long as they compute, and messages that take no time
    steps    training steps; seconds: after which ranks that wait for each other are ended
    costs    seconds, where they are not those of COSTS: F, I, W, together, link

    Raises BadArgument for an order that is none; RanksHung where ranks wait for each other; RankFailed where a rank is
    told to do a step before what it needs.
    """
    if not isinstance(order, list | tuple) or not order:
        raise BadArgument(f"the order is {type(order).__name__}; expected a list with the steps of each rank")
    p, given = len(order), replace(COSTS, **costs) if padded else None
    schedule = arranged(order, p, m, layout, v)
    batches = _batches(steps, m)
    found = run_ranks(
        _on_a_rank,
        p,
        [{"number": rank} for rank in range(p)],
        {"schedule": schedule, "costs": given, "batches": batches},
        seconds,
        Wires(latency=given.link) if given and given.link else None,
    )
    every: list[dict[str, Any]] = found.values
    gradients = max(furthest(value["first"], _exact(m)) for value in every)
    missing = _exact(m).keys() - {name for value in every for name in value["first"]}
    return Pipelined(
        losses=[sum(value["losses"][step] for value in every) for step in range(steps)],
        gradients=float("inf") if missing else gradients,
        gradients_may=share(max(m * SEQUENCES * CONFIG.n_positions, CONFIG.vocab_size)),
        measured=_measured(schedule, every),
        simulated=simulate(schedule, given) if given and not faults(schedule) else None,
        sent=found.sent,
    )
