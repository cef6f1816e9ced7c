"""A rank of a pipeline: it does the steps of its order, one after the other, and sends what others need.

Every message of a step is asked for before the step begins, with a tag for each: an order that its dependencies allow
never hangs, whatever order the messages come in. NCCL and RCCL have no tags, so there the two ends of a link must also
agree on the order of its messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_utils.analytic.schedules import Action, Schedule, actions_of, spelled
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u12_pipeline_schedules.stages import CONFIG, Stage, new_model, prefixes

RATE, MOMENTUM = 0.1, 0.9


class Neighbours:
    """Who has what: the rank of each stage, and the stages before and after it in its chain."""

    def __init__(self, schedule: Schedule) -> None:
        self.rank_of, self.beside = schedule.places, schedule.beside
        self.place = {stage: (copy, at) for copy, chain in enumerate(schedule.chains) for at, stage in enumerate(chain)}
        self.lengths = [len(chain) for chain in schedule.chains]

    def source(self, kind: str, stage: int) -> int | None:
        """The stage whose result a step needs; None where it needs no other's."""
        before, after = self.beside[stage]
        return {"F": before, "W": None}.get(kind, after)

    def target(self, kind: str, stage: int) -> int | None:
        """The stage that needs a step's result."""
        before, after = self.beside[stage]
        return {"F": after, "W": None}.get(kind, before)

    def owners(self, name: str) -> tuple[int, ...]:
        """The ranks that hold a weight, in order."""
        held = {
            self.rank_of[stage]
            for stage, (copy, at) in self.place.items()
            if name.startswith(prefixes(at, self.lengths[copy]))
        }
        return tuple(sorted(held))


class Rank:
    """This rank's stages and the messages of one training step. All ranks of the default group make one each."""

    def __init__(self, schedule: Schedule) -> None:
        self.number = dist.get_rank()
        self.steps = [actions_of(step) for step in schedule.order[self.number]]
        self.near = Neighbours(schedule)
        self.micros = micros = sum(map(len, schedule.micros))
        models = [new_model() for _ in schedule.chains]
        own = sorted({stage for step in self.steps for _, stage, _ in step})
        self.stages: dict[int, Stage] = {}
        for stage in own:
            copy, at = self.near.place[stage]
            self.stages[stage] = Stage(models[copy], at, self.near.lengths[copy], micros)
        weights = {id(p): p for stage in self.stages.values() for p in stage.weights.values()}
        self.optimizer = torch.optim.SGD(weights.values(), lr=RATE, momentum=MOMENTUM)
        self.groups = {
            ranks: dist.new_group(list(ranks))
            for ranks in sorted({self.near.owners(name) for name, _ in models[0].named_parameters()})
            if len(ranks) > 1
        }

    def step(self, tokens: Tensor, targets: Tensor, lasts: Sequence[float]) -> list[tuple[float, float]]:
        """One pass over this rank's order; when each step began and ended, in seconds of the machine's clock.

        tokens, targets  (micros, batch, T) int64
        lasts            seconds: a step that is done earlier sleeps until then, in place of a GPU that is busy
        """
        self.optimizer.zero_grad()
        posted = dict(self._posted(tokens.shape[1:]))
        here: dict[tuple[str, int, int], Tensor | None] = {}
        sent: list[Any] = []
        dist.barrier()
        spans = []
        for actions, seconds in zip(self.steps, lasts, strict=True):
            given = [self._input(action, posted, here) for action in actions]
            began = time.monotonic()
            results = []
            for (kind, stage, micro), x in zip(actions, given, strict=True):
                results.append(self._do(kind, stage, micro, x, tokens[micro], targets[micro]))
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            spans.append((began, time.monotonic()))
            for (kind, stage, micro), y in zip(actions, results, strict=True):
                sent += self._send(kind, stage, micro, y, here)
        for work in sent:
            work.wait()
        return spans

    def _tag(self, way: str, stage: int, micro: int) -> int:
        """One number for each message of a step."""
        return (stage * self.micros + micro) * 2 + (way == "F")

    def _posted(self, shape: Sequence[int]) -> Iterator[tuple[Action, tuple[Tensor, Any]]]:
        """A receive for each message of this step, before the step begins."""
        for actions in self.steps:
            for kind, stage, micro in actions:
                source = self.near.source(kind, stage)
                if source is not None and self.near.rank_of[source] != self.number:
                    room = torch.empty(*shape, CONFIG.n_embd)
                    tag = self._tag("F" if kind == "F" else "B", stage, micro)
                    yield (kind, stage, micro), (room, dist.irecv(room, self.near.rank_of[source], tag=tag))

    def _input(self, action: Action, posted: Mapping[Any, Any], here: dict[Any, Tensor | None]) -> Tensor | None:
        kind, stage, micro = action
        if action in posted:
            room, work = posted[action]
            work.wait()
            return room
        if self.near.source(kind, stage) is None:
            return None
        way = ("F" if kind == "F" else "B", stage, micro)
        if way not in here:
            raise self._early(action)
        return here.pop(way)

    def _early(self, action: Action) -> BadArgument:
        return BadArgument(
            f"rank {self.number} is told to do {spelled(action)} before the step that it needs; "
            "expected an order that a checker finds whole"
        )

    def _do(
        self, kind: str, stage: int, micro: int, x: Tensor | None, tokens: Tensor, targets: Tensor
    ) -> Tensor | None:
        own = self.stages[stage]
        if not own.ready(kind, micro):
            raise self._early((kind, stage, micro))
        if kind == "F":
            return own.forward(micro, tokens if x is None else x, targets)
        if kind == "W":
            own.weight_gradients(micro)
            return None
        return own.backward(micro, x) if kind == "B" else own.input_gradient(micro, x)

    def _send(self, kind: str, stage: int, micro: int, y: Tensor | None, here: dict[Any, Tensor | None]) -> list[Any]:
        to = self.near.target(kind, stage)
        if to is None or y is None:
            return []
        way = "F" if kind == "F" else "B"
        if self.near.rank_of[to] == self.number:
            here[way, to, micro] = y
            return []
        return [dist.isend(y.contiguous(), self.near.rank_of[to], tag=self._tag(way, to, micro))]

    def reduce(self) -> dict[str, Tensor]:
        """Sum the gradients of a weight over the stages and copies that hold it; name -> gradient, on this rank."""
        held: dict[str, dict[int, Tensor]] = {}
        for stage in self.stages.values():
            for name, weight in stage.weights.items():
                grad = weight.grad if weight.grad is not None else torch.zeros_like(weight)
                held.setdefault(name, {})[id(weight)] = grad  # once, where two stages share a weight
        total = {name: torch.stack(list(grads.values())).sum(0) for name, grads in held.items()}
        for ranks, group in self.groups.items():
            if self.number not in ranks:
                continue
            for name in sorted(total):
                if self.near.owners(name) == ranks:
                    dist.all_reduce(total[name], group=group)
        for stage in self.stages.values():
            for name, weight in stage.weights.items():
                weight.grad = total[name]
        return total

    @property
    def loss(self) -> float:
        """This rank's part of the mean loss, in nats per token."""
        return sum(sum(stage.losses.values()) for stage in self.stages.values())
