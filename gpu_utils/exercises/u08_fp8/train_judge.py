"""What is right in an answer to 08.train: its products, its log, its loop, its scales, and its gap to bfloat16.

The loop is judged by doing it again: the scales of an answer decide everything that a plain loop computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.u08_fp8.train_model import (
    LARGEST,
    LAYERS,
    OPERANDS,
    Passes,
    build,
    noting,
    pairs,
    stepped,
    train_in_bfloat16,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Inputs

MOST_GAP = 0.025
"""Share by which the loss may be above that of bfloat16.

Measured for right recipes: -0.9% to 0.8% in 18 runs of each, and to 2.0% where a third of some dy was cut off at the
first step. A spoilt first step costs 1% on average with a spread of as much: the gap alone cannot show it, so scales
are looked at themselves.
"""

MOST_REACH, LEAST_REACH, STEADY = 6.0, 2.0**-10, 8
"""An amax over what its scale can hold: after the first step never more; at the first step, and of some step after the
eighth, as much.

Without any room, right recipes measured a reach of 4.2. Of E4M3's 448 the least is 0.44, 224 times its smallest number.
"""

MOST_AT_FIRST, MOST_SATURATED = 0.4, 0.005
"""Shares of elements that may be cut off: of a matrix at the first step; of an operand over all layers and later steps.

Right recipes measured up to 0.32 and 0.001. One first scale for all operands that holds gradients cuts off 0.6 of x.
"""

MOST_LOSS, MOST_WAY = 0.01, 0.07
"""How far losses, by their size, and weights, by the way they have come, may be from those of the plain loop.

Measured for other orders of summation, in torch's fused AdamW and in one written by hand: 0.002 and 0.04. A forward
pass in float32 with all else as it should be comes to 0.09 of the way.
"""


def measured(shape: dict[str, int], weights: dict[str, Tensor], tokens: Tensor) -> float:
    """Loss of trained weights on batches, in float32."""
    model = build(shape, weights)
    with torch.no_grad():
        return sum(float(model.loss(*pair)) for pair in pairs(tokens)) / len(tokens)


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    """How far one set of weights is from the other, all of them as one vector."""
    return math.sqrt(sum(float((after[name] - before[name]).double().square().sum()) for name in before))


def in_bfloat16(shape: dict[str, int], weights: dict[str, Tensor], tokens: Tensor, held: Tensor, rate: float) -> float:
    """The loss on held-out batches after the same training with operands in bfloat16."""
    model = build(shape, weights)
    train_in_bfloat16(model, pairs(tokens), rate)
    return measured(shape, model.state_dict(), held)


def again(inputs: Inputs, scales: dict[str, list[dict[str, float]]]) -> tuple[list[float], dict[str, Tensor], Passes]:
    """Losses, trained weights and figures of a plain loop whose products have these scales: layer -> for each step."""
    model, passes = build(inputs["shape"], inputs["weights"]), Passes()
    linear = noting(model, passes)

    def forward(layer: Any, of_layer: Any, x: Tensor) -> Tensor:
        return linear(x, layer.weight, next(of_layer), lambda operand, amax: None) + layer.bias

    for name, of_layer in scales.items():
        block, layer = name.removeprefix("h.").split(".", 1)
        module = model.h[int(block)].get_submodule(layer)
        module.forward = partial(forward, module, iter(of_layer))
    losses = stepped(model, pairs(inputs["tokens"]), inputs["rate"])
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}, passes


def judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    for look in (_layers, _losses, _log):
        if found := look(case, inputs, value):
            return found
    steps = _steps(case, value)
    if isinstance(steps, Difference):
        return steps
    figures = _of_steps(value["passes"], steps)
    when = "looked" if steps[0] else "first"
    if found := _scales(figures, when) or _parameters(value):
        return found
    scales = {
        layer: [{operand: of[operand]["scale"][step] for operand in OPERANDS} for step in range(len(steps))]
        for layer, of in figures.items()
    }
    losses, trained, passes = again(inputs, scales)
    # what is ours and no answer has touched is looked at, too
    return _loop(inputs, value, losses, trained) or _scales(passes, when) or _gap(inputs, value)


def _steps(case: Case, value: Any) -> list[int] | Difference:
    """The passes after which the weights changed, the same ones in all layers and one for each batch."""
    found: dict[str, list[int]] = {}
    for layer, of in value["passes"].items():
        sums = [*of["w"]["sum"], float(value["trained"][f"{layer}.weight"].double().sum())]
        found[layer] = [step for step, (one, after) in enumerate(pairwise(sums)) if one != after]
    first, steps = next(iter(found.items()))
    for layer, others in found.items():
        if others != steps:
            said = f"the weights of {layer} changed after {len(others)} passes, those of {first} after {len(steps)}"
            return Difference("steps:some", f"{said}; one optimiser steps all parameters of the model")
    if len(steps) != case["steps"]:
        said = f"the weights changed after {len(steps)} passes of {len(sums) - 1}, expected {case['steps']}"
        return Difference("steps", f"{said}: one step for each batch")
    return steps


def _of_steps(passes: Passes, steps: Sequence[int]) -> Passes:
    """The figures of these passes alone."""
    return {
        layer: {
            operand: {name: [numbers[step] for step in steps] for name, numbers in figures.items()}
            for operand, figures in of.items()
        }
        for layer, of in passes.items()
    }


def _layers(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    wanted = [f"h.{number}.{name}" for number in range(case["layers"]) for name in LAYERS]
    found = value["passes"]
    missing, extra = [name for name in wanted if name not in found], [name for name in found if name not in wanted]
    if "?" in extra:
        said = "linear was given a weight that is no parameter of the model; give it layer.weight, which stays float32"
        return Difference("layers:?", said)
    if missing or extra:
        kinds = sorted({name.split(".", 2)[-1] for name in missing})
        said = f"{missing[0]} did not multiply in FP8" if missing else f"{extra[0]} multiplied in FP8"
        rule = "the four linear layers of each block do, and nothing else"
        return Difference(f"layers:{len(missing)} {kinds} {extra}", f"{said}, {len(missing)} in all; {rule}")
    passes = {operand: {len(sizes[operand].get("amax", ())) for sizes in found.values()} for operand in OPERANDS}
    forward, back = min(passes["x"]), max(passes["dy"])
    if passes["x"] == passes["w"] == {forward} and forward > back and back >= case["steps"]:
        said = f"there were {forward} passes forward and {back} back"
        return Difference("passes:forward", f"{said}; a pass that only looks goes back as well, to see dy")
    counts = set[int]().union(*passes.values())
    if len(counts) > 1 or min(counts) < case["steps"]:
        said = f"a layer multiplied in FP8 {min(counts)} times, expected {max(case['steps'], *counts)}"
        return Difference("passes", f"{said}: every layer in each pass, forward and back, and a pass for each batch")
    return None


def _losses(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if len(value["losses"]) != case["steps"]:
        said = f"{len(value['losses'])} losses came back, expected {case['steps']}, one for each batch"
        return Difference("losses", said)
    return None


def _parameters(value: Any) -> Difference | None:
    trained = value["trained"]
    if all(bool((tensor.bfloat16().float() == tensor).all()) for tensor in trained.values()):
        said = "every weight of the trained model is a number of bfloat16; master weights stay float32"
        return Difference("master", said)
    if not any(bool(tensor.any()) for name, tensor in trained.items() if name.endswith("c_fc.bias")):
        said = "the biases of the linear layers are still 0 after training: y needs + layer.bias"
        return Difference("biases", said)
    return None


def _log(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    for layer, figures in value["passes"].items():
        for operand in OPERANDS:
            sizes = figures[operand]["amax"]
            noted = value["log"].get(layer, {}).get(operand)
            if noted is None:
                return Difference(f"log:no {operand}", f"the log has no entry [{layer!r}][{operand!r}]")
            if len(noted) != len(sizes):
                said = f"log[{layer!r}][{operand!r}] has {len(noted)} sizes, expected {len(sizes)}"
                kind = "log:one" if len(noted) == 1 else "log:length"
                return Difference(kind, f"{said}, one for each pass, those that only look too")
            factors = [got / size if size else 1.0 + got for got, size in zip(noted, sizes, strict=True)]
            wrong = next((step for step, factor in enumerate(factors) if not abs(factor - 1) <= 1e-3), None)
            if wrong is not None:
                said = f"log[{layer!r}][{operand!r}] says {noted[wrong]:.4g} for pass {wrong + 1}"
                above = "log:larger" if min(factors) > 0.999 else "log:sizes"
                kind = "log:factor" if max(factors) < 1.001 * min(factors) else above
                return Difference(kind, f"{said}; the largest size was {sizes[wrong]:.4g}")
    return None


def _loop(inputs: Inputs, value: Any, losses: Sequence[float], trained: dict[str, Tensor]) -> Difference | None:
    """Whether a plain loop with the answer's scales ends where the answer did."""
    rule = "as a plain loop with the same scales has it, by linear's results, AdamW at the given rate, and each batch"
    off = (step for step, (got, loss) in enumerate(zip(value["losses"], losses, strict=True))
           if not abs(got - loss) <= MOST_LOSS * loss)  # fmt: skip
    wrong = next(off, None)
    way = moved(inputs["weights"], trained)
    apart = moved(trained, value["trained"]) / way
    far = moved(inputs["weights"], value["trained"]) / way
    pace = "slow" if far < 0.7 else "far" if far > 1.8 else "way"
    if wrong is not None:
        said = f"the loss of step {wrong + 1} is {value['losses'][wrong]:.3f}, expected {losses[wrong]:.3f}"
        said += f", {rule}. At the end the weights have moved {far:.2f} times as far"
        kind = f"loop:{'at once' if wrong < 2 else 'later'}:{pace}" if apart > MOST_WAY else "losses:other"
        return Difference(kind, said)
    if not apart <= MOST_WAY:
        said = f"the trained weights are {apart:.1%} of their way from where they should be"
        return Difference(f"loop:weights:{pace}", f"{said}, {rule}; up to {MOST_WAY:.0%} is allowed")
    return None


Reaches = dict[str, dict[str, list[float]]]
"""Operand -> layer -> for each step the amax over what the scale can hold."""


def _scales(passes: Passes, when: str) -> Difference | None:
    """when: "looked" where passes came before the first step, else "first"."""

    def over(amax: float, scale: float) -> float:
        return amax / (scale * LARGEST)

    reaches = {
        operand: {layer: list(map(over, of[operand]["amax"], of[operand]["scale"])) for layer, of in passes.items()}
        for operand in OPERANDS
    }
    return (
        _underflows(reaches)
        or _cut_off_at_first(passes, reaches, when)
        or _lost_at_first(passes, reaches, when)
        or _saturates(reaches)
        or _cut_off(passes)
    )


def _cut_off_at_first(passes: Passes, reaches: Reaches, when: str) -> Difference | None:
    shares = {o: max((of[o]["saturated"][0], layer) for layer, of in passes.items()) for o in OPERANDS}
    over = [operand for operand in OPERANDS if shares[operand][0] > MOST_AT_FIRST]
    if not over:
        return None
    share, layer = shares[over[0]]
    said = f"at the first step {share:.0%} of {over[0]} of {layer} was cut off, up to {MOST_AT_FIRST:.0%} is allowed"
    reach, later = reaches[over[0]][layer][0], max(max(of[1:]) for of in reaches[over[0]].values())
    when = "always" if later > MOST_REACH else when
    return Difference(
        f"{when}:saturates:{','.join(over)}", f"{said}: its amax was {reach:.3g} times what its scale can hold"
    )


def _lost_at_first(passes: Passes, reaches: Reaches, when: str) -> Difference | None:
    # an amax of 0 has no size that a scale could miss: the layer behind has lost its gradient, and is found itself
    seen = {o: min(((of[0], layer) for layer, of in reaches[o].items() if of[0]), default=(1.0, "")) for o in OPERANDS}
    low = [operand for operand in OPERANDS if seen[operand][0] < LEAST_REACH]
    if not low:
        return None
    operand = max(low, key=lambda operand: passes[seen[operand][1]][operand]["underflowed"][0])
    reach, layer = seen[operand]
    share = passes[layer][operand]["underflowed"][0]
    said = f"at the first step the amax of {operand} of {layer} was {reach:.1e} of what its scale can hold"
    rule = f"{share:.0%} of its elements became 0; {LEAST_REACH:.0e} is asked"
    return Difference(f"{when}:underflows:{','.join(low)}", f"{said}, and {rule}")


def _saturates(reaches: Reaches) -> Difference | None:
    most = {o: max((max(of[1:]), layer) for layer, of in reaches[o].items()) for o in OPERANDS}
    high = [operand for operand in OPERANDS if most[operand][0] > MOST_REACH]
    if not high:
        return None
    reach, layer = most[high[0]]
    step = reaches[high[0]][layer].index(reach) + 1
    said = f"at step {step} the amax of {high[0]} of {layer} was {reach:.1f} times what its scale can hold"
    rule = f"up to {MOST_REACH:g} is allowed. Is the scale renewed from the history?"
    return Difference(f"saturates:{high[0]}", f"{said}, and was cut off there; {rule}")


def _cut_off(passes: Passes) -> Difference | None:
    found = {o: [share for of in passes.values() for share in of[o]["saturated"][1:]] for o in OPERANDS}
    shares = {operand: sum(of) / len(of) for operand, of in found.items()}
    worst = max(OPERANDS, key=lambda operand: shares[operand])
    if shares[worst] <= MOST_SATURATED:
        return None
    said = f"of the elements of {worst} {shares[worst]:.1%} were cut off, over all layers and the steps after the first"
    return Difference("cuts", f"{said}; up to {MOST_SATURATED:.1%} is allowed")


def _underflows(reaches: Reaches) -> Difference | None:
    last = {operand: max(max(of[STEADY:]) for of in reaches[operand].values()) for operand in OPERANDS}
    low = [operand for operand in OPERANDS if last[operand] < LEAST_REACH]
    if not low:
        return None
    said = f"after step {STEADY} the largest amax of {low[0]} was {last[low[0]]:.1e} of what its scale can hold"
    rule = f"its small elements become 0; {LEAST_REACH:.0e} is asked"
    return Difference(f"underflows:{','.join(low)}", f"{said}, so {rule}")


def _gap(inputs: Inputs, value: Any) -> Difference | None:
    expected = inputs["yardstick"]
    found = measured(inputs["shape"], value["trained"], inputs["held"])
    if found <= (1 + MOST_GAP) * expected:
        return None
    said = f"on batches of its own the trained model has a loss of {found:.3f}, bfloat16 {expected:.3f}"
    return Difference("gap", f"{said}: {found / expected - 1:+.1%}, and up to {MOST_GAP:.0%} is allowed")
