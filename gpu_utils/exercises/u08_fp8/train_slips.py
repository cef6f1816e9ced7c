"""Wrong answers to 08.train, as learners write them: one loop with its parts changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gpu_utils.exercises.u08_fp8.train_model import LARGEST, LAYERS, OPERANDS

History = dict[str, list[float]]
ScaleOf = Callable[[History, str], float]

FIRST = 1e-3
"""A scale for what nobody has seen yet."""


def delayed(history: History, operand: str) -> float:
    """From the largest of the last eight sizes, with room for twice of it; 0 where nothing was seen."""
    return 2 * max(history[operand][-8:], default=0.0) / LARGEST


def half_the_room(history: History, operand: str) -> float:
    return delayed(history, operand) / 4


def of_the_first_step(history: History, operand: str) -> float:
    return history[operand][0] / LARGEST if history[operand] else 0.0


def always_one(history: History, operand: str) -> float:
    return 1.0


def inverse(history: History, operand: str) -> float:
    return 1 / (delayed(history, operand) or FIRST)


def of_the_smallest(history: History, operand: str) -> float:
    return min(history[operand], default=0.0) / 8 / LARGEST


def answer(
    *,
    layers: tuple[str, ...] = LAYERS,
    blocks: slice = slice(None),
    scale_of: ScaleOf = delayed,
    logs: Callable[[dict[str, History]], Any] = lambda histories: histories,
    biased: bool = True,
    narrow: bool = False,
    clears: bool = True,
    repeats: bool = False,
    rate_factor: float = 1.0,
    operands: tuple[str, ...] = OPERANDS,
    steps: slice = slice(None),
    first: float = FIRST,
    looks: bool = True,
    forgets: bool = True,
) -> Callable[..., Any]:
    """A right answer, with some of its parts changed.

    narrow   the weights become bfloat16 after each step
    first    the scale where the rule says 0
    looks    a pass before the first step fills the histories; forgets: its gradients are cleared
    """

    def train(model: Any, batches: Any, rate: float, linear: Callable[..., Tensor]) -> Any:
        histories: dict[str, History] = {}

        def forward(layer: nn.Linear, history: History, x: Tensor) -> Tensor:
            def seen(operand: str, amax: float) -> None:
                if operand in operands:
                    history[operand].append(amax)

            scales = {operand: scale_of(history, operand) or first for operand in OPERANDS}
            y = linear(x, layer.weight, scales, seen)
            return y + layer.bias if biased else y

        for number, block in enumerate(model.h):
            for name in layers if block in list(model.h)[blocks] else ():
                layer = block.get_submodule(name)
                history: History = {operand: [] for operand in OPERANDS}
                histories[f"h.{number}.{name}"] = history
                layer.forward = partial(forward, layer, history)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate * rate_factor)
        if looks:
            model.loss(*batches[0]).backward()
        if forgets:
            optimizer.zero_grad()
        losses = []
        for inputs, targets in batches[steps]:
            if repeats:
                inputs, targets = batches[0]
            loss = model.loss(inputs, targets)
            loss.backward()
            optimizer.step()
            if clears:
                optimizer.zero_grad()
            if narrow:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.copy_(parameter.bfloat16())
            losses.append(loss.item())
        return losses, logs(histories)

    return train


def scales_in_the_log(histories: dict[str, History]) -> Any:
    return {
        layer: {operand: [size / LARGEST for size in sizes] for operand, sizes in history.items()}
        for layer, history in histories.items()
    }


def last_of_the_log(histories: dict[str, History]) -> Any:
    return {layer: {operand: sizes[-1:] for operand, sizes in history.items()} for layer, history in histories.items()}


def without_the_look(histories: dict[str, History]) -> Any:
    return {layer: {operand: sizes[1:] for operand, sizes in history.items()} for layer, history in histories.items()}


def largest_so_far(histories: dict[str, History]) -> Any:
    def running(sizes: list[float]) -> list[float]:
        return [max(sizes[: step + 1]) for step in range(len(sizes))]

    return {
        layer: {operand: running(sizes) for operand, sizes in history.items()} for layer, history in histories.items()
    }


def without_gradients(histories: dict[str, History]) -> Any:
    return {layer: {"x": history["x"], "w": history["w"]} for layer, history in histories.items()}


def in_bf16(model: Any, batches: Any, rate: float, linear: Callable[..., Tensor]) -> Any:
    """The model's own layers, untouched."""
    return answer(layers=())(model, batches, rate, linear)


def only_losses(model: Any, batches: Any, rate: float, linear: Callable[..., Tensor]) -> Any:
    return answer()(model, batches, rate, linear)[0]
