"""01.activation_memory: what a sequence keeps for backward, and the largest batch that fits beside the model."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception
from gpu_utils.model.costs import activation_bytes, param_count, saved_bytes
from gpu_utils.model.gpt2 import GPT2, GPT2Config

_DTYPES = {4: torch.float32, 2: torch.bfloat16}
_STATE = 16
"""Bytes a parameter: weight, gradient and two moments of AdamW in float32."""

_MEASURED = 2_000_000
"""Parameters of the largest model that is made and measured; a larger one is counted, by a rule exact for these."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def _config(seq_len: int, n_layer: int, n_embd: int, n_head: int, vocab_size: int, **_rest: Any) -> GPT2Config:
    return GPT2Config(vocab_size, seq_len, n_embd, n_layer, n_head)


def measured(shape: Inputs, batch: int) -> int:
    """Bytes that autograd keeps while the course's GPT-2 computes the loss of a batch."""
    with torch.random.fork_rng(devices=[]):  # a check leaves the learner's random numbers alone
        model = GPT2(_config(**shape), attention="sdpa" if shape["fused"] else "explicit")
        model = model.to(_DTYPES[shape["bytes_per_value"]])
    tokens = torch.zeros(batch, shape["seq_len"], dtype=torch.int64)
    return saved_bytes(model, lambda: model.loss(tokens, tokens.clone()))


def counted(shape: Inputs, batch: int) -> int:
    """The same by rule, to the byte."""
    T, L = shape["seq_len"], shape["n_layer"]
    by_rule = activation_bytes(
        _config(**shape), batch, T, bytes_per_value=shape["bytes_per_value"], scores=not shape["fused"]
    )
    of_norms = shape["bytes_per_value"] * 2 * (2 * L + 1)
    of_attention = 4 * L * shape["n_head"] if shape["fused"] else 0
    masks, ids, scalar = 0 if shape["fused"] else L * T**2, 2 * 8, 4
    return by_rule + batch * T * (of_norms + of_attention + ids) + masks + scalar


def _reference(**shape: Any) -> dict[str, Any]:
    config = _config(**shape)
    keeps = measured if param_count(config) <= _MEASURED else counted
    one, two = keeps(shape, 1), keeps(shape, 2)
    once = 2 * one - two  # the masks serve every sequence
    room = shape["capacity"] - _STATE * shape["parameters"] - once
    return {"per_sequence": float(one), "largest_batch": max(0, room // (two - one))}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    by_rule = _estimate()(**inputs)["per_sequence"]
    left_out = counted(inputs, 1) - by_rule
    return Tolerance(0.0, float(left_out), f"statistics of norms and attention, masks, token ids: {left_out} bytes")


def _estimate(
    per_token: float = 16,
    scores: float = 1,
    logits: float = 4,
    ends: int = 2,
    state: float = _STATE,
    fused_too: bool = False,
    all_float32: bool = False,
    narrow_loss: bool = False,
    negative: bool = False,
    up: bool = False,
) -> Any:
    """The estimate with its coefficients; the right ones are the defaults."""

    def answer(
        seq_len: int,
        n_layer: int,
        n_embd: int,
        n_head: int,
        vocab_size: int,
        bytes_per_value: int,
        fused: bool,
        parameters: int,
        capacity: int,
    ) -> dict[str, int]:
        T, d = seq_len, n_embd
        layer = per_token * T * d + scores * n_head * T * T * (fused_too or not fused)
        kept = (4 if all_float32 else bytes_per_value) * (n_layer * layer + ends * T * d)
        kept += (bytes_per_value if narrow_loss else logits) * T * vocab_size
        room = capacity - state * parameters
        batch = -(-room // kept) if up else room // kept
        return {"per_sequence": int(kept), "largest_batch": int(batch if negative else max(0, batch))}

    return answer


def _small(why: str, *, fits: float, fused: bool = False, bytes_per_value: int = 4, sizes: dict[str, int]) -> Case:
    """A case whose memory holds the model and `fits` sequences; a half keeps clear of what the rule leaves out."""
    config = _config(**sizes)
    one = activation_bytes(config, 1, sizes["seq_len"], bytes_per_value=bytes_per_value, scores=not fused)
    parameters = param_count(config)
    capacity = _STATE * parameters + int(fits * one)
    rest = {"bytes_per_value": bytes_per_value, "fused": fused, "parameters": parameters, "capacity": capacity}
    return Case(why, **sizes, **rest)


def _fresh(rng: random.Random) -> Case:
    heads = rng.randint(2, 4)
    return _small(
        "a fresh configuration",
        fits=rng.randint(2, 6) + 0.5,
        fused=rng.choice([False, True]),
        bytes_per_value=rng.choice([4, 2]),
        sizes={
            "seq_len": rng.randint(16, 48),
            "n_layer": rng.randint(1, 3),
            "n_embd": heads * rng.randint(8, 16),
            "n_head": heads,
            "vocab_size": rng.randint(150, 400),
        },
    )


_GPT2 = {"seq_len": 1024, "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "parameters": 124_439_808}

EXERCISE = Exercise(
    id="01.activation_memory",
    title="Activation memory: the largest batch that fits",
    parameters=(
        *("seq_len", "n_layer", "n_embd", "n_head", "vocab_size", "bytes_per_value", "fused"),
        *("parameters", "capacity"),
    ),
    kind="host",
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    cases=(
        _small(
            "short sequences: linear layers and GELU dominate",
            fits=3.5,
            sizes={"seq_len": 8, "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 97},
        ),
        _small(
            "many heads and long sequences: the scores dominate",
            fits=2.5,
            sizes={"seq_len": 64, "n_layer": 1, "n_embd": 16, "n_head": 8, "vocab_size": 65},
        ),
        _small(
            "a large vocabulary: the output dominates",
            fits=5.5,
            sizes={"seq_len": 12, "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 3001},
        ),
        _small(
            "bfloat16, with the loss in float32",
            fits=4.5,
            bytes_per_value=2,
            sizes={"seq_len": 24, "n_layer": 3, "n_embd": 48, "n_head": 4, "vocab_size": 301},
        ),
        _small(
            "fused attention: no probabilities",
            fits=4.5,
            fused=True,
            sizes={"seq_len": 48, "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 211},
        ),
        Example(
            "the example of the docstring",
            **{"seq_len": 4, "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 10, "bytes_per_value": 4},
            fused=False,
            parameters=100,
            capacity=9_300,
        ),
        Case("GPT-2 124M on 80 GB, bfloat16", **_GPT2, bytes_per_value=2, fused=False, capacity=80 * 10**9),
        Case("the same with fused attention", **_GPT2, bytes_per_value=2, fused=True, capacity=80 * 10**9),
        Case(
            "a device too small for the model by several sequences",
            **_GPT2,
            bytes_per_value=2,
            fused=True,
            capacity=10**8,
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "no_scores",
            _estimate(scores=0),
            "Too little, and the more so the longer the sequence: without a fused kernel each head keeps a T x T "
            "matrix for backward.",
        ),
        Misconception(
            "scores_although_fused",
            _estimate(fused_too=True),
            "Right without a fused kernel. A fused one keeps no probabilities: they never were in memory.",
        ),
        Misconception(
            "scores_twice",
            _estimate(scores=2),
            "The T x T matrix is counted twice. The backward of softmax needs its output only, and so does the "
            "product with v: the raw scores are not kept.",
        ),
        Misconception(
            "gelu_once",
            _estimate(per_token=12),
            "4d numbers a token are missing in each layer: GELU keeps its input, and the linear layer after it "
            "keeps GELU's output.",
        ),
        Misconception(
            "no_logits",
            _estimate(logits=0),
            "The output is missing: cross-entropy keeps V log-probabilities a token, in float32.",
        ),
        Misconception(
            "nothing_after_the_blocks",
            _estimate(ends=0),
            "What follows the blocks is missing: the last norm and the output layer keep their inputs, d numbers a "
            "token each.",
        ),
        Misconception(
            "one_input_after_the_blocks",
            _estimate(ends=1),
            "d numbers a token are missing after the blocks: the last norm keeps its input, and the output layer its "
            "own.",
        ),
        Misconception(
            "all_float32",
            _estimate(all_float32=True),
            "Right for 4 bytes a number, too much for 2: only the loss stays in float32.",
        ),
        Misconception(
            "loss_in_the_narrow_type",
            _estimate(narrow_loss=True),
            "Right for 4 bytes a number, too little for 2: the log-probabilities are float32, whatever the rest is.",
        ),
        Misconception(
            "weights_alone",
            _estimate(state=4),
            "per_sequence is right. Beside the activations stand the weights, their gradients and AdamW's two moments, "
            "each 4 bytes a parameter.",
        ),
        Misconception(
            "state_forgotten",
            _estimate(state=0),
            "per_sequence is right. The model has to fit too: what is left of the capacity is for activations.",
        ),
        Misconception(
            "negative_batch",
            _estimate(negative=True),
            "Where not even the model fits, the largest batch is 0.",
        ),
        Misconception(
            "rounds_up",
            _estimate(up=True),
            "largest_batch is one too large: the last sequence does not fit as a whole.",
        ),
    ),
    hints=(
        "An operation keeps what its backward needs: a linear layer its input, a softmax its output, a GELU its "
        "input, a norm its input. A tensor that two operations share is kept once.",
        "In units of T d, one layer keeps: the inputs of two norms and their outputs, q, k and v, the merged heads, "
        "and 4d twice around GELU. Without a fused kernel add n_head T² for the probabilities. What is left of the "
        "capacity beside the model is divided among sequences.",
        "per_sequence = bytes_per_value * (L (16 T d + n_head T²) + 2 T d) + 4 T V, 16 = 2 norms x 2 + 3 + 1 + 4 + 4, "
        "and no n_head T² when fused; largest_batch = (capacity - 16 parameters) // per_sequence, and at least 0.",
    ),
    explanation=(
        "The linear layers' inputs, q, k, v and both sides of GELU make 16 T d numbers a layer; the probabilities add "
        "n_head T²; the last norm and the output 2 T d; the log-probabilities 4 T V bytes. On 80 GB in bfloat16, GPT-2 "
        "fits 95 sequences of 1024 tokens with explicit attention and 152 with a fused kernel. For the small models "
        "the measurement asks autograd for every tensor it saves, so it is exact and the same on every machine; the "
        "large ones are counted with what the rule leaves out."
    ),
)
