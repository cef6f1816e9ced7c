"""01.param_count: a block that is modernised at the same size: grouped queries and SwiGLU, recounted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.exercises.u01_gpt2_baseline.init import gpt2_shapes
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def _linear(n_in: int, n_out: int, bias: bool = True) -> int:
    return n_in * n_out + n_out * bias


def attention_count(n_embd: int, n_head: int, n_kv_head: int, bias: bool = True) -> int:
    """Parameters of q, k, v and the projection, when n_kv_head heads have keys and values."""
    kv = n_kv_head * (n_embd // n_head)
    widths = [(n_embd, n_embd), (n_embd, kv), (n_embd, kv), (n_embd, n_embd)]
    return sum(_linear(n_in, n_out, bias) for n_in, n_out in widths)


def mlp_count(n_embd: int, hidden: int, gated: bool, bias: bool = True) -> int:
    """Parameters of the linear layers to `hidden` (two where gated) and back."""
    return (1 + gated) * _linear(n_embd, hidden, bias) + _linear(hidden, n_embd, bias)


def _answer(
    matrices: int = 3,
    shared: bool = True,
    bias: bool = True,
    rounded: Callable[[float], int] = math.floor,
    rule_of_thumb: bool = False,
    tied: bool = True,
    positions: bool = True,
    last_norm: bool = True,
    stays: bool = False,
    at_least_one: bool = False,
    bias_of_mlp: bool = True,
    bias_of_gate: bool = True,
    last_bias: str = "d",
) -> Any:
    """The count; the arguments make it wrong."""

    def answer(
        vocab_size: int,
        n_positions: int,
        n_embd: int,
        n_layer: int,
        n_head: int,
        n_kv_head: int,
        gated: bool,
        multiple: int,
    ) -> dict[str, int]:
        d = n_embd
        of_mlp = bias and bias_of_mlp

        def mlp_of(hidden: int, gated: bool) -> int:
            count = mlp_count(d, hidden, gated, of_mlp)
            count -= hidden * (gated and not bias_of_gate)
            return count if last_bias == "d" else count - d + hidden

        budget = attention_count(d, n_head, n_head, bias) + mlp_of(4 * d, False)
        spent = attention_count(d, n_head, n_kv_head if shared else n_head, bias)
        gates = gated and matrices == 3
        fixed = mlp_of(0, gates)
        room = (budget - spent - fixed) / (mlp_of(1, gates) - fixed)
        if rule_of_thumb:
            room = 8 * d / 3 if gated else 4 * d
        hidden = rounded(room / multiple) * multiple
        hidden = 4 * d if stays else max(hidden, multiple) if at_least_one else hidden
        block = spent + mlp_of(hidden, gates) + 2 * (d + d * bias)
        ends = vocab_size * d * (1 if tied else 2) + n_positions * d * positions + (d + d * bias) * last_norm
        return {"hidden": hidden, "parameters": ends + n_layer * block}

    return answer


def _reference(
    vocab_size: int,
    n_positions: int,
    n_embd: int,
    n_layer: int,
    n_head: int,
    n_kv_head: int,
    gated: bool,
    multiple: int,
) -> dict[str, int]:
    """Widths are tried one after another; what is counted is GPT-2, tensor by tensor, less what the change takes away.

    >>> _reference(50257, 1024, 768, 12, 12, 12, gated=False, multiple=256)
    {'hidden': 3072, 'parameters': 124439808}
    """

    def block(kv_heads: int, hidden: int, gated: bool) -> int:
        return attention_count(n_embd, n_head, kv_heads) + mlp_count(n_embd, hidden, gated)

    most = block(n_head, 4 * n_embd, False)
    hidden = 0
    while block(n_kv_head, hidden + multiple, gated) <= most:
        hidden += multiple
    gpt2 = gpt2_shapes(vocab_size, n_positions, n_embd, n_layer)
    count = sum(math.prod(shape) for name, shape in gpt2.items() if name != "lm_head.weight")
    return {"hidden": hidden, "parameters": count - n_layer * (most - block(n_kv_head, hidden, gated))}


def _fresh(rng: random.Random) -> Case:
    heads = rng.choice([6, 8, 12])
    return Case(
        "a fresh model",
        vocab_size=rng.randint(100, 60_000),
        n_positions=rng.randint(16, 4096),
        n_embd=heads * 8 * rng.randint(2, 16),
        n_layer=rng.randint(2, 48),
        n_head=heads,
        n_kv_head=rng.choice([1, 2]),
        gated=True,
        multiple=rng.choice([1, 3, 7, 16]),
    )


_GPT2 = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}

EXERCISE = Exercise(
    id="01.param_count",
    title="Parameters, and a modern block of the same size",
    parameters=("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_kv_head", "gated", "multiple"),
    kind="host",
    inputs=_inputs,
    reference=_reference,
    cases=(
        Case("GPT-2 124M as it is: 4d is the widest MLP", **_GPT2, n_kv_head=12, gated=False, multiple=64),
        Case("SwiGLU alone: three matrices share the room of two", **_GPT2, n_kv_head=12, gated=True, multiple=64),
        Case("grouped queries alone: what they save widens the MLP", **_GPT2, n_kv_head=4, gated=False, multiple=64),
        Case("both, to the last column", **_GPT2, n_kv_head=2, gated=True, multiple=1),
        Case(
            "GPT-2 XL with one pair of heads for all",
            **{"vocab_size": 50257, "n_positions": 1024, "n_embd": 1600, "n_layer": 48, "n_head": 25},
            n_kv_head=1,
            gated=True,
            multiple=128,
        ),
        Example(
            "the example of the docstring",
            **{"vocab_size": 11, "n_positions": 5, "n_embd": 4, "n_layer": 1, "n_head": 2},
            n_kv_head=1,
            gated=True,
            multiple=1,
        ),
        Case(
            "a multiple wider than the room: no MLP fits",
            **{"vocab_size": 11, "n_positions": 5, "n_embd": 4, "n_layer": 2, "n_head": 2},
            n_kv_head=1,
            gated=True,
            multiple=16,
        ),
        Case(
            "no layers: embeddings and the final norm remain",
            **{"vocab_size": 11, "n_positions": 5, "n_embd": 4, "n_layer": 0, "n_head": 2},
            n_kv_head=1,
            gated=True,
            multiple=1,
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "two_matrices_when_gated",
            _answer(matrices=2),
            "Right without a gate. SwiGLU has three matrices: gate and up from d to hidden, down from hidden to d.",
        ),
        Misconception(
            "keys_and_values_for_every_head",
            _answer(shared=False),
            "Right where every head has keys of its own. With fewer, the linear layers of k and v are narrower: "
            "n_kv_head heads of d / n_head channels each.",
        ),
        Misconception(
            "without_biases",
            _answer(bias=False),
            "The biases are missing: every linear layer of a block and every norm has one, and they count in the room "
            "for the MLP as well.",
        ),
        Misconception(
            "mlp_without_biases",
            _answer(bias_of_mlp=False),
            "The biases of the MLP are missing: a layer to hidden has hidden of them, the one that comes back has d. "
            "Those of GPT-2's MLP are part of the room.",
        ),
        Misconception(
            "one_bias_for_gate_and_up",
            _answer(bias_of_gate=False),
            "Right without a gate. Two linear layers go from d to hidden in SwiGLU, and each has hidden biases of its "
            "own.",
        ),
        Misconception(
            "last_bias_of_the_wrong_width",
            _answer(last_bias="hidden"),
            "The last layer of the MLP has one bias for each of its outputs: d of them, and not hidden.",
        ),
        Misconception(
            "rounds_to_the_nearest",
            _answer(rounded=round),
            "The width is rounded to the nearest multiple. The block may not become larger than GPT-2's: round down.",
        ),
        Misconception(
            "at_least_one_multiple",
            _answer(at_least_one=True),
            "Where not even one multiple fits, hidden is 0: the block may not become larger than GPT-2's.",
        ),
        Misconception(
            "fewer_and_never_equal",
            _answer(rounded=lambda multiples: math.ceil(multiples) - 1),
            "Right unless a width meets GPT-2's size exactly: a block of the same size is no larger, so it may stay.",
        ),
        Misconception(
            "eight_thirds",
            _answer(rule_of_thumb=True),
            "8d/3 is the rule of thumb for SwiGLU without biases and with a key for every head. What grouped queries "
            "save goes into the MLP here, and biases count: solve for the width.",
        ),
        Misconception(
            "keeps_four_d",
            _answer(stays=True),
            "hidden is still 4d. What the block saves or spends elsewhere must come out of the MLP.",
        ),
        Misconception(
            "counts_the_head_again",
            _answer(tied=False),
            "Too many by vocab_size x n_embd: the output layer shares the token embedding and has no bias.",
        ),
        Misconception(
            "without_positions",
            _answer(positions=False),
            "Too few by n_positions x n_embd: positions are learned in GPT-2.",
        ),
        Misconception(
            "without_final_norm",
            _answer(last_norm=False),
            "Too few by 2 n_embd: one more layer norm stands after the last block.",
        ),
    ),
    hints=(
        "Count GPT-2's own block first: that is the room. Then count the new block with hidden left open.",
        "A linear layer has n_in * n_out + n_out parameters, a norm 2d. Attention now: d to d, twice d to n_kv_head * "
        "d / n_head, d to d. The norms are the same before and after. The rest of the room is the MLP's.",
        "With m = 3 matrices when gated, else 2, the MLP has m d hidden + (m - 1) hidden + d parameters. Divide the "
        "room by what one column of hidden costs, round down to a multiple; then embeddings, n_layer blocks, the last "
        "norm.",
    ),
    explanation=(
        "GPT-2's block has 12 d² + 13 d parameters. SwiGLU has three matrices where the MLP had two, so at the same "
        "size hidden falls from 4d to about 8d/3; grouped queries take 2 (1 - n_kv_head / n_head) d² from attention, "
        "which widens it again. That is how Llama-like blocks come to their odd widths. Biases are a thousandth of it, "
        "and decide the last column. Without layers, hidden is still the answer to a question about one block."
    ),
)
