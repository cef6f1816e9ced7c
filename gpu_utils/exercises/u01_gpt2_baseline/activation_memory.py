"""01.activation_memory: the bytes that forward keeps for backward, estimated; the check measures them."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.model.costs import saved_bytes
from gpu_utils.model.gpt2 import GPT2, GPT2Config

_DTYPES = {4: torch.float32, 2: torch.bfloat16}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def _measured(
    batch: int, seq_len: int, n_layer: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
) -> float:
    """Bytes that autograd keeps while the course's GPT-2, with attention written out, computes its loss."""
    config = GPT2Config(vocab_size, seq_len, n_embd, n_layer, n_head)
    with torch.random.fork_rng(devices=[]):  # a check leaves the learner's random numbers alone
        model = GPT2(config, attention="explicit").to(_DTYPES[bytes_per_value])
    tokens = torch.zeros(batch, seq_len, dtype=torch.int64)
    return float(saved_bytes(model, lambda: model.loss(tokens, tokens)))


def _left_out(batch: int, seq_len: int, n_layer: int) -> int:
    """Bytes of what the estimate leaves out: two numbers a token for each norm, one mask a layer, ids and a "
    "scalar."""
    tokens = batch * seq_len
    return (2 * n_layer + 1) * 2 * tokens * 4 + n_layer * seq_len**2 + 2 * tokens * 8 + 8


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    left_out = _left_out(inputs["batch"], inputs["seq_len"], inputs["n_layer"])
    return Tolerance(0.0, float(left_out), f"norm statistics, masks and token ids: {left_out} bytes")


def _estimate(
    per_token: float = 16, scores: float = 1, logits: bool = True, parameters: bool = False, batched: bool = True
) -> Any:
    """The estimate with its coefficients; the right ones are the defaults."""

    def answer(
        batch: int, seq_len: int, n_layer: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
    ) -> int:
        tokens = batch * seq_len
        layer = per_token * tokens * n_embd + scores * (tokens if batched else seq_len) * n_head * seq_len
        total = bytes_per_value * (n_layer * layer + 2 * tokens * n_embd)
        total += 4 * tokens * vocab_size * logits
        return int(total + bytes_per_value * 12 * n_layer * n_embd**2 * parameters)

    return answer


def _all_float32(
    batch: int, seq_len: int, n_layer: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
) -> int:
    return _estimate()(batch, seq_len, n_layer, n_embd, n_head, vocab_size, 4)


def _fresh(rng: random.Random) -> Case:
    heads = rng.randint(2, 4)
    return Case(
        "a fresh configuration",
        batch=rng.randint(2, 4),
        seq_len=rng.randint(16, 48),
        n_layer=rng.randint(1, 3),
        n_embd=heads * rng.randint(8, 16),
        n_head=heads,
        vocab_size=rng.randint(150, 400),
        bytes_per_value=rng.choice([4, 2]),
    )


EXERCISE = Exercise(
    id="01.activation_memory",
    title="Activation memory: the estimate against the measurement",
    parameters=("batch", "seq_len", "n_layer", "n_embd", "n_head", "vocab_size", "bytes_per_value"),
    kind="host",
    inputs=_inputs,
    reference=_measured,
    tolerance=_tolerance,
    cases=(
        Case(
            "short sequences: linear layers and GELU dominate",
            batch=4,
            seq_len=8,
            n_layer=2,
            n_embd=64,
            n_head=2,
            vocab_size=97,
            bytes_per_value=4,
        ),
        Case(
            "many heads and long sequences: the scores dominate",
            batch=2,
            seq_len=64,
            n_layer=1,
            n_embd=16,
            n_head=8,
            vocab_size=65,
            bytes_per_value=4,
        ),
        Case(
            "a large vocabulary: the output dominates",
            batch=2,
            seq_len=12,
            n_layer=1,
            n_embd=16,
            n_head=2,
            vocab_size=3001,
            bytes_per_value=4,
        ),
        Case(
            "bfloat16, with the loss in float32",
            batch=3,
            seq_len=24,
            n_layer=3,
            n_embd=48,
            n_head=4,
            vocab_size=301,
            bytes_per_value=2,
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "no_scores",
            _estimate(scores=0),
            "Too little, and the more so the longer the sequence: each head keeps a T x T matrix for backward.",
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
            _estimate(logits=False),
            "The output is missing: cross-entropy keeps V log-probabilities a token, in float32.",
        ),
        Misconception(
            "counts_parameters",
            _estimate(parameters=True),
            "The weights are counted too. They are there anyway; activations are what grows with batch and sequence.",
        ),
        Misconception(
            "scores_without_batch",
            _estimate(batched=False),
            "Every sequence of the batch has scores of its own.",
        ),
        Misconception(
            "all_float32",
            _all_float32,
            "Right for 4 bytes a number, too much for 2: only the loss stays in float32.",
        ),
    ),
    hints=(
        "An operation keeps what its backward needs: a linear layer its input, a softmax its output, a GELU its "
        "input, a norm its input. A tensor that two operations share is kept once.",
        "In units of B T d, one layer keeps: input and output of two norms, q, k and v, the merged heads, and 4d "
        "twice around GELU. Add B n_head T² for the probabilities.",
        "bytes_per_value * (L (16 B T d + B n_head T²) + 2 B T d) + 4 B T V: 16 = 2 norms x 2 + 3 + 1 + 4 + 4.",
    ),
    explanation=(
        "The linear layers' inputs, q, k, v and both sides of GELU make 16 B T d numbers a layer; the probabilities "
        "add B n_head T²; the last norm and the output 2 B T d; the log-probabilities 4 B T V bytes. At 124M, 1024 "
        "tokens and float32 the probabilities alone are 48 MiB a layer and sequence: they are what FlashAttention "
        "does not keep. The measurement asks autograd for every tensor it saves, so it is exact and the same on "
        "every machine."
    ),
)
