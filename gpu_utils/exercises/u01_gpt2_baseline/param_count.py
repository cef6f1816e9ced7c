"""01.param_count: how many parameters a GPT-2 of given sizes has."""

from __future__ import annotations

import math
import random

import torch

from gpu_utils.exercises.u01_gpt2_baseline.init import gpt2_shapes
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def param_count_reference(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    """The sizes of all tensors, added up one by one; the tied one once.

    >>> param_count_reference(50257, 1024, 768, 12)
    124439808
    """
    shapes = gpt2_shapes(vocab_size, n_positions, n_embd, n_layer)
    return sum(math.prod(shape) for name, shape in shapes.items() if name != "lm_head.weight")


def _untied(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    return param_count_reference(vocab_size, n_positions, n_embd, n_layer) + vocab_size * n_embd


def _without_biases(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    d = n_embd
    return vocab_size * d + n_positions * d + n_layer * (12 * d * d + 2 * d) + d


def _matrices_only(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    return vocab_size * n_embd + n_positions * n_embd + n_layer * 12 * n_embd**2


def _without_positions(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    return param_count_reference(vocab_size, 0, n_embd, n_layer)


def _without_final_norm(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    return param_count_reference(vocab_size, n_positions, n_embd, n_layer) - 2 * n_embd


def _no_attention_projection(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    return param_count_reference(vocab_size, n_positions, n_embd, n_layer) - n_layer * (n_embd**2 + n_embd)


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh model",
        vocab_size=rng.randint(100, 60_000),
        n_positions=rng.randint(16, 4096),
        n_embd=8 * rng.randint(2, 256),
        n_layer=rng.randint(1, 48),
    )


EXERCISE = Exercise(
    id="01.param_count",
    title="Parameters from the configuration",
    parameters=("vocab_size", "n_positions", "n_embd", "n_layer"),
    kind="host",
    inputs=_inputs,
    reference=param_count_reference,
    cases=(
        Case("GPT-2 124M", vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12),
        Case("GPT-2 XL", vocab_size=50257, n_positions=1024, n_embd=1600, n_layer=48),
        Case("the model of the lesson", vocab_size=1024, n_positions=128, n_embd=128, n_layer=4),
        Case("no layers: embeddings and the final norm remain", vocab_size=11, n_positions=5, n_embd=4, n_layer=0),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "counts_the_head_again",
            _untied,
            "Too many by vocab_size x n_embd: the output layer shares the token embedding and has no bias.",
        ),
        Misconception(
            "without_biases",
            _without_biases,
            "The biases are missing. In GPT-2 every linear layer of a block and every layer norm has one.",
        ),
        Misconception(
            "matrices_only",
            _matrices_only,
            "Only matrices are counted. Add the biases of the linear layers, and weight and bias of the layer norms.",
        ),
        Misconception(
            "without_positions",
            _without_positions,
            "Too few by n_positions x n_embd: positions are learned in GPT-2.",
        ),
        Misconception(
            "without_final_norm",
            _without_final_norm,
            "Too few by 2 n_embd: one more layer norm stands after the last block.",
        ),
        Misconception(
            "without_the_attention_projection",
            _no_attention_projection,
            "Each layer lacks n_embd² + n_embd: attention ends with a linear layer of its own.",
        ),
    ),
    hints=(
        "Count the two embeddings, then one layer, then what stands after the last layer. The output layer is tied.",
        "A layer has four linear layers (d to 3d, d to d, d to 4d, 4d to d), each with a bias, and two layer norms.",
        "A linear layer has n_in * n_out + n_out parameters, a layer norm 2d. A layer has 12 d² + 13 d in all.",
    ),
    explanation=(
        "One layer has 12 d² + 13 d parameters: 3d² + 3d for q, k and v, d² + d for the projection, 8 d² + 5 d for the "
        "MLP and 4d for two norms. With the embeddings (V + P) d and the last norm 2d, GPT-2 has 124,439,808. With an "
        "output layer of its own it would have 163,037,184."
    ),
)
