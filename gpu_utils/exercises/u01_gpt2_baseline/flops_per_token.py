"""01.flops_per_token: the FLOPs of training on one token, the share of the peak that they use, and which part leads."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def flops_reference(n_layer: int, n_embd: int, vocab_size: int, seq_len: int) -> int:
    """FLOPs of the matrix products of one token, product by product: forward, and twice that for backward.

    >>> flops_reference(12, 768, 50257, 1024)
    854438400
    """
    d = n_embd
    linear_layers = [(d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)]
    layer = sum(2 * n_in * n_out for n_in, n_out in linear_layers)
    scores = values = 2 * seq_len * d
    forward = n_layer * (layer + scores + values) + 2 * d * vocab_size
    return 3 * forward


def crossover_reference(n_layer: int, n_embd: int, vocab_size: int) -> int:
    """The shortest sequence of which attention's own products are more than half of the FLOPs; found by trying.

    >>> crossover_reference(12, 768, 50257)
    6703
    """
    weights = flops_reference(n_layer, n_embd, vocab_size, 0)
    low, high = 0, 1
    while 2 * weights >= flops_reference(n_layer, n_embd, vocab_size, high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if flops_reference(n_layer, n_embd, vocab_size, middle) > 2 * weights:
            high = middle
        else:
            low = middle
    return high


def _answer(
    flops: Callable[[int, int, int, int], int] = flops_reference,
    crossover: Callable[[int, int, int], int] = crossover_reference,
    scale: float = 1.0,
) -> Callable[..., dict[str, Any]]:
    """An answer with these counts: flops(n_layer, n_embd, vocab_size, seq_len), crossover(first three of them)."""

    def answer(
        n_layer: int, n_embd: int, vocab_size: int, seq_len: int, tokens_per_second: float, peak_flops: float
    ) -> dict[str, Any]:
        count = flops(n_layer, n_embd, vocab_size, seq_len)
        return {
            "flops": count,
            "mfu": scale * count * tokens_per_second / peak_flops,
            "attention_from": crossover(n_layer, n_embd, vocab_size),
        }

    return answer


def _per_sequence(
    n_layer: int, n_embd: int, vocab_size: int, seq_len: int, tokens_per_second: float, peak_flops: float
) -> dict[str, Any]:
    return _answer(lambda L, d, V, T: T * flops_reference(L, d, V, T))(
        n_layer, n_embd, vocab_size, seq_len, tokens_per_second, peak_flops
    )


def _half_the_attention(n_layer: int, n_embd: int, vocab_size: int, seq_len: int) -> int:
    return flops_reference(n_layer, n_embd, vocab_size, 0) + 6 * n_layer * n_embd * seq_len


def _crossing_of_half_the_attention(n_layer: int, n_embd: int, vocab_size: int) -> int:
    return flops_reference(n_layer, n_embd, vocab_size, 0) // (6 * n_layer * n_embd) + 1


def _crossing_where_equal(n_layer: int, n_embd: int, vocab_size: int) -> int:
    return -(-flops_reference(n_layer, n_embd, vocab_size, 0) // (12 * n_layer * n_embd))


def _all_parameters(n_layer: int, n_embd: int, vocab_size: int, seq_len: int) -> int:
    other = seq_len * n_embd + n_layer * 13 * n_embd + 2 * n_embd
    return flops_reference(n_layer, n_embd, vocab_size, seq_len) + 6 * other


def _from_the_blocks_alone(n_layer: int, n_embd: int, vocab_size: int) -> int:
    return 6 * n_embd + 1


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float64, magnitude=0.0, roundings=4)


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh model and device",
        n_layer=rng.randint(1, 48),
        n_embd=8 * rng.randint(4, 256),
        vocab_size=rng.randint(500, 100_000),
        seq_len=rng.randint(2, 4096),
        tokens_per_second=rng.uniform(1e3, 1e6),
        peak_flops=rng.uniform(1e13, 2e15),
    )


_GPT2 = {"n_layer": 12, "n_embd": 768, "vocab_size": 50257, "seq_len": 1024}

EXERCISE = Exercise(
    id="01.flops_per_token",
    title="FLOPs per token, MFU, and where attention takes over",
    parameters=("n_layer", "n_embd", "vocab_size", "seq_len", "tokens_per_second", "peak_flops"),
    kind="host",
    inputs=_inputs,
    reference=_answer(),
    tolerance=_tolerance,
    cases=(
        Case("GPT-2 124M with round numbers", **_GPT2, tokens_per_second=100_000.0, peak_flops=1e15),
        Example(
            "the example of the docstring: one layer, no vocabulary to speak of",
            n_layer=1,
            n_embd=4,
            vocab_size=1,
            seq_len=3,
            tokens_per_second=1.0,
            peak_flops=2640.0,
        ),
        Case(
            "sequences so long that attention outweighs the weights",
            **{**_GPT2, "seq_len": 32_768},
            tokens_per_second=20_000.0,
            peak_flops=1e15,
        ),
        Case(
            "a crossing that falls on a whole number: equal is not more",
            **{"n_layer": 1, "n_embd": 4, "vocab_size": 8, "seq_len": 28},
            tokens_per_second=10.0,
            peak_flops=1e6,
        ),
        Case(
            "a small model with a large vocabulary: the output layer leads; the crossing is just below a length",
            **{"n_layer": 5, "n_embd": 64, "vocab_size": 50257, "seq_len": 128},
            tokens_per_second=5_000.0,
            peak_flops=1e12,
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "forward_only",
            _answer(lambda L, d, V, T: flops_reference(L, d, V, T) // 3),
            "This is the forward pass alone. For each product, backward computes a gradient of both of its operands.",
        ),
        Misconception(
            "multiply_add_as_one",
            _answer(lambda L, d, V, T: flops_reference(L, d, V, T) // 2),
            "Too few by a factor of two: a multiply-add is two FLOPs.",
        ),
        Misconception(
            "no_attention_term",
            _answer(lambda L, d, V, T: flops_reference(L, d, V, 0)),
            "Only products with weights are counted. The scores q kᵀ and their product with v are matrix products "
            "too, and they grow with the sequence.",
        ),
        Misconception(
            "half_the_attention",
            _answer(_half_the_attention),
            "Half of attention is missing. Is one of its two products not counted, or the masked half left out? By "
            "convention the full T x T square counts, twice: scores, and their product with v.",
        ),
        Misconception(
            "half_the_attention_in_the_crossing_too",
            _answer(_half_the_attention, _crossing_of_half_the_attention),
            "Half of attention is missing, in the FLOPs and in the crossing. The full T x T square counts, twice: "
            "scores, and their product with v.",
        ),
        Misconception(
            "all_parameters",
            _answer(_all_parameters),
            "6 times every parameter counts positions, biases and norms, which are in no matrix product.",
        ),
        Misconception(
            "no_output_layer",
            _answer(lambda L, d, V, T: flops_reference(L, d, 0, T)),
            "The output layer is missing. Looking up the embedding is free; multiplying by it at the end is not.",
        ),
        Misconception(
            "no_output_layer_in_the_crossing_either",
            _answer(lambda L, d, V, T: flops_reference(L, d, 0, T), _from_the_blocks_alone),
            "The output layer is missing, in the FLOPs and in the crossing: it is a product with weights, d times V.",
        ),
        Misconception(
            "per_sequence",
            _per_sequence,
            "Too large by the length of the sequence: the question is for one token.",
        ),
        Misconception(
            "percent",
            _answer(scale=100.0),
            "The FLOPs are right. MFU is asked as a fraction of the peak, between 0 and 1, not in percent.",
        ),
        Misconception(
            "crossover_of_the_blocks_alone",
            _answer(crossover=_from_the_blocks_alone),
            "FLOPs and MFU are right. attention_from forgets the output layer, which is a product with weights too: "
            "for a small model with a large vocabulary it moves the crossing far.",
        ),
        Misconception(
            "crossover_one_early",
            _answer(crossover=lambda L, d, V: crossover_reference(L, d, V) - 1),
            "attention_from is one too small: there attention is equal or still below. More than all products with "
            "weights is asked.",
        ),
        Misconception(
            "crossover_where_equal",
            _answer(crossover=_crossing_where_equal),
            "attention_from is one too small where the division has no remainder: there the two are equal, and more is "
            "asked.",
        ),
    ),
    hints=(
        "Count matrix products only. Multiplying a vector by an (m, n) matrix takes 2 m n FLOPs.",
        "Forward for one token: 2 FLOPs for each weight of the linear layers and of the output layer, and 2 T d "
        "twice in each layer for scores and values. Backward is twice forward. For the crossing, write both parts as "
        "functions of T and ask where the second is larger.",
        "flops = 6 (12 L d² + V d) + 12 L d T, and mfu = flops * tokens_per_second / peak_flops. Attention leads where "
        "2 L d T > 12 L d² + V d: whole division, plus one.",
    ),
    explanation=(
        "A linear layer's backward has two products of the size of its forward: one for the gradient of the input, "
        "one for the gradient of the weight. So 2N forward becomes 6N, and attention's 4 L d T becomes 12 L d T. "
        "For GPT-2 at 1024 tokens attention is 13% of 854 MFLOP, and it leads from 6,703 tokens on. MFU uses this "
        "count whatever the kernel really executes, so that recomputation or skipping the masked half does not move "
        "the yardstick."
    ),
)
