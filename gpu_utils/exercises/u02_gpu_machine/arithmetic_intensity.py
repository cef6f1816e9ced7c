"""02.arithmetic_intensity: FLOP and bytes of each operator of GPT-2, in training, prefill and decoding."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.exercises.u02_gpu_machine.occupancy_nvidia import float_tolerance
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Table = dict[str, dict[str, float]]
Sizes = tuple[int, ...]
"""Shape of one tensor that an operator reads or writes."""

NORM, GELU, RESIDUAL = 8, 9, 1
"""FLOP for each value."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def _product(shape: Sizes) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _shapes(
    batch: int, tokens: int, context: int, d: int, n_head: int, vocab_size: int
) -> dict[str, tuple[int, list[Sizes]]]:
    """Operator -> (FLOP, shapes of every tensor that it reads or writes): input, weights, output."""
    n, head = batch * tokens, d // n_head

    def linear(wide: int, narrow: int, bias: bool = True) -> tuple[int, list[Sizes]]:
        return 2 * n * wide * narrow, [(n, wide), (narrow, wide), *([(narrow,)] if bias else []), (n, narrow)]

    queries, keys = (batch, n_head, tokens, head), (batch, n_head, context, head)
    scores_and_values = 2 * (2 * batch * n_head * tokens * context * head)
    return {
        "norm": (NORM * n * d, [(n, d), (d,), (d,), (n, d)]),
        "qkv": linear(d, 3 * d),
        "attention": (scores_and_values, [queries, keys, keys, queries]),
        "projection": linear(d, d),
        "MLP up": linear(d, 4 * d),
        "GELU": (GELU * n * 4 * d, [(n, 4 * d), (n, 4 * d)]),
        "MLP down": linear(4 * d, d),
        "residual": (RESIDUAL * n * d, [(n, d), (n, d), (n, d)]),
        "logits": linear(d, vocab_size, bias=False),
    }


def intensity_reference(
    batch: int, tokens: int, context: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
) -> Table:
    """FLOP, bytes and their quotient for each operator, tensor by tensor.

    >>> intensity_reference(1, 1, 1024, 768, 12, 50257, 2)["attention"]
    {'flops': 3145728, 'bytes': 3148800, 'intensity': 0.9990243902439024}
    """
    found = _shapes(batch, tokens, context, n_embd, n_head, vocab_size)
    return _table(
        {name: (flops, bytes_per_value * sum(map(_product, shapes))) for name, (flops, shapes) in found.items()}
    )


def _table(rows: dict[str, tuple[int, int]]) -> Table:
    return {name: {"flops": f, "bytes": b, "intensity": f / b} for name, (f, b) in rows.items()}


Row = Callable[[str, int, list[Sizes], dict[str, int]], tuple[int, int]]


def _with(row: Row) -> Callable[..., Table]:
    """An answer whose rows are `row(name, flops, shapes, sizes)` -> (FLOP, values moved), times the bytes of a "
    "value."""

    def answer(
        batch: int, tokens: int, context: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
    ) -> Table:
        sizes = {"batch": batch, "tokens": tokens, "context": context, "d": n_embd, "n_head": n_head}
        found = _shapes(batch, tokens, context, n_embd, n_head, vocab_size)
        rows = {name: row(name, flops, shapes, sizes) for name, (flops, shapes) in found.items()}
        return _table({name: (flops, bytes_per_value * values) for name, (flops, values) in rows.items()})

    return answer


_LINEAR = ("qkv", "projection", "MLP up", "MLP down", "logits")


def _values(shapes: list[Sizes]) -> int:
    return sum(map(_product, shapes))


def _multiply_add_as_one(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return (flops // 2 if name in (*_LINEAR, "attention") else flops), _values(shapes)


def _no_weights(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return flops, _values([shapes[0], shapes[-1]] if name in _LINEAR else shapes)


def _weights_for_each_token(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    again = (sizes["batch"] * sizes["tokens"] - 1) * _product(shapes[1]) if name in _LINEAR else 0
    return flops, _values(shapes) + again


def _one_cache_for_the_batch(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    if name == "attention":
        return flops, 2 * _product(shapes[0]) + 2 * sizes["context"] * sizes["d"]
    return flops, _values(shapes)


def _scores_written(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    scores = sizes["batch"] * sizes["n_head"] * sizes["tokens"] * sizes["context"]
    return flops, _values(shapes) + (2 * scores if name == "attention" else 0)


def _tokens_for_context(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    if name == "attention":
        return flops * sizes["tokens"] // sizes["context"], 4 * _product(shapes[0])
    return flops, _values(shapes)


def _half_of_attention(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return (flops // 2 if name == "attention" else flops), _values(shapes)


def _last_logits_only(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    if name == "logits":
        (n, d), (vocab_size, _), _ = shapes
        rows = sizes["batch"]
        return flops // n * rows, rows * d + vocab_size * d + rows * vocab_size
    return flops, _values(shapes)


def _outputs_free(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return flops, _values(shapes[:-1])


def _in_values(
    batch: int, tokens: int, context: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
) -> Table:
    return intensity_reference(batch, tokens, context, n_embd, n_head, vocab_size, 1)


def _bias_of_the_logits(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return flops, _values(shapes) + (shapes[-1][-1] if name == "logits" else 0)


def _additions_of_biases(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    biased = name in _LINEAR and name != "logits"
    return flops + (_product(shapes[-1]) if biased else 0), _values(shapes)


def _context_twice(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return (flops // sizes["tokens"] * sizes["context"] if name == "attention" else flops), _values(shapes)


def _narrow_gelu(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return (flops // 4, _values(shapes) // 4) if name == "GELU" else (flops, _values(shapes))


def _residual_in_place(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return flops, _values(shapes[:2] if name == "residual" else shapes)


def _biases_forgotten(name: str, flops: int, shapes: list[Sizes], sizes: dict[str, int]) -> tuple[int, int]:
    return flops, _values([shape for shape in shapes if len(shape) > 1])


def _fresh(rng: random.Random) -> Case:
    heads = rng.randint(2, 16)
    tokens = rng.choice([1, rng.randint(2, 500)])
    return Case(
        "a fresh model and phase",
        batch=rng.randint(2, 64),
        tokens=tokens,
        context=tokens + rng.randint(1, 3000),
        n_embd=64 * heads,
        n_head=heads,
        vocab_size=rng.randint(1000, 100_000),
        bytes_per_value=rng.choice([2, 4]),
    )


_GPT2: dict[str, Any] = {"n_embd": 768, "n_head": 12, "vocab_size": 50257}

_WRONG: tuple[tuple[str, Callable[..., Table], str], ...] = (
    (
        "multiply_add_as_one",
        _with(_multiply_add_as_one),
        "Half of the FLOP are missing in the matrix products: a multiply-add is two.",
    ),
    (
        "no_weights",
        _with(_no_weights),
        "The weights are missing from the bytes of the linear layers. In decoding they are nearly all of the traffic.",
    ),
    (
        "weights_for_each_token",
        _with(_weights_for_each_token),
        "The weights are counted once for each token. One run of the operator reads them once for all tokens of the "
        "batch; that is why a batch helps.",
    ),
    (
        "one_cache_for_the_batch",
        _with(_one_cache_for_the_batch),
        "The keys and values in attention's bytes are those of one sequence. Every sequence of the batch has its own.",
    ),
    (
        "scores_written",
        _with(_scores_written),
        "Attention's scores are written and read here. The question is for a fused attention, which keeps them on the "
        "chip: it reads q, k and v and writes its output.",
    ),
    (
        "tokens_for_context",
        _with(_tokens_for_context),
        "Attention looks at `tokens` keys here. Each new token attends to `context` keys and values, cached ones "
        "included.",
    ),
    (
        "half_of_attention",
        _with(_half_of_attention),
        "Attention has half of its FLOP. There are two products, q with k and the weights with v, and by convention "
        "they count over all `context` keys, also where a causal mask hides them.",
    ),
    (
        "last_logits_only",
        _with(_last_logits_only),
        "The logits are those of each sequence's last token. A server needs no others; training does, and the question "
        "is for all n rows.",
    ),
    (
        "outputs_free",
        _with(_outputs_free),
        "What the operators write is missing from the bytes. Writing a result moves as many bytes as reading it.",
    ),
    (
        "in_values",
        _in_values,
        "The bytes count values. Multiply by bytes_per_value: 2 for bf16, 4 for float32.",
    ),
    (
        "bias_of_the_logits",
        _with(_bias_of_the_logits),
        "Nearly: the logits have no bias in GPT-2.",
    ),
    (
        "additions_of_biases",
        _with(_additions_of_biases),
        "Nearly: adding the biases does not count as FLOP here, only the products do.",
    ),
    (
        "context_twice",
        _with(_context_twice),
        "Attention's FLOP are those of context * context pairs. Only the new `tokens` ask, and each looks at `context` "
        "keys.",
    ),
    (
        "narrow_gelu",
        _with(_narrow_gelu),
        "GELU works on d values a row here. It stands between the two layers of the MLP, where a row has 4 d.",
    ),
    (
        "residual_in_place",
        _with(_residual_in_place),
        "One of the three tensors of the residual addition is missing: two are read and one is written, also where the "
        "result replaces an input.",
    ),
    (
        "biases_forgotten",
        _with(_biases_forgotten),
        "Nearly: the vectors are missing from the bytes, the biases of linear layers, and weight and bias of the norm.",
    ),
)

EXERCISE = Exercise(
    id="02.arithmetic_intensity",
    title="Arithmetic intensity of GPT-2",
    parameters=("batch", "tokens", "context", "n_embd", "n_head", "vocab_size", "bytes_per_value"),
    kind="host",
    inputs=_inputs,
    reference=intensity_reference,
    tolerance=float_tolerance,
    cases=(
        Case("GPT-2 in training: 8 sequences", batch=8, tokens=1024, context=1024, **_GPT2, bytes_per_value=2),
        Case("prefill: one prompt", batch=1, tokens=512, context=512, **_GPT2, bytes_per_value=2),
        Case("decoding: one token", batch=1, tokens=1, context=1024, **_GPT2, bytes_per_value=2),
        Case(
            "decoding for 64: weights are shared, caches are not",
            batch=64,
            tokens=1,
            context=1024,
            **_GPT2,
            bytes_per_value=2,
        ),
        Case(
            "a second turn: new tokens on a filled cache", batch=2, tokens=100, context=900, **_GPT2, bytes_per_value=2
        ),
        Case("float32 moves twice the bytes", batch=8, tokens=1024, context=1024, **_GPT2, bytes_per_value=4),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Five of the nine operators are linear layers: write one function for (n_in, n_out) and use it five times. "
        "n = batch * tokens rows go through each of them.",
        "A linear layer: 2 * n * n_in * n_out FLOP; n * n_in values in, n_in * n_out of weights, n_out of bias, "
        "n * n_out out. Attention: two products of 2 * n * context * d FLOP.",
        "Attention moves q and the output, n * d values each, and keys and values, batch * context * d each. norm: "
        "2 * n * d + 2 * d values. GELU: 8 * n * d values, 9 FLOP for each of 4 * n * d. residual: 3 * n * d values.",
    ),
    explanation=(
        "A linear layer does 2 FLOP with each weight for each row, and reads the weight once: its intensity in bf16 is "
        "near the number of rows, until inputs and outputs weigh as much as the weights. So training sits right of the "
        "ridge, and decoding one token at 1 FLOP per byte far left of it. A batch lifts the linear layers; attention "
        "stays at 1, because every sequence brings its own cache."
    ),
)
