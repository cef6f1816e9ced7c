"""Wrong answers to 10.bias_update, as learners write them: one loop, a part of which is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Move = Callable[[Tensor], Tensor]


def by_sign(load: Tensor) -> Tensor:
    return torch.sign(load.float().mean() - load)


def away(load: Tensor) -> Tensor:
    return torch.sign(load - load.float().mean())


def by_distance(load: Tensor) -> Tensor:
    return load.float().mean() - load


def by_share(load: Tensor) -> Tensor:
    mean = load.float().mean()
    return (mean - load) / mean


def no_rest(load: Tensor) -> Tensor:
    return torch.where(load < load.float().mean(), 1.0, -1.0)


def no_rest_upwards(load: Tensor) -> Tensor:
    return torch.where(load > load.float().mean(), -1.0, 1.0)


def whole_mean(load: Tensor) -> Tensor:
    return torch.sign(load.sum() // len(load) - load).float()


def only_down(load: Tensor) -> Tensor:
    return -(load > load.float().mean()).float()


def of_median(load: Tensor) -> Tensor:
    return torch.sign(load.float().median() - load)


def of_busy(load: Tensor) -> Tensor:
    """The mean of experts that have any load."""
    return torch.sign(load[load > 0].float().mean() - load)


def answer(
    *,
    move: Move = by_sign,
    weighted: bool = False,
    each_batch: bool = False,
    last_batch: bool = False,
    first_choice: bool = False,
    old_bias: bool = False,
    summed: bool = False,
    skips_last: bool = False,
    shares: bool = False,
    centred: bool = False,
    of_first: bool = False,
) -> Callable[..., Any]:
    """move: by how many speeds each bias moves, from a load. What the rest is called says what goes wrong."""

    def bias_update(route: Any, bias: Tensor, steps: Any, speed: float) -> Any:
        start, history = bias, []
        for number, step in enumerate(steps):
            load = torch.zeros(len(bias), dtype=torch.int64, device=bias.device)
            weight = torch.zeros(len(bias), device=bias.device)
            for x in step:
                weights, experts = route(x, start if old_bias else bias)
                experts = experts[:, :1] if first_choice else experts
                found = torch.bincount(experts.flatten(), minlength=len(bias))
                load = found if last_batch else load + found
                if weighted:
                    weight.index_add_(0, experts.flatten(), weights.flatten())
                if each_batch:
                    bias = bias + speed * move(found)
            history.append(load / load.sum() if shares else load)
            if each_batch or (skips_last and number == len(steps) - 1):
                continue
            measured = weight if weighted else torch.stack(history).sum(0) if summed else load
            bias = bias + speed * move(measured)
            bias = bias - bias.mean() if centred else bias
        return bias, history[0] if of_first else torch.stack(history)

    return bias_update


def without_minlength(route: Any, bias: Tensor, steps: Any, speed: float) -> Any:
    history = []
    for step in steps:
        load = torch.bincount(torch.cat([route(x, bias)[1] for x in step]).flatten())
        bias = bias + speed * by_sign(load)
        history.append(load)
    return bias, torch.stack(history)
