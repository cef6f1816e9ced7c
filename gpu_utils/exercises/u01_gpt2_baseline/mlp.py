"""01.mlp: the feed-forward half of a block, with GELU in its tanh form."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u01_gpt2_baseline.tensors import (
    chain_tolerance,
    doubled,
    linear_weights,
    normal,
    require_gradients,
)
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, width = getattr(torch, case.get("dtype", "float32")), case["width"]
    w_fc, b_fc = linear_weights(generator, dtype, width, 4 * width)
    w_proj, b_proj = linear_weights(generator, dtype, 4 * width, width)
    # Twice the usual size: between 1 and 3 the tanh form differs most from the exact one.
    x = normal(generator, dtype, case["batch"], case["tokens"], width, std=case.get("std", 2.0))
    return {"x": x, "w_fc": w_fc, "b_fc": b_fc, "w_proj": w_proj, "b_proj": b_proj}


def _gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def mlp_reference(x: Tensor, w_fc: Tensor, b_fc: Tensor, w_proj: Tensor, b_proj: Tensor) -> Tensor:
    """The same function in float64, with the formula written out."""
    x, w_fc, b_fc, w_proj, b_proj = map(doubled, (x, w_fc, b_fc, w_proj, b_proj))
    return _gelu_tanh(x @ w_fc.T + b_fc) @ w_proj.T + b_proj


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # two linear layers, and a GELU that may be written out in four roundings
    size = case.get("std", 1.0)
    return chain_tolerance(inputs["x"].dtype, inputs["w_proj"].shape[1], stages=6, magnitude=size)


def _call(answer: Any, inputs: Inputs) -> Any:
    value = answer(**inputs)
    require_gradients(value, lambda leaves: answer(**leaves), inputs)
    return value


def _with(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def answer(x: Tensor, w_fc: Tensor, b_fc: Tensor, w_proj: Tensor, b_proj: Tensor) -> Tensor:
        return F.linear(activation(F.linear(x, w_fc, b_fc)), w_proj, b_proj)

    return answer


def _gelu_by_exponentials(x: Tensor) -> Tensor:
    e = torch.exp(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + (e - 1) / (e + 1))


def _with_a_residual(x: Tensor, w_fc: Tensor, b_fc: Tensor, w_proj: Tensor, b_proj: Tensor) -> Tensor:
    return x + _with(lambda h: F.gelu(h, approximate="tanh"))(x, w_fc, b_fc, w_proj, b_proj)


def _without_bias(x: Tensor, w_fc: Tensor, b_fc: Tensor, w_proj: Tensor, b_proj: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, w_fc), approximate="tanh"), w_proj)


def _activated_twice(x: Tensor, w_fc: Tensor, b_fc: Tensor, w_proj: Tensor, b_proj: Tensor) -> Tensor:
    hidden = F.gelu(F.linear(x, w_fc, b_fc), approximate="tanh")
    return F.gelu(F.linear(hidden, w_proj, b_proj), approximate="tanh")


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh case with odd sizes",
        batch=rng.randint(1, 4),
        tokens=rng.randint(2, 20),
        width=rng.randint(5, 40),
        dtype=rng.choice(["float32", "float32", "bfloat16"]),
    )


EXERCISE = Exercise(
    id="01.mlp",
    title="The feed-forward half: linear, tanh-GELU, linear",
    parameters=("x", "w_fc", "b_fc", "w_proj", "b_proj"),
    kind="torch",
    inputs=_inputs,
    reference=mlp_reference,
    tolerance=_tolerance,
    call=_call,
    cases=(
        Case("a single token, so large that GELU only opens or shuts", batch=1, tokens=1, width=8, std=100.0),
        Case("odd sizes on every axis", batch=3, tokens=5, width=7),
        Case("float32 over many values: tells the two forms of GELU apart", batch=2, tokens=31, width=24),
        Example(
            "the example of the docstring",
            x=lambda: torch.ones(1, 1, 1),
            w_fc=lambda: torch.ones(4, 1),
            b_fc=lambda: torch.zeros(4),
            w_proj=lambda: torch.ones(1, 4) / 4,
            b_proj=lambda: torch.zeros(1),
        ),
        Case("bfloat16, as on the device", batch=2, tokens=9, width=32, dtype="bfloat16"),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "exact_gelu",
            _with(F.gelu),
            "Close, but off in the fourth digit: this is the exact GELU, with the error function. GPT-2 was trained "
            "with the tanh approximation, and its weights expect that one.",
        ),
        Misconception(
            "sigmoid_gelu",
            _with(lambda x: x * torch.sigmoid(1.702 * x)),
            "This is the sigmoid approximation x * sigmoid(1.702 x). GPT-2 uses the one with tanh and a cubic term.",
        ),
        Misconception(
            "relu",
            _with(F.relu),
            "Negative inputs give exactly 0: this is ReLU. GELU lets small negative values through.",
        ),
        Misconception(
            "without_root_two_over_pi",
            _with(lambda x: 0.5 * x * (1 + torch.tanh(x + 0.044715 * x**3))),
            "The argument of tanh is too large by a constant factor. Which factor stands before (x + 0.044715 x³)?",
        ),
        Misconception(
            "tanh_by_exponentials",
            _with(_gelu_by_exponentials),
            "Where the argument of tanh is large its exponential is infinite, and infinity / infinity is NaN: use "
            "torch.tanh, or F.gelu.",
        ),
        Misconception(
            "root_before_x_alone",
            _with(lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * x + 0.044715 * x**3))),
            "The cubic term is too large: the root of 2/π multiplies the whole bracket (x + 0.044715 x³), not x alone.",
        ),
        Misconception(
            "with_a_residual",
            _with_a_residual,
            "The result is too large by x itself. The residual is added by the block, not by the MLP.",
        ),
        Misconception(
            "without_bias",
            _without_bias,
            "The biases are not added. Each linear layer is x wᵀ + b.",
        ),
        Misconception(
            "activated_twice",
            _activated_twice,
            "The result passes through GELU once more. The last linear layer ends the MLP: its output may be negative.",
        ),
    ),
    hints=(
        "Three steps: widen to 4d with the first linear layer, apply GELU to each number, come back to d.",
        "F.linear(x, w, b) computes x wᵀ + b. F.gelu has an argument that chooses the form.",
        'F.gelu(hidden, approximate="tanh") is the form of the statement; hidden is F.linear(x, w_fc, b_fc).',
    ),
    explanation=(
        "The two forms of GELU differ by less than 0.001, which is invisible in bfloat16 and plain in float32: this "
        "is why a port is compared in float32 first. The hidden (B, T, 4d) tensor is the widest of the block: it is "
        "kept twice for the backward pass, before and after GELU, which 01.activation_memory counts."
    ),
)
