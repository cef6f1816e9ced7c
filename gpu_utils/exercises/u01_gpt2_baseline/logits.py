"""01.logits: from tokens to the logits that are asked for, the parts of the unit assembled."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u01_gpt2_baseline.block import block_reference
from gpu_utils.exercises.u01_gpt2_baseline.init import gpt2_shapes
from gpu_utils.exercises.u01_gpt2_baseline.tensors import chain_tolerance, doubled, normal, require_gradients
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception
from gpu_utils.model import gpt2

Weights = dict[str, Tensor]
POSITIONS = 24
EXTRA = "FLOPs beyond those that are needed"


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, d = getattr(torch, case.get("dtype", "float32")), case["heads"] * case["head_dim"]
    weights: Weights = {}
    for name, shape in gpt2_shapes(case["vocab"], POSITIONS, d, case["layers"]).items():
        if name == "lm_head.weight":
            continue
        std = 0.3 if len(shape) == 1 else case.get("std", 1.0) if name.startswith("w") else shape[-1] ** -0.5
        weights[name] = normal(generator, dtype, *shape, std=std) + float("ln_" in name and name.endswith("weight"))
    weights["lm_head.weight"] = weights["wte.weight"]
    tokens = torch.randint(case["vocab"], (case["batch"], case["tokens"]), generator=generator)
    sizes = {"n_layer": case["layers"], "n_head": case["heads"]}
    at, asked = None, case.get("asked", 0)
    if asked:  # no row starts as the one above it does
        first = torch.arange(case["batch"])[:, None]
        further = torch.randint(case["tokens"], (case["batch"], asked - 1), generator=generator)
        at = torch.cat([first % case["tokens"], further], dim=1).flip(1)
    return {"tokens": tokens, "weights": weights, **sizes, "start": case.get("start", 0), "at": at}


def _weights_of_the_example() -> Weights:
    embedding = torch.tensor([[1.0, 2.0]])
    weights = {"wte.weight": embedding, "wpe.weight": torch.tensor([[0.0, 1.0]]), "lm_head.weight": embedding}
    return weights | {"ln_f.weight": torch.ones(2), "ln_f.bias": torch.zeros(2)}


def _norm(x: Tensor, weights: Weights) -> Tensor:
    return gpt2.layer_norm(x, weights["ln_f.weight"], weights["ln_f.bias"])


def _of_block(weights: Weights, layer: int) -> Weights:
    prefix = f"h.{layer}."
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}


def _reference(**inputs: Any) -> dict[str, Any]:
    return {"logits": logits_reference(**inputs), EXTRA: 0}


def logits_reference(
    tokens: Tensor, weights: Weights, n_layer: int, n_head: int, start: int, at: Tensor | None
) -> Tensor:
    """The same function in float64."""
    w = doubled(weights)
    x = w["wte.weight"][tokens] + w["wpe.weight"][start : start + tokens.shape[1]]
    for layer in range(n_layer):
        x = block_reference(x, _of_block(w, layer), n_head)
    every = _norm(x, w) @ w["wte.weight"].T
    return every if at is None else torch.stack([one[places] for one, places in zip(every, at, strict=True)])


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # sixteen operations a block, as in 01.block; the norm and the output
    embedding = inputs["weights"]["wte.weight"]
    return chain_tolerance(embedding.dtype, 4 * embedding.shape[1], stages=16 * inputs["n_layer"] + 3)


_attention, _mlp, _layer_norm = gpt2.attention, gpt2.mlp, gpt2.layer_norm
"""By name, because a call goes with what it names to where a class is graded, and there is no GPT-2 of ours there."""


def course_block(x: Tensor, params: Weights, n_head: int) -> Tensor:
    """The block of the library, as `logits` gets it from the check: x (B, T, d) -> (B, T, d)."""

    def pair(name: str) -> tuple[Tensor, Tensor]:
        return params[f"{name}.weight"], params[f"{name}.bias"]

    x = x + _attention(_layer_norm(x, *pair("ln_1")), *pair("attn.c_attn"), *pair("attn.c_proj"), n_head)
    return x + _mlp(_layer_norm(x, *pair("ln_2")), *pair("mlp.c_fc"), *pair("mlp.c_proj"))


def _call(answer: Any, inputs: Inputs) -> dict[str, Any]:
    rest = {name: given for name, given in inputs.items() if name != "weights"}
    rest["block"] = course_block if inputs["n_layer"] else None
    value = answer(weights=inputs["weights"], **rest)
    once = {name: w for name, w in inputs["weights"].items() if name != "lm_head.weight"}

    def tied(leaves: Weights) -> Any:
        return answer(weights={**leaves, "lm_head.weight": leaves["wte.weight"]}, **rest)

    if inputs["at"] is None:
        require_gradients({"logits": value}, tied, once)
    return {"logits": value, EXTRA: _extra(answer, inputs)}


def _extra(answer: Any, inputs: Inputs) -> int:
    """FLOPs of the answer, without those inside its blocks, beyond the output at the asked positions."""
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils.flop_counter import FlopCounterMode

    embedding, at = inputs["weights"]["wte.weight"], inputs["at"]
    if at is None or embedding.device.type == "meta":  # the imaginary device of a check is a mode itself
        return 0

    def block(x: Tensor, params: Weights, n_head: int) -> Tensor:
        with _disable_current_modes():
            return course_block(x, params, n_head)

    with FlopCounterMode(display=False) as counter:
        answer(**{**inputs, "block": block})
    return max(0, counter.get_total_flops() - 2 * at.numel() * embedding.numel())


def _taken(x: Tensor, at: Tensor | None, how: str, start: int) -> Tensor:
    """The asked positions of x (B, T, d), rightly or in one of the wrong ways."""
    if at is None:
        return x
    rows = torch.arange(len(x), device=x.device)[:, None]
    if how == "for all alike":
        return x[:, at[0]]
    if how == "all rows for all":
        return x[:, at]
    if how == "the last":
        return x[:, -1:].expand(-1, at.shape[1], -1)
    return x[rows, (at - start) % x.shape[1] if how == "from zero" else at]


def _variant(
    positions: str = "start",
    order: str = "number",
    norm: bool = True,
    scale: bool = False,
    take: str = "rightly",
    when: str = "before the norm",
    finish: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> Any:
    """The right assembly; the arguments change one thing of it."""

    def answer(
        tokens: Tensor,
        weights: Weights,
        n_layer: int,
        n_head: int,
        start: int,
        at: Tensor | None,
        block: Callable[..., Tensor],
    ) -> Tensor:
        T, embedding = tokens.shape[1], weights["wte.weight"]
        x = embedding[tokens] * (embedding.shape[1] ** 0.5 if scale else 1)
        first = start if positions == "start" else 0
        if positions == "start" or positions == "zero":
            x = x + weights["wpe.weight"][first : first + T]
        numbers: list[Any] = list(range(n_layer))
        numbers = {"number": numbers, "text": sorted(map(str, numbers)), "reversed": numbers[::-1]}.get(order, [0])
        if when == "before the blocks":
            x = _taken(x, at, take, start)
        for number in numbers * n_layer if order == "same" else numbers:
            x = block(x, _of_block(weights, number), n_head)
        if when == "before the norm":
            x = _taken(x, at, take, start)
        logits = F.linear(_norm(x, weights) if norm else x, embedding)
        return finish(_taken(logits, at, take, start) if when == "after the product" else logits)

    return answer


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh model",
        layers=rng.randint(2, 4),
        heads=rng.randint(1, 3),
        head_dim=rng.randint(3, 8),
        vocab=rng.randint(20, 60),
        batch=rng.randint(1, 3),
        tokens=rng.randint(2, 9),
        start=rng.randint(1, POSITIONS - 9),
        asked=rng.randint(0, 3),
    )


def _shape(tokens: Tensor, weights: Weights, at: Tensor | None) -> tuple[int, ...]:
    return (*(tokens if at is None else at).shape, len(weights["wte.weight"]))


def _filled(value: float) -> Any:
    def answer(tokens: Tensor, weights: Weights, at: Tensor | None, **_given: Any) -> Tensor:
        dtype = weights["wte.weight"].dtype
        return torch.full(_shape(tokens, weights, at), value, dtype=dtype, device=tokens.device)

    return answer


EXERCISE = Exercise(
    id="01.logits",
    title="From tokens to the logits that are asked for",
    parameters=("tokens", "weights", "n_layer", "n_head", "start", "at", "block"),
    kind="torch",
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: inputs["weights"]["wte.weight"].dtype,
    call=_call,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "input": lambda tokens, weights, **_given: weights["wte.weight"][tokens],
    },
    cases=(
        Case(
            "no block at all, and embeddings so small that the norm's eps counts",
            **{"layers": 0, "heads": 1, "head_dim": 6, "vocab": 17, "batch": 1, "tokens": 3, "std": 0.01},
        ),
        Case("two blocks, a batch of two", layers=2, heads=2, head_dim=5, vocab=31, batch=2, tokens=7),
        Case(
            "one token at position 9, as when text is generated",
            **{"layers": 2, "heads": 3, "head_dim": 4, "vocab": 23, "batch": 2, "tokens": 1, "start": 9},
        ),
        Case(
            "three prompts of different lengths: the logits at the end of each",
            **{"layers": 2, "heads": 2, "head_dim": 4, "vocab": 37, "batch": 3, "tokens": 6, "asked": 1},
        ),
        Case(
            "two positions of each of two sequences, whose tokens begin at position 5",
            **{"layers": 1, "heads": 2, "head_dim": 4, "vocab": 21, "batch": 2, "tokens": 5, "start": 5, "asked": 2},
        ),
        Case(
            "twelve blocks: 10 comes after 9; four tokens from position 5 on",
            **{"layers": 12, "heads": 1, "head_dim": 4, "vocab": 19, "batch": 1, "tokens": 4, "start": 5},
        ),
        Example(
            "the example of the docstring",
            tokens=lambda: torch.tensor([[0]]),
            weights=_weights_of_the_example,
            n_layer=0,
            n_head=1,
            start=0,
            at=None,
        ),
        Case(
            "bfloat16, as on the device",
            **{"layers": 1, "heads": 2, "head_dim": 8, "vocab": 29, "batch": 2, "tokens": 11, "dtype": "bfloat16"},
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "no_final_norm",
            _variant(norm=False),
            "The stream goes into the output as it is. One more norm, ln_f, stands after the last block.",
        ),
        Misconception(
            "no_positions",
            _variant(positions="none"),
            "The positions are missing: wpe.weight has a row for each, added to that of the token.",
        ),
        Misconception(
            "positions_from_zero",
            _variant(positions="zero"),
            "Right as long as start is 0. The first of these tokens stands at position start, the next at start + 1.",
        ),
        Misconception(
            "blocks_in_the_order_of_text",
            _variant(order="text"),
            "The blocks run in the order of their names as text, where h.10 comes before h.2. Count from 0 to n_layer "
            "- 1.",
        ),
        Misconception(
            "blocks_from_the_top",
            _variant(order="reversed"),
            "The blocks run from the last to the first.",
        ),
        Misconception(
            "the_same_block_again",
            _variant(order="same"),
            "Every layer uses the weights of h.0. Layer n has those whose names begin with h.n and a dot.",
        ),
        Misconception(
            "scaled_embedding",
            _variant(scale=True),
            "The embedding is multiplied by the root of d, as in the Transformer of 2017. GPT-2 adds it as it is.",
        ),
        Misconception(
            "probabilities",
            _variant(finish=lambda logits: logits.softmax(-1)),
            "These are probabilities. Logits are asked: the loss and the sampling do the softmax.",
        ),
        Misconception(
            "always_the_last_position",
            _variant(take="the last"),
            "These are the logits of the last position in every row. Each row of at says which are asked of its own "
            "sequence.",
        ),
        Misconception(
            "the_same_positions_of_every_sequence",
            _variant(take="for all alike"),
            "The first row of at is used for every sequence. Each sequence has a row of its own.",
        ),
        Misconception(
            "every_row_of_at_for_every_sequence",
            _variant(take="all rows for all"),
            "An axis too many: x[:, at] takes all rows of at from every sequence. Pair each sequence with its own row: "
            "an index for the first axis too, of shape (B, 1).",
        ),
        Misconception(
            "positions_counted_from_start",
            _variant(take="from zero"),
            "Right as long as start is 0: at counts in tokens, from 0. Only the position embedding knows of start.",
        ),
        Misconception(
            "taken_before_the_blocks",
            _variant(when="before the blocks"),
            "What is not asked for was dropped before the blocks. Attention still needs the keys and values of every "
            "token.",
        ),
        Misconception(
            "every_logit_and_then_taken",
            _variant(when="after the product"),
            "The numbers are right, and most of the largest product was for nothing: d times V for each position. Take "
            "the positions that are asked for before it.",
        ),
    ),
    hints=(
        "Five steps: look up, add positions, run the blocks, norm, multiply with the embedding. Which of them mix "
        "tokens, and which work on each position by itself?",
        'Indexing looks up: weights["wte.weight"][tokens] is (B, T, d). The tensors of block n are those whose names '
        'start with f"h.{n}.", and block wants them without that prefix.',
        "x = wte[tokens] + wpe[start : start + T]; for n in range(n_layer): x = block(x, {name without prefix: "
        "tensor}, n_head); where at is given, x = x[torch.arange(B)[:, None], at]; then ln_f and F.linear(x, wte).",
    ),
    explanation=(
        "The model is a stream of d numbers a token: written by the two embeddings, added to by 2L branches, normed "
        "once and read by the embedding again. start shifts the positions, which is all that a cache asks of this "
        "function: one new token at position 9 is looked up, placed at 9 and passed through the same blocks. "
        "These need every token; the last norm and the output work on each position alone, so they can wait for at."
    ),
)
