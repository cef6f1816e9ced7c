"""08.train: a GPT-2 trained in FP8, with scales from a history of largest sizes and a log of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u08_fp8 import train_slips as slips
from gpu_utils.exercises.u08_fp8.train_model import (
    LARGEST,
    LAYERS,
    OPERANDS,
    build,
    chains,
    first_weights,
    fp8_linear,
    train_in_bfloat16,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

HELD_OUT = 4
"""Batches behind those of the training, for the loss that is compared."""

MOST_GAP, STEADY = 0.05, 8
"""Share by which the loss may be above that of bfloat16; passes before scales are looked at."""

MOST_REACH, LEAST_REACH = 3.0, 2.0**-10
"""A size over what its scale can hold: in no step more, and in some step as much. Of E4M3's 448 this is 0.44."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    shape = {name: case[name] for name in ("vocab", "length", "width", "layers", "batch")}
    weights = first_weights(shape, generator)
    tokens = chains(shape, case["steps"] + HELD_OUT, generator)
    given = {"shape": shape, "weights": weights, "tokens": tokens, "rate": case["rate"]}
    return {**given, "yardstick": _in_bfloat16(**given)}


def _pairs(tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(batch[:, :-1], batch[:, 1:]) for batch in tokens]


def _held_out(inputs: Inputs, weights: dict[str, Tensor]) -> float:
    """Loss of the trained weights on batches of their own, in float32."""
    model = build(inputs["shape"], weights)
    with torch.no_grad():
        return sum(float(model.loss(*pair)) for pair in _pairs(inputs["tokens"][-HELD_OUT:])) / HELD_OUT


def _moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    """How far the weights have come, all of them as one vector."""
    return math.sqrt(sum(float((after[name] - before[name]).double().square().sum()) for name in before))


def _call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    """What the answer returned, and what its products saw: by layer and operand the sizes, and those over the scale."""
    model = build(inputs["shape"], inputs["weights"])
    names = {id(parameter): name.removesuffix(".weight") for name, parameter in model.named_parameters()}
    amax: dict[str, dict[str, list[float]]] = {}
    reach: dict[str, list[float]] = {operand: [] for operand in OPERANDS}

    def linear(x: Tensor, w: Tensor, scales: Any, seen: Any) -> Tensor:
        sizes = amax.setdefault(names.get(id(w), "?"), {operand: [] for operand in OPERANDS})

        def told(operand: str, size: float) -> None:
            if len(sizes[operand]) >= STEADY:
                reach[operand].append(size / (float(scales[operand]) * LARGEST))
            sizes[operand].append(size)
            seen(operand, size)

        return fp8_linear(x, w, scales, told)

    pairs = _pairs(inputs["tokens"][:-HELD_OUT])
    found = answer(model=model, batches=pairs, rate=inputs["rate"], linear=linear)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise TypeError(f"train returned a {type(found).__name__}; expected a pair: (losses, log)")
    losses, log = found
    if not isinstance(log, dict) or not all(isinstance(of_layer, dict) for of_layer in log.values()):
        raise TypeError("the log is not a dict of dicts; expected log[layer][operand], a list of sizes")
    trained = {name: parameter.detach() for name, parameter in model.state_dict().items()}
    wide = {name: parameter.float() for name, parameter in trained.items()}
    return {
        "losses": [float(loss) for loss in losses],
        "log": {str(name): {str(k): [float(v) for v in sizes] for k, sizes in of.items()} for name, of in log.items()},
        "amax": amax,
        "reach": {operand: max(found, default=0.0) for operand, found in reach.items()},
        "in 16 bits": all(bool((tensor.bfloat16().float() == tensor).all()) for tensor in wide.values()),
        "biases": any(bool(tensor.any()) for name, tensor in wide.items() if name.endswith("c_fc.bias")),
        "held out": _held_out(inputs, wide),
        "moved": _moved(inputs["weights"], wide),
    }


def _in_bfloat16(shape: dict[str, int], weights: dict[str, Tensor], tokens: Tensor, rate: float) -> dict[str, float]:
    """The same training with operands in bfloat16: the loss on what was held out, how far the weights have moved."""
    model = build(shape, weights)
    train_in_bfloat16(model, _pairs(tokens[:-HELD_OUT]), rate)
    trained = model.state_dict()
    return {"held out": _held_out({"shape": shape, "tokens": tokens}, trained), "moved": _moved(weights, trained)}


def train_reference(yardstick: dict[str, float], **given: Any) -> dict[str, float]:
    """What the trained model is measured by."""
    return yardstick


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    looks = (_layers, _losses, _scales, _parameters, _log)
    return next((found for look in looks if (found := look(case, inputs, value))), None) or _gap(inputs, value)


def _layers(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    wanted = [f"h.{number}.{name}" for number in range(case["layers"]) for name in LAYERS]
    found = value["amax"]
    missing, extra = [name for name in wanted if name not in found], [name for name in found if name not in wanted]
    if "?" in extra:
        said = "linear was given a weight that is no parameter of the model; give it layer.weight, which stays float32"
        return Difference("layers:?", said)
    if missing or extra:
        kinds = sorted({name.split(".", 2)[-1] for name in missing})
        said = f"{missing[0]} did not multiply in FP8" if missing else f"{extra[0]} multiplied in FP8"
        rule = "the four linear layers of each block do, and nothing else"
        return Difference(f"layers:{len(missing)} {kinds} {extra}", f"{said}, {len(missing)} in all; {rule}")
    counts = {len(sizes[operand]) for sizes in found.values() for operand in OPERANDS}
    if len(counts) > 1 or min(counts) < case["steps"]:
        said = f"a layer multiplied in FP8 {min(counts)} times, expected {max(case['steps'], *counts)}"
        return Difference("steps", f"{said}: every layer in each pass, forward and back, and a pass for each batch")
    return None


def _losses(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if len(value["losses"]) != case["steps"]:
        said = f"{len(value['losses'])} losses came back, expected {case['steps']}, one for each batch"
        return Difference("losses", said)
    return None


def _parameters(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if value["in 16 bits"]:
        said = "every weight of the trained model is a number of bfloat16; master weights stay float32"
        return Difference("master", said)
    if not value["biases"]:
        said = "the biases of the linear layers are still 0 after training: y needs + layer.bias"
        return Difference("biases", said)
    return None


def _log(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    for layer, sizes in value["amax"].items():
        for operand in OPERANDS:
            noted = value["log"].get(layer, {}).get(operand)
            if noted is None:
                return Difference(f"log:no {operand}", f"the log has no entry [{layer!r}][{operand!r}]")
            if len(noted) != len(sizes[operand]):
                said = f"log[{layer!r}][{operand!r}] has {len(noted)} sizes, expected {len(sizes[operand])}"
                return Difference("log:length", f"{said}, one for each pass")
            factors = [got / seen if seen else 1.0 for got, seen in zip(noted, sizes[operand], strict=True)]
            wrong = next((step for step, factor in enumerate(factors) if abs(factor - 1) > 1e-3), None)
            if wrong is not None:
                said = f"log[{layer!r}][{operand!r}] says {noted[wrong]:.4g} for pass {wrong + 1}"
                kind = "log:factor" if max(factors) < 1.001 * min(factors) else "log:sizes"
                return Difference(kind, f"{said}; the largest size was {sizes[operand][wrong]:.4g}")
    return None


def _scales(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    reach = value["reach"]
    high = [operand for operand in OPERANDS if reach[operand] > MOST_REACH]
    low = [operand for operand in OPERANDS if reach[operand] < LEAST_REACH]
    if high:
        said = f"after pass {STEADY} an amax of {high[0]} was {reach[high[0]]:.1f} times what its scale can hold"
        rule = f"up to {MOST_REACH:g} is allowed. Is the scale renewed from the history?"
        return Difference(f"saturates:{','.join(high)}", f"{said}, and was cut off there; {rule}")
    if low:
        said = f"after pass {STEADY} the largest amax of {low[0]} was {reach[low[0]]:.1e} of what its scale can hold"
        return Difference(
            f"underflows:{','.join(low)}", f"{said}, so its small elements become 0; {LEAST_REACH:.0e} is asked"
        )
    return None


def _gap(inputs: Inputs, value: Any) -> Difference | None:
    wanted = inputs["yardstick"]
    found, expected = value["held out"], wanted["held out"]
    if found <= (1 + MOST_GAP) * expected:
        return None
    said = f"on batches of its own the trained model has a loss of {found:.3f}, bfloat16 {expected:.3f}"
    rule = f"{found / expected - 1:+.1%}, and up to {MOST_GAP:.0%} is allowed"
    last = sum(value["losses"][-4:]) / 4
    if last < 0.7 * found:
        return Difference("gap:other text", f"{said}: {rule}. In training it was {last:.3f}")
    moved = value["moved"] / wanted["moved"]
    kind = "gap:slow" if moved < 0.5 else "gap:far" if moved > 1.6 else "gap"
    return Difference(kind, f"{said}: {rule}. Its weights have moved {moved:.2f} times as far")


def _case(why: str, layers: int, vocab: int = 48, batch: int = 8, steps: int = 24) -> Case:
    shape = {"vocab": vocab, "length": 24, "width": 64, "layers": layers, "batch": batch}
    return Case(why, **shape, steps=steps, rate=4e-3)


def _fresh(rng: random.Random) -> Case:
    return _case("weights and text nobody chose", 1, vocab=rng.randrange(40, 64), batch=rng.randrange(6, 9))


EXERCISE = Exercise(
    id="08.train",
    title="A GPT-2 trained in FP8, and its log",
    parameters=("model", "batches", "rate", "linear"),
    kind="host",
    inputs=_inputs,
    call=_call,
    reference=train_reference,
    judge=_judge,
    tolerance=lambda case, inputs: Tolerance(0.05, 0.0, "a few steps of training"),
    dtype=lambda inputs: None,
    cases=(
        _case("one block", 1),
        _case("two blocks, a few steps more", 2, steps=28),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda model, batches, rate, linear: ([0.0] * len(batches), {}),
        "ones": lambda model, batches, rate, linear: ([1.0] * len(batches), {}),
        "nan": lambda model, batches, rate, linear: ([math.nan] * len(batches), {}),
        "not in FP8": slips.in_bf16,
    },
    seconds=60.0,
    misconceptions=(
        Misconception(
            "nothing_in_fp8",
            slips.in_bf16,
            "linear was never called: the model's layers multiply in float32. Give each of the four layers of a block "
            "another forward, or replace it.",
        ),
        Misconception(
            "only_the_mlp",
            slips.answer(layers=LAYERS[2:]),
            "Only the layers of the MLP multiply in FP8. Those of attention, c_attn and c_proj, are linear layers too; "
            "what stays in higher precision is the softmax between them.",
        ),
        Misconception(
            "only_attention",
            slips.answer(layers=LAYERS[:2]),
            "Only the layers of attention multiply in FP8. The MLP has two thirds of a block's weights.",
        ),
        Misconception(
            "only_the_first_block",
            slips.answer(blocks=slice(1)),
            "Only the first block multiplies in FP8: model.h has all of them.",
        ),
        Misconception(
            "scales_of_one",
            slips.answer(scale_of=slips.always_one),
            "All scales are 1, which is a plain cast. The gradients of this model are far below the smallest number of "
            "E4M3: the log shows it. Let the largest size become the largest number.",
        ),
        Misconception(
            "scales_of_the_first_step",
            slips.answer(scale_of=slips.of_the_first_step),
            "The scales come from the first step and stay. Activations and gradients grow, and are cut off: look at "
            "the log. Renew the scales at each step from the last few.",
        ),
        Misconception(
            "scales_from_the_smallest",
            slips.answer(scale_of=slips.of_the_smallest),
            "The scales come from the smallest of the sizes: nearly every step saturates. The largest of the last few "
            "leaves room.",
        ),
        Misconception(
            "inverse_scales",
            slips.answer(scale_of=slips.inverse),
            "The scales are upside down: linear divides by them before the cast. amax / 448, with some room, brings "
            "the largest size to the largest number.",
        ),
        Misconception(
            "nothing_yet_is_zero",
            slips.answer(scale_of=slips.nothing_yet_is_zero),
            "At the first step there is no history, and the scale is 0. Decide what it is then; of x and w you have "
            "the matrix itself before you, for dy a small number will do.",
        ),
        Misconception(
            "scales_in_the_log",
            slips.answer(logs=slips.scales_in_the_log),
            "The log holds scales. It is to hold what `seen` says: the largest sizes, from which scales are made.",
        ),
        Misconception(
            "largest_so_far",
            slips.answer(logs=slips.largest_so_far),
            "The log holds the largest size up to each step. It is to hold that of the step itself: what falls again "
            "is news too.",
        ),
        Misconception(
            "only_the_last_step",
            slips.answer(logs=slips.last_of_the_log),
            "The log holds one size of each operand. One for each step makes a history: append.",
        ),
        Misconception(
            "no_gradients_in_the_log",
            slips.answer(logs=slips.without_gradients),
            "The log has x and w, and no dy. Gradients are seen in the backward pass, by the same `seen`.",
        ),
        Misconception(
            "weights_in_bfloat16",
            slips.answer(narrow=True),
            "The weights themselves are rounded to 16 bits after each step: small updates are lost. The master weights "
            "stay float32, and linear rounds what it multiplies.",
        ),
        Misconception(
            "no_bias",
            slips.answer(biased=False),
            "y has no bias: linear multiplies, and adds nothing. y + layer.bias, in float32.",
        ),
        Misconception(
            "gradients_not_cleared",
            slips.answer(clears=False),
            "Gradients of all steps add up: optimizer.zero_grad() after each step.",
        ),
        Misconception(
            "the_first_batch_again",
            slips.answer(repeats=True),
            "Every step learns from the first batch. The loss of the training falls, that on other text does not.",
        ),
        Misconception(
            "rate_a_tenth",
            slips.answer(rate_factor=0.1),
            "It learns more slowly than in bfloat16: is the optimizer AdamW, with the given rate, one step for a "
            "batch?",
        ),
        Misconception(
            "half_of_the_batches",
            slips.answer(steps=slice(None, None, 2)),
            "Some batches were left out: one step for each, in their order.",
        ),
        Misconception(
            "only_losses",
            slips.only_losses,
            "Only the losses are returned: return losses, log.",
        ),
    ),
    hints=(
        "Which modules of a block are nn.Linear, and what are they called? Print model. What does each need to know of "
        "itself when its forward is called: its weight, its bias, and where it writes its history.",
        "For each of the four layers of each block make a history {'x': [], 'w': [], 'dy': []}, keep it in the log "
        "under the layer's name, and give the layer another forward (functools.partial, or a small nn.Module in its "
        "place). It computes three scales from its history, calls linear with a seen that appends, and adds the bias.",
        "def scale(sizes): largest = max(sizes[-8:], default=0.0); return 2 * largest / 448 if largest else 1e-3. "
        "layer.forward = partial(forward, layer, history), with forward returning linear(x, layer.weight, {operand: "
        "scale(history[operand]) for operand in history}, seen) + layer.bias. Then AdamW, and the usual loop.",
    ),
    explanation=(
        "A scale must be there before the product, so it comes from the past: the largest of the last few sizes, with "
        "room for growth. A long history is safe after a spike and slow to see a fall, a short one the other way "
        "round; a margin of two costs one of E4M3's 16 powers of two. Sizes move slowly and operands differ by "
        "thousands, so each has its own. Everything that is not a product of a linear layer stays as it was: "
        "embedding, head, norms, softmax, the sums of gradients and the weights that the optimiser changes. The log "
        "costs nothing, because the scales need it anyway, and it shows a run that goes wrong before its loss does."
    ),
)
