"""08.train: a GPT-2 trained in FP8, with scales from a history of largest sizes and a log of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u08_fp8 import train_judge as right
from gpu_utils.exercises.u08_fp8 import train_slips as slips
from gpu_utils.exercises.u08_fp8.train_model import LAYERS, Passes, build, chains, first_weights, noting, pairs
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.model.device import one_thread

HELD_OUT = 4
"""Batches for the loss that is compared, which the answer does not get."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    shape = {name: case[name] for name in ("vocab", "length", "width", "layers", "batch")}
    weights = first_weights(shape, generator)
    tokens, held = chains(shape, case["steps"] + HELD_OUT, generator).split((case["steps"], HELD_OUT))
    given = {"shape": shape, "weights": weights, "tokens": tokens, "held": held, "rate": case["rate"]}
    return {**given, "yardstick": right.in_bfloat16(**given)}


def _call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    """What the answer returned, the weights that it trained, and what its products had in each pass."""
    model = build(inputs["shape"], inputs["weights"])
    parameters = dict(model.named_parameters())  # their names stay, whatever stands in a layer's place
    passes: Passes = {}
    given = {"batches": pairs(inputs["tokens"]), "rate": inputs["rate"], "linear": noting(model, passes)}
    with one_thread():
        found = answer(model=model, **given)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise TypeError(f"train returned a {type(found).__name__}; expected a pair: (losses, log)")
    losses, log = found
    if not isinstance(log, dict) or not all(isinstance(of_layer, dict) for of_layer in log.values()):
        raise TypeError("the log is not a dict of dicts; expected log[layer][operand], a list of sizes")
    return {
        "losses": [float(loss) for loss in losses],
        "log": {str(name): {str(k): [float(v) for v in sizes] for k, sizes in of.items()} for name, of in log.items()},
        "passes": passes,
        "trained": {name: parameter.detach().float() for name, parameter in parameters.items()},
    }


def train_reference(yardstick: float, **given: Any) -> float:
    """What the trained model is measured by."""
    return yardstick


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
    judge=right.judge,
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
            "first_scale_of_two",
            slips.answer(looks=False, first=2.0),
            "The first scale of all operands is a number like 1 or 2. At the first step the gradients, thousands of "
            "times smaller, became 0, and AdamW remembers such a step for long. Look at sizes first, in a pass without "
            "a step.",
        ),
        Misconception(
            "first_scale_of_a_thousandth",
            slips.answer(looks=False),
            "One first scale for all operands: where it holds the gradients, x is cut off. Of x and w you have the "
            "matrix before the product, so their first scale can be made from it; or look at all in a pass without a "
            "step.",
        ),
        Misconception(
            "looks_with_a_small_scale",
            slips.answer(first=1e-4),
            "The pass that looks cuts x off, so the layers behind see smaller sizes than they get at the first step. "
            "Look with what x and w themselves ask for, or a second time.",
        ),
        Misconception(
            "room_upside_down",
            slips.answer(scale_of=slips.half_the_room),
            "The scales hold less than the largest size, so that in each step its neighbours are cut off, too. Room "
            "for growth makes a scale larger: room * amax / 448.",
        ),
        Misconception(
            "looking_is_not_cleared",
            slips.answer(forgets=False),
            "The gradients of the pass that only looks were not cleared, and went into the first step: "
            "optimizer.zero_grad() after it.",
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
            slips.answer(first=0.0),
            "At the first step there is no history, and the scale is 0. Decide what it is then; of x and w you have "
            "the matrix itself before you; a pass that only looks needs no more than some number above 0.",
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
            "no_look_in_the_log",
            slips.answer(logs=slips.without_the_look),
            "The pass that only looks is not in the log. It is to hold every pass: what was seen first is part of the "
            "history from which the first scales come.",
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
        "scale(history[operand]) for operand in history}, seen) + layer.bias. Then AdamW, one pass that only looks "
        "(loss, backward, zero_grad), and the usual loop.",
    ),
    explanation=(
        "A scale must be there before the product, so it comes from the past: the largest of the last few sizes, with "
        "room for growth. A long history is safe after a spike and slow to see a fall, a short one the other way "
        "round; a margin of two costs one of E4M3's 18 powers of two. Sizes move slowly and operands differ by "
        "thousands, so each has its own. Everything that is not a product of a linear layer stays as it was: "
        "embedding, head, norms, softmax, the sums of gradients and the weights that the optimiser changes. The log "
        "costs nothing, because the scales need it anyway, and it shows a run that goes wrong before its loss does."
    ),
)
