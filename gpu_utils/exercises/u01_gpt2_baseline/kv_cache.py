"""01.kv_cache: attention that keeps keys and values, and computes only the new tokens."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u01_gpt2_baseline.attention import attention_reference
from gpu_utils.exercises.u01_gpt2_baseline.tensors import chain_tolerance, doubled, linear_weights, normal
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

EXTRA = "FLOPs beyond those of the new tokens"


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, d = getattr(torch, case.get("dtype", "float32")), case["heads"] * case["head_dim"]
    w_qkv, b_qkv = linear_weights(generator, dtype, d, 3 * d)
    w_proj, b_proj = linear_weights(generator, dtype, d, d)
    x = normal(generator, dtype, case["batch"], sum(case["chunks"]), d)
    weights = {"w_qkv": w_qkv, "b_qkv": b_qkv, "w_proj": w_proj, "b_proj": b_proj}
    return {"x": x, "chunks": list(case["chunks"]), **weights, "n_head": case["heads"]}


def _reference(x: Tensor, chunks: list[int], n_head: int, **weights: Tensor) -> dict[str, Any]:
    B, T, d = x.shape
    qkv = F.linear(x.double(), doubled(weights["w_qkv"]), doubled(weights["b_qkv"]))
    k, v = (part.reshape(B, T, n_head, -1).transpose(1, 2) for part in (qkv[..., d : 2 * d], qkv[..., 2 * d :]))
    return {"y": attention_reference(x, **weights, n_head=n_head), "k": k, "v": v, EXTRA: 0}


def _call(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """Feed the sequence chunk by chunk, each time with the cache that the answer returned, and count the FLOPs."""
    from torch.utils.flop_counter import FlopCounterMode

    x, chunks = inputs["x"], inputs["chunks"]
    rest = {name: value for name, value in inputs.items() if name not in ("x", "chunks")}
    B, _, d = x.shape
    k = v = x.new_zeros(B, inputs["n_head"], 0, d // inputs["n_head"])
    outputs, extra, seen = [], 0, 0
    for number, new in enumerate(x.split(chunks, dim=1)):
        if number:  # the sequences change places: an answer with a cache of its own mixes them up
            k, v = k.flip(0), v.flip(0)
        swapped = number % 2 == 1
        with FlopCounterMode(display=False) as counter:
            result = answer(x=new.flip(0) if swapped else new, k_cache=k, v_cache=v, **rest)
        kinds = [type(part).__name__ for part in (result if isinstance(result, (tuple, list)) else [result])]
        if kinds != ["Tensor"] * 3:
            raise TypeError(f"kv_cache returned {', '.join(kinds)}; expected three tensors: y, k, v")
        y, k, v = result
        outputs.append(y.flip(0) if swapped else y)
        n, seen = new.shape[1], seen + new.shape[1]
        # q, k and v may each be cut out of a projection of its own
        needed = B * n * (3 * 2 * d * 3 * d + 2 * 2 * seen * d + 2 * d * d)
        extra += max(0, counter.get_total_flops() - needed)
    k, v = (k.flip(0), v.flip(0)) if swapped else (k, v)
    return {"y": torch.cat(outputs, dim=1), "k": k, "v": v, EXTRA: extra}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # projection, scores, exponential, division, weighted sum, projection
    return chain_tolerance(inputs["x"].dtype, max(inputs["x"].shape[1:]), stages=6)


def _variant(mask: str = "offset", join: str = "append", keep: str = "all", square: bool = False) -> Any:
    """A wrong cache: the right one with one thing changed."""

    def answer(
        x: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        w_qkv: Tensor,
        b_qkv: Tensor,
        w_proj: Tensor,
        b_proj: Tensor,
        n_head: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        B, n, d = x.shape
        parts = F.linear(x, w_qkv, b_qkv).split(d, dim=-1)
        q, k_new, v_new = (part.view(B, n, n_head, -1).transpose(1, 2) for part in parts)
        past = k_cache.shape[2]
        old_first = join == "append"
        k = torch.cat([k_cache, k_new] if old_first else [k_new, k_cache], dim=2)
        v = torch.cat([v_cache, v_new] if old_first else [v_new, v_cache], dim=2)
        if square:
            q = torch.cat([torch.zeros_like(k[:, :, :past]), q], dim=2)
        rows = {"offset": 0 if square else past, "top left": 0, "one late": past + 1, "none": past + n}
        offset = rows["top left" if n > 1 else "none"] if mask == "top left of a chunk" else rows[mask]
        visible = torch.ones(q.shape[2], past + n, dtype=torch.bool, device=x.device).tril(offset)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        y = (scores.masked_fill(~visible, -math.inf).softmax(-1) @ v)[:, :, -n:]
        y = F.linear(y.transpose(1, 2).reshape(B, n, d), w_proj, b_proj)
        return (y, k, v) if keep == "all" else (y, k_new, v_new)

    return answer


def _forgets_the_past(
    x: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    w_qkv: Tensor,
    b_qkv: Tensor,
    w_proj: Tensor,
    b_proj: Tensor,
    n_head: int,
) -> tuple[Tensor, Tensor, Tensor]:
    y, k, v = _variant()(x, k_cache[:, :, :0], v_cache[:, :, :0], w_qkv, b_qkv, w_proj, b_proj, n_head)
    return y, torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)


def _with_a_cache_of_its_own() -> Any:
    kept: dict[str, Tensor] = {}

    def answer(x: Tensor, k_cache: Tensor, v_cache: Tensor, **rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        if not k_cache.shape[2]:
            kept.update(k=k_cache, v=v_cache)
        y, kept["k"], kept["v"] = _variant()(x, kept["k"], kept["v"], **rest)
        return y, kept["k"], kept["v"]

    return answer


def _filled(value: float | None) -> Any:
    def answer(x: Tensor, k_cache: Tensor, v_cache: Tensor, n_head: int, **_weights: Tensor) -> Any:
        new = x.view(*x.shape[:2], n_head, -1).transpose(1, 2)
        y, new = (x, new) if value is None else (torch.full_like(x, value), torch.full_like(new, value))
        return y, torch.cat([k_cache, new], dim=2), torch.cat([v_cache, new], dim=2)

    return answer


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh way to cut the sequence",
        batch=rng.randint(1, 3),
        heads=rng.randint(2, 4),
        head_dim=rng.randint(3, 10),
        chunks=[rng.randint(2, 9), 1, rng.randint(2, 6), *[1] * rng.randint(1, 4)],
        dtype=rng.choice(["float32", "float32", "bfloat16"]),
    )


EXERCISE = Exercise(
    id="01.kv_cache",
    title="A KV cache: decoding equals full recomputation",
    parameters=("x", "k_cache", "v_cache", "w_qkv", "b_qkv", "w_proj", "b_proj", "n_head"),
    kind="torch",
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    call=_call,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "input": _filled(None)},
    cases=(
        Case("the whole prompt at once: plain causal attention", batch=2, heads=2, head_dim=4, chunks=[6]),
        Case("one token after another from an empty cache", batch=1, heads=3, head_dim=5, chunks=[1, 1, 1, 1, 1]),
        Case("a prompt, then single tokens: how text is generated", batch=2, heads=2, head_dim=8, chunks=[7, 1, 1, 1]),
        Case(
            "several tokens onto a filled cache: the mask is not square",
            batch=1,
            heads=4,
            head_dim=4,
            chunks=[5, 3, 1, 4],
        ),
        Case("bfloat16, as on the device", batch=2, heads=2, head_dim=16, chunks=[19, 1, 5], dtype="bfloat16"),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "mask_from_the_top_left",
            _variant(mask="top left"),
            "Right on an empty cache, wrong on a filled one: the mask is aligned with the first key. New token i "
            "stands at position T_past + i and may see all keys up to there.",
        ),
        Misconception(
            "mask_from_the_top_left_of_a_chunk",
            _variant(mask="top left of a chunk"),
            "Right for a first prompt and for single tokens, wrong for several on a filled cache: the mask is aligned "
            "with the first key (so is `is_causal=T > 1`). New token i may see all keys up to T_past + i.",
        ),
        Misconception(
            "no_mask",
            _variant(mask="none"),
            "Single tokens come out right, several at once do not: within one chunk a token sees those after it.",
        ),
        Misconception(
            "mask_one_too_far",
            _variant(mask="one late"),
            "Where several tokens come at once, each sees the one after it: the mask keeps a column too many. Row i "
            "keeps columns 0 to T_past + i.",
        ),
        Misconception(
            "forgets_the_past",
            _forgets_the_past,
            "The cache grows as it should, but the new tokens attend to themselves only. Attend to the joined keys.",
        ),
        Misconception(
            "cache_not_joined",
            _variant(keep="new"),
            "The returned cache holds the new tokens only. Return the joined keys and values: the next call gets "
            "nothing else.",
        ),
        Misconception(
            "new_before_old",
            _variant(join="prepend"),
            "The new keys are joined in front of the old ones. Position must grow along the cache, or the mask is "
            "wrong.",
        ),
        Misconception(
            "a_cache_of_its_own",
            _with_a_cache_of_its_own(),
            "The caches that are passed are not used: the function keeps its own from one call to the next. A model "
            "has one cache a layer, and its sequences may change places: read k_cache and v_cache.",
        ),
        Misconception(
            "square_again",
            _variant(square=True),
            "The numbers are right, but queries of the past were computed too: the work of a step grows with the "
            "square of the length again. Queries are needed for the new tokens only.",
        ),
    ),
    hints=(
        "Project the new tokens only. Their keys and values join those of the cache, along the token axis.",
        "q has T_new rows, k and v have T_past + T_new. Row i of the scores may keep columns 0..T_past + i.",
        "k = torch.cat([k_cache, k_new], dim=2), v likewise; the mask is torch.ones(T_new, T_past + "
        "T_new).tril(T_past); then softmax, times v, merge the heads, project; return y, k, v.",
    ),
    explanation=(
        "Keys and values of a token never change once computed, because attention is causal. A step with one new "
        "token costs one row of scores instead of T: attention over a whole generation drops from order T³ to T². The "
        "price is memory, 2 L T d numbers a sequence, read in full for every token: decoding is bound by bandwidth "
        "(unit 06)."
    ),
)
