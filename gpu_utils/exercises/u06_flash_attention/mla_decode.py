"""06.mla_decode: a cache of latent vectors that all heads share, and queries that absorb a projection."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u06_flash_attention import mla_decode_slips as slips
from gpu_utils.exercises.u06_flash_attention.mla_decode_slips import HEADS
from gpu_utils.exercises.u06_flash_attention.shared import (
    MOST_OF_A_PROGRAM,
    drawn_queries,
    dtype_of,
    tolerance_of_attention,
)
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

NOPE, ROPE, LATENT, VALUE = 48, 16, 64, 48
"""Numbers of a query without and with a position, of a latent vector, of a value. DeepSeek-V3: 128, 64, 512, 128."""

PEAK = 150.0
"""Scores of even heads fall from this to its negative, by 96 in 32 positions; those of odd heads rise. exp(96) is
infinite, and exp(-118) is 0: what a shorter sequence, which ends near -32 and 32, makes of one peak for all heads."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    lengths, H, S = case["lengths"], case["H"], case["S"]
    B, dtype = len(lengths), dtype_of(case)

    def weights(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) / math.sqrt(LATENT)).to(dtype)

    q_rope = drawn_queries((B, H, ROPE), dtype, generator)
    cache = torch.randn(B, S, LATENT + ROPE, generator=generator)
    if case.get("peak"):
        q_rope = q_rope[:, :1] * (1 - 2 * (torch.arange(H) % 2))[:, None].to(dtype)
        one = q_rope[:, :1].float()
        wanted = torch.linspace(PEAK, -PEAK, max(lengths)) * math.sqrt(NOPE + ROPE)
        cache[:, : max(lengths), LATENT:] += wanted[:, None] * one / one.square().sum(2, keepdim=True)
    for b, length in enumerate(lengths):
        cache[b, length:] = math.nan  # whatever was there before
    return {
        "q": drawn_queries((B, H, NOPE), dtype, generator),
        "q_rope": q_rope,
        "cache": cache.to(dtype),
        "lengths": torch.tensor(lengths, dtype=torch.int32),
        "w_uk": weights(H, NOPE, LATENT),
        "w_uv": weights(H, VALUE, LATENT),
    }


def mla_decode_reference(
    q: Tensor, q_rope: Tensor, cache: Tensor, lengths: Tensor, w_uk: Tensor, w_uv: Tensor
) -> Tensor:
    """Keys and values of every head, made from the latent vectors, and attention to them, in float64."""
    latent_size = w_uk.shape[2]
    rows = []
    for b, length in enumerate(lengths.tolist()):
        latent, k_rope = cache[b, :length].double().split([latent_size, q_rope.shape[2]], 1)
        keys = torch.einsum("sc,hnc->hsn", latent, w_uk.double())
        values = torch.einsum("sc,hvc->hsv", latent, w_uv.double())
        scores = torch.einsum("hn,hsn->hs", q[b].double(), keys) + q_rope[b].double() @ k_rope.T
        p = (scores / math.sqrt(q.shape[2] + q_rope.shape[2])).softmax(1)
        rows.append(torch.einsum("hs,hsv->hv", p, values))
    return torch.stack(rows)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # rounded to 16 bits on the way: the absorbed query, the weights, their sum of latent vectors, the result
    return tolerance_of_attention(inputs["q"].dtype, max(case["lengths"]), roundings=4, magnitude=2.0)


def _most_load_bytes(case: Case) -> float:
    # a sequence in two or four parts loads its queries more often, and the parts: up to half of a cache of 512
    valid = sum(case["lengths"]) * (LATENT + ROPE) * dtype_of(case).itemsize
    return 1.05 * valid + 4 * MOST_OF_A_PROGRAM * len(case["lengths"]) if case.get("counted") else math.inf


def _least_flops(case: Case) -> float:
    """Scores by latent and rotary part, and the sum of latent vectors."""
    return 2 * sum(case["lengths"]) * int(case["H"]) * (LATENT + ROPE + LATENT)


def _case(why: str, lengths: tuple[int, ...], H: int, S: int, **more: object) -> Case:
    given = {"dtype": "bfloat16", **more}
    return Case(why, lengths=lengths, H=H, S=S, **given)


def _fresh(rng: random.Random) -> Case:
    lengths = tuple(rng.randrange(1, 128) for _ in range(rng.randrange(2, 4)))
    return _case("lengths nobody chose", lengths, rng.randrange(2, HEADS), 128)


EXERCISE = Exercise(
    id="06.mla_decode",
    title="Latent attention: one small cache for all heads",
    parameters=("q", "q_rope", "cache", "lengths", "w_uk", "w_uv"),
    kind="kernel",
    inputs=_inputs,
    reference=mla_decode_reference,
    tolerance=_tolerance,
    cases=(
        _case(
            "sixteen heads, a long cache: here bytes are counted", (512, 256), HEADS, 512, dtype="float16", counted=True
        ),
        _case("few heads, and lengths of all kinds", (70, 1, 33), 5, 80),
        _case("a single entry behind a block", (33,), 12, 48),
        _case("scores that fall from 150 to -150, or rise, by head", (100, 61), HEADS, 112, dtype="float16", peak=True),
    ),
    fresh=_fresh,
    torch_may=("einsum", "bmm", "mm", "matmul", "mul", "sum", "cat", "clone", "_to_copy", "_unsafe_view"),
    seconds=30.0,
    limits=(
        Limit(
            "launches",
            "One kernel for all heads; the projections are torch's.",
            at_least=lambda case: 1,
            at_most=lambda case: 2,
        ),
        Limit(
            "global_load_bytes",
            "Every valid row of the cache is to be loaded once, for all heads together, and its latent vector is key "
            "and value at the same time. Heads are the rows of one tile.",
            at_most=_most_load_bytes,
        ),
        Limit(
            "matrix_flops",
            "Scores, and sums of latent vectors, are to be made by tl.dot in the kernel: with all heads as rows both "
            "are products of matrices.",
            at_least=_least_flops,
        ),
        Limit(
            "scratch_bytes",
            "Registers spill to memory: take smaller blocks of the cache.",
            at_most=lambda case: 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "expands_the_cache",
            slips.expands,
            "The numbers are right, and keys and values of every head are made in memory: twenty times the bytes of "
            "the cache, at every token. Let the query absorb the projection: q . (W c) = (W^T q) . c.",
        ),
        Misconception(
            "a_program_for_each_head",
            slips.answer(each_head=True),
            "The numbers are right, and every head loads the whole cache for itself. All heads read the same rows: "
            "they belong into one tile, as its rows.",
        ),
        Misconception(
            "latent_loaded_again",
            slips.answer("loaded again"),
            "The numbers are right, and each latent vector is loaded twice, as a key and as a value. It is both: the "
            "tile that made the scores is still there.",
        ),
        Misconception(
            "rope_forgotten",
            slips.answer("no rope"),
            "The scores lack their rotary part, q_rope . k_rope, the one that knows positions. It is added before "
            "the softmax.",
        ),
        Misconception(
            "scaled_by_the_latent",
            slips.answer(scale=lambda nope, rope, latent: (latent + rope) ** -0.5),
            "The scale is taken from the size of a row of the cache. Absorbing changes no score: it is still a product "
            "of q and q_rope with a key, and their sizes count.",
        ),
        Misconception(
            "scaled_by_one_part",
            slips.answer(scale=lambda nope, rope, latent: nope**-0.5),
            "The scale is that of a key without its rotary part. A key has both parts, and so many numbers.",
        ),
        Misconception(
            "head_0_for_all",
            slips.answer(first=lambda q, w_uk, w_uv: q @ w_uk[0]),
            "All queries are projected with the matrix of head 0. Every head has its own: w_uk[h].",
        ),
        Misconception(
            "absorbed_as_it_lies",
            slips.answer(first=lambda q, w_uk, w_uv: torch.einsum("bhn,hnc->bhc", q, w_uk)),
            "Queries are mixed up between sequences: einsum multiplies head by head, and its result lies in memory in "
            "that order, whatever its shape says. Look at its strides, or ask for contiguous().",
        ),
        Misconception(
            "latents_as_the_absorbed_lie",
            slips.answer(
                first=lambda q, w_uk, w_uv: torch.einsum("bhn,hnc->bhc", q, w_uk),
                like_absorbed=True,
            ),
            "Right in head 0 of the first sequence, wrong elsewhere: what einsum returns is laid out by heads, and "
            "empty_like of it is, too. Take `.contiguous()` of it, or its strides.",
        ),
        Misconception(
            "weights_exchanged",
            slips.answer(
                first=lambda q, w_uk, w_uv: slips.absorb(q, w_uv),
                last=lambda latents, w_uk, w_uv: slips.project(latents, w_uk),
            ),
            "The two matrices are exchanged: w_uk makes keys, and is absorbed into the query; w_uv makes values, and "
            "is applied to the sum.",
        ),
        Misconception(
            "latent_for_value",
            slips.answer(last=lambda latents, w_uk, w_uv: latents[..., :VALUE].clone()),
            "The sum of latent vectors is no value yet: w_uv[h] makes one of it, after the kernel.",
        ),
        Misconception(
            "row_without_rope",
            slips.answer(row=lambda latent, rope: latent),
            "Rows of the cache are taken to be as long as a latent vector. The rotary part follows in the same row.",
        ),
        Misconception(
            "rope_first",
            slips.answer(places=lambda latent, rope: (rope, 0)),
            "The rotary part is looked for at the beginning of a row. The latent vector comes first.",
        ),
        Misconception(
            "lengths_ignored",
            slips.answer(used=0, more=lambda S: S),
            "The whole cache takes part. Behind lengths[b] rows lies whatever was there before.",
        ),
        Misconception(
            "last_row_lost",
            slips.answer(more=lambda S: -1),
            "The newest row of each cache is missing. It is valid: the new token attends to itself, too.",
        ),
        Misconception(
            "numerator_unscaled",
            slips.answer("numerator unscaled"),
            "When a block brings a higher peak, the sums of weights shrink and the vectors do not. Both were taken "
            "relative to the old peak of their row.",
        ),
        Misconception(
            "one_peak_for_all_heads",
            slips.answer("one peak"),
            "All heads share one peak, that of the head with the largest score. Another head, far below it, is left "
            "with weights of 0 and divides by 0. Every row has a peak of its own: tl.max(scores, axis=1).",
        ),
        Misconception(
            "padding_counts",
            slips.answer("padding counts"),
            "Lanes behind the end of a cache count: their score is 0, and exp of 0 - peak is added to the sums. A "
            "score that must not count is -inf.",
        ),
    ),
    hints=(
        "Write the score of head h out: q . (w_uk[h] c) + q_rope . r. Where could w_uk[h] move, so that nothing with "
        "an h touches c any more? And in the sum of p (w_uv[h] c) over all positions, what depends on the position?",
        "Before the kernel: torch.einsum('bhn,hnc->bhc', q, w_uk), contiguous. After it: torch.einsum('bhc,hvc->bhv', "
        "latents, w_uv). In between one program for each sequence attends with all heads, rows of a tile of 16, to "
        "latent vectors that are keys and values: the loop of 06.forward, with a second product for the rotary part.",
        "at = cache_ptr + (b * S + t[:, None]) * (C + R); latent = tl.load(at + c, ...), k_rope = tl.load(at + C + r, "
        "...); scores = tl.dot(q, tl.trans(latent)); scores = tl.dot(q_rope, tl.trans(k_rope), scores) * scale; then "
        "vectors = tl.dot(p.to(latent.dtype), latent, vectors * factor[:, None]). Rows from H on load zeros and are "
        "not stored.",
    ),
    explanation=(
        "A product of three can be bracketed in two ways. (W c) first makes a key for each head and position; (W^T q) "
        "first makes one query for each head, and all heads then meet the same vectors. That turns attention with "
        "many heads into attention with one shared head, whose value is its key: a row of the cache is loaded once "
        "and used by every head, twice. More FLOPs, as the vectors are longer, and far fewer bytes; while a model "
        "writes, bytes decide. The rotary part cannot be absorbed: it turns with the position, between q and W, so "
        "it is stored beside the latent vector, once for all heads."
    ),
)
