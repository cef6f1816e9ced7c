"""01.attention: causal multi-head self-attention from raw weights."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.errors import ForbiddenCall
from gpu_utils.exercises.u01_gpt2_baseline.tensors import (
    chain_tolerance,
    doubled,
    linear_weights,
    normal,
    require_gradients,
)
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, width = getattr(torch, case.get("dtype", "float32")), case["heads"] * case["head_dim"]
    w_qkv, b_qkv = linear_weights(generator, dtype, width, 3 * width)
    w_proj, b_proj = linear_weights(generator, dtype, width, width)
    x = normal(generator, dtype, case["batch"], case["tokens"], width, std=case.get("std", 1.0))
    return {"x": x, "w_qkv": w_qkv, "b_qkv": b_qkv, "w_proj": w_proj, "b_proj": b_proj, "n_head": case["heads"]}


def attention_reference(x: Tensor, w_qkv: Tensor, b_qkv: Tensor, w_proj: Tensor, b_proj: Tensor, n_head: int) -> Tensor:
    """The same function in float64, one head after another."""
    x, w_qkv, b_qkv, w_proj, b_proj = map(doubled, (x, w_qkv, b_qkv, w_proj, b_proj))
    width = x.shape[-1]
    qkv = x @ w_qkv.T + b_qkv
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    heads = []
    for columns in torch.arange(width).chunk(n_head):
        q, k, v = qkv[..., columns], qkv[..., columns + width], qkv[..., columns + 2 * width]
        scores = q @ k.mT / math.sqrt(len(columns))
        heads.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v)
    return torch.cat(heads, -1) @ w_proj.T + b_proj


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # projection, scores, exponential, division, weighted sum, projection
    size = case.get("std", 1.0)
    return chain_tolerance(inputs["x"].dtype, max(inputs["x"].shape[1:]), stages=6, magnitude=size)


FORBIDDEN = ("scaled_dot_product", "multi_head_attention")


class _WithoutLibraryAttention(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")  # also of torch.ops.aten, where the same operations have other objects
        if any(part in name for part in FORBIDDEN):
            raise ForbiddenCall(f"{name} was called; write the scores, the mask and the softmax yourself")
        return function(*args, **(kwargs or {}))


def _call(answer: Any, inputs: Inputs) -> Any:
    with _WithoutLibraryAttention():
        value = answer(**inputs)
        tensors = {name: given for name, given in inputs.items() if isinstance(given, Tensor)}
        require_gradients(value, lambda leaves: answer(**leaves, n_head=inputs["n_head"]), tensors)
        return value


def _variant(
    scale: str = "head",
    mask: str = "causal",
    split: str = "heads",
    merge: str = "heads",
    dim: int = -1,
    transposed: bool = True,
    on_cpu: bool = False,
    softmax: Callable[[Tensor, int], Tensor] = torch.softmax,
) -> Any:
    """A wrong attention: the right one with one thing changed."""

    def answer(x: Tensor, w_qkv: Tensor, b_qkv: Tensor, w_proj: Tensor, b_proj: Tensor, n_head: int) -> Tensor:
        B, T, d = x.shape
        parts = F.linear(x, w_qkv, b_qkv).split(d, dim=-1)
        if split == "interleaved":
            q, k, v = F.linear(x, w_qkv, b_qkv).view(B, T, n_head, -1).transpose(1, 2).chunk(3, dim=-1)
        elif split == "every third":
            q, k, v = (F.linear(x, w_qkv, b_qkv)[..., i::3].view(B, T, n_head, -1).transpose(1, 2) for i in range(3))
        elif split == "view":
            q, k, v = (part.reshape(B, n_head, T, -1) for part in parts)
        else:
            q, k, v = (part.view(B, T, n_head, -1).transpose(1, 2) for part in parts)
        q, k = (k, q) if split == "keys first" else (q, k)
        scores = q @ k.mT / {"head": math.sqrt(d // n_head), "width": math.sqrt(d), "none": 1.0}[scale]
        hidden = torch.ones(T, T, dtype=torch.bool, device="cpu" if on_cpu else x.device)
        future = hidden.triu(0) if mask == "itself too" else hidden.tril(-1) if mask == "past" else hidden.triu(1)
        if mask not in ("none", "after"):
            scores = scores.masked_fill(future, 0.0 if mask == "zero" else -math.inf)
        weights = softmax(scores, dim)
        y = (weights.masked_fill(future, 0.0) if mask == "after" else weights) @ v
        y = y.reshape(B, T, d) if merge == "reshape" else y.transpose(1, 2).reshape(B, T, d)
        return y @ (w_proj.T if transposed else w_proj) + b_proj

    return answer


def _library(x: Tensor, w_qkv: Tensor, b_qkv: Tensor, w_proj: Tensor, b_proj: Tensor, n_head: int) -> Tensor:
    B, T, d = x.shape
    parts = F.linear(x, w_qkv, b_qkv).split(d, dim=-1)
    q, k, v = (part.view(B, T, n_head, -1).transpose(1, 2) for part in parts)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(y.transpose(1, 2).reshape(B, T, d), w_proj, b_proj)


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh case with odd sizes",
        batch=rng.randint(1, 3),
        tokens=rng.randint(3, 40),
        heads=rng.randint(2, 5),
        head_dim=rng.randint(3, 12),
        dtype=rng.choice(["float32", "float32", "bfloat16"]),
    )


EXERCISE = Exercise(
    id="01.attention",
    title="Causal multi-head attention from raw weights",
    parameters=("x", "w_qkv", "b_qkv", "w_proj", "b_proj", "n_head"),
    kind="torch",
    inputs=_inputs,
    reference=attention_reference,
    tolerance=_tolerance,
    call=_call,
    forbids=FORBIDDEN,
    cases=(
        Case(
            "a single token attends to itself only, also where the exponential of its score overflows",
            **{"batch": 2, "tokens": 1, "heads": 2, "head_dim": 4, "std": 100.0},
        ),
        Case("one head: its width is the model's", batch=1, tokens=5, heads=1, head_dim=8),
        Case("batch, tokens, heads and head width all differ", batch=2, tokens=7, heads=3, head_dim=5),
        Case(
            "as many heads as tokens: axes that are mixed up still have the right shape",
            batch=3,
            tokens=4,
            heads=4,
            head_dim=6,
        ),
        Case("longer than any power of two nearby", batch=1, tokens=67, heads=2, head_dim=16),
        Example(
            "the example of the docstring",
            x=lambda: torch.tensor([[[1.0], [3.0], [8.0]]]),
            w_qkv=lambda: torch.tensor([[0.0], [0.0], [1.0]]),
            b_qkv=lambda: torch.zeros(3),
            w_proj=lambda: torch.eye(1),
            b_proj=lambda: torch.zeros(1),
            n_head=1,
        ),
        Case("bfloat16, as on the device", batch=2, tokens=33, heads=4, head_dim=8, dtype="bfloat16"),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "no_mask",
            _variant(mask="none"),
            "A position sees tokens that come after it. What must the scores be there, before the softmax?",
        ),
        Misconception(
            "mask_with_zero",
            _variant(mask="zero"),
            "The scores of the future were set to 0, but exp(0) = 1 still counts. Which score has the exponential 0?",
        ),
        Misconception(
            "mask_after_the_softmax",
            _variant(mask="after"),
            "The future is cut off after the softmax, which has shared the weight among all keys by then: the weights "
            "of a row no longer sum to 1. Mask the scores.",
        ),
        Misconception(
            "exponential_of_the_score_itself",
            _variant(softmax=lambda scores, dim: scores.exp() / scores.exp().sum(dim, keepdim=True)),
            "exp of a score of 100 is no float32 any more, and infinity / infinity is NaN. Subtract the largest score "
            "of a row first, or use softmax, which does.",
        ),
        Misconception(
            "hides_itself",
            _variant(mask="itself too"),
            "The mask hides the diagonal too. The first token then sees no key at all, and a softmax over nothing but "
            "-inf is NaN. A token may see itself: where does the mask begin?",
        ),
        Misconception(
            "hides_the_past",
            _variant(mask="past"),
            "The mask hides what came before and shows what comes after: the other triangle.",
        ),
        Misconception(
            "scale_by_width",
            _variant(scale="width"),
            "The scores are divided by the square root of the model's width. How many products does one score sum?",
        ),
        Misconception(
            "no_scale",
            _variant(scale="none"),
            "The scores are not scaled: their variance grows with the head width. What divides it out?",
        ),
        Misconception(
            "heads_by_view",
            _variant(split="view"),
            "A view to (B, n_head, T, D) cuts across tokens, because memory holds all of a token's channels "
            "together. Split the last axis into (n_head, D) first, then move the head axis.",
        ),
        Misconception(
            "every_third_channel",
            _variant(split="every third"),
            "q, k and v are taken as every third channel. They stand one after another: first all of q, then all of k, "
            "then all of v.",
        ),
        Misconception(
            "keys_first",
            _variant(split="keys first"),
            "Queries and keys are exchanged: the first d channels are q, the next d are k.",
        ),
        Misconception(
            "heads_not_moved_back",
            _variant(merge="reshape"),
            "The heads are merged while the head axis still stands before the token axis. Move it back, then merge.",
        ),
        Misconception(
            "heads_interleaved",
            _variant(split="interleaved"),
            "The heads are split before q, k and v are. First come all channels of q, then all of k, then all of v.",
        ),
        Misconception(
            "projection_not_transposed",
            _variant(transposed=False),
            "The last product uses w_proj as it is. It is square, so the shapes fit, but weights are (out, in): which "
            "axis of w_proj must meet the channels?",
        ),
        Misconception(
            "softmax_over_queries",
            _variant(dim=-2),
            "The softmax runs over the queries. Each query's weights over its keys must sum to 1: which axis is that?",
        ),
        Misconception(
            "mask_on_the_cpu",
            _variant(on_cpu=True),
            "The numbers are right, but a tensor of yours is made on the CPU. On a GPU it would meet x there: make it "
            "with device=x.device.",
        ),
        Misconception(
            "calls_the_library",
            _library,
            "The fused call does what this exercise is about. Unit 06 rewrites these lines as a kernel: write them "
            "out once, with the scores in memory.",
        ),
    ),
    hints=(
        "One linear layer gives q, k and v side by side in the last axis. Each head works on its own D = d / n_head "
        "channels of each.",
        "Bring q, k, v to (B, n_head, T, D). The scores are q kᵀ / sqrt(D), of shape (B, n_head, T, T); row i may "
        "keep columns 0..i only.",
        "view(B, T, n_head, D).transpose(1, 2) splits the heads; masked_fill with -inf above the diagonal; softmax "
        "over the last axis; times v; transpose(1, 2).reshape(B, T, d) merges; the last linear layer.",
    ),
    explanation=(
        "A score sums D products of numbers of size 1, so its standard deviation is sqrt(D): dividing by it keeps "
        "the softmax away from one-hot. The mask is -inf before the softmax, so that the kept weights still sum to "
        "1. The T x T scores are written to memory and read back by every operation on them; FlashAttention (unit "
        "06) never writes them."
    ),
)
