"""10.mla_absorb: new tokens against a cache of latent vectors, with both projections absorbed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT, Tolerance
from gpu_utils.exercises.u10_mla_moe import mla_absorb_slips as slips
from gpu_utils.exercises.u10_mla_moe import mla_slips
from gpu_utils.exercises.u10_mla_moe.latents import (
    Sizes,
    attention_reference,
    drawn_sizes,
    drawn_weights,
    normed,
    sizes_of,
    tiny_weights,
    tolerances,
    turned,
)
from gpu_utils.exercises.u10_mla_moe.written import LITTLE, LONG, Written, what_was_written
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

PARTS = ("y", "latent", "k_rope", "written")
"""What is compared: three results, and what torch's operations wrote on the way, in words."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    sizes, batch, past = sizes_of(case), case["batch"], case["cached"]
    weights = drawn_weights(sizes, generator)
    theta, eps = case.get("theta", 10_000.0), case.get("eps", 1e-6)
    latent = normed(torch.randn(batch, past, sizes.rank, generator=generator), weights["kv_a_layernorm"], eps)
    k_rope = 3 * torch.randn(batch, past, sizes.rope, generator=generator)
    return {
        "x": torch.randn(batch, case["tokens"], sizes.width, generator=generator),
        "latent": latent,
        "k_rope": turned(k_rope, torch.arange(past), theta).float(),
        "weights": weights,
        "heads": sizes.heads,
        "theta": theta,
        "eps": eps,
    }


def mla_absorb_reference(**inputs: Any) -> dict[str, Any]:
    """As if keys and values were made: they are the same numbers, whatever was absorbed."""
    return dict(zip(PARTS, (*attention_reference(**inputs), LITTLE), strict=True))


def _call(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The answer's three results by name, and what was written; whatever else it returned, alone."""
    (batch, past, _), new = inputs["latent"].shape, inputs["x"].shape[1]
    sizes = asdict(Sizes.of(inputs["weights"], inputs["heads"]))
    with Written(large=batch * past * inputs["heads"]) as seen:
        result = answer(**inputs)
    if not isinstance(result, (tuple, list)) or len(result) != 3:
        return result
    weights = sum(weight.numel() for weight in inputs["weights"].values())
    weights += sizes["heads"] * sizes["rank"] * (sizes["q_rank"] + sizes["width"])
    found = what_was_written(seen, batch, past + new, new, sizes, weights) if past >= LONG else LITTLE
    return dict(zip(PARTS, (*result, found), strict=True))


def _tolerance(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    tokens = inputs["latent"].shape[1] + inputs["x"].shape[1]
    return {**tolerances(inputs["weights"], inputs["heads"], tokens, tokens), "written": EXACT}


def _filled(value: float | None) -> Callable[..., Any]:
    def answer(x: Tensor, latent: Tensor, k_rope: Tensor, **_more: Any) -> tuple[Tensor, ...]:
        def longer(cache: Tensor) -> Tensor:
            added = x[..., :1].expand(-1, -1, cache.shape[2])
            return torch.cat([cache, added if value is None else torch.full_like(added, value)], 1)

        return x if value is None else torch.full_like(x, value), longer(latent), longer(k_rope)

    return answer


def _case(why: str, batch: int, cached: int, tokens: int, **more: Any) -> Case:
    usual = {"heads": 4, "width": 40, "q_rank": 24, "rank": 20, "nope": 12, "rope": 6, "value": 10}
    return Case(why, batch=batch, cached=cached, tokens=tokens, **usual | more)


_COUNTED = {"heads": 8, "width": 40, "q_rank": 24, "rank": 32, "nope": 48, "rope": 8, "value": 52}


def _fresh(rng: random.Random) -> Case:
    why = "sizes nobody chose"
    if rng.random() < 0.5:
        nope, rope = rng.choice([48, 50, 52, 54]), rng.choice([6, 8])
        return _case(
            why,
            rng.randint(1, 2),
            rng.randint(1000, 1300),
            1,
            heads=rng.randint(8, 10),
            width=rng.randint(36, 44),
            q_rank=rng.randint(18, 24),
            rank=rng.choice([26, 28, 30, 32]),
            nope=nope,
            rope=rope,
            value=nope + rng.choice([-3, 3, 5]),
        )
    theta = rng.choice([100.0, 10_000.0])
    return _case(why, rng.randint(1, 3), rng.randint(3, 40), rng.randint(1, 6), theta=theta, **drawn_sizes(rng))


EXERCISE = Exercise(
    id="10.mla_absorb",
    title="Decoding with absorbed projections",
    parameters=("x", "latent", "k_rope", "weights", "heads", "theta", "eps"),
    kind="torch",
    inputs=_inputs,
    reference=mla_absorb_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: {**dict.fromkeys(PARTS[:3], torch.float32), "written": None},
    call=_call,
    parts=PARTS,
    cases=(
        _case("one new token of two sequences", 2, 13, 1),
        _case("several new tokens: the mask is not square", 2, 9, 4),
        _case("an empty cache: the first tokens of a text", 1, 0, 5),
        _case("values longer than keys, and another theta", 1, 21, 3, value=14, nope=8, heads=3, theta=100.0),
        _case("eps that counts", 1, 6, 2, eps=0.5),
        Example(
            "the small example",
            x=lambda: torch.tensor([[[-3.0]]]),
            latent=lambda: torch.ones(1, 1, 2),
            k_rope=lambda: torch.tensor([[[1.0, 0.0]]]),
            weights=tiny_weights,
            heads=1,
            theta=10_000.0,
            eps=1e-6,
        ),
        _case("a long cache: here it is counted what torch's operations write", 2, 1024, 1, **_COUNTED),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "input": _filled(None)},
    misconceptions=(
        Misconception(
            "expands_the_cache",
            slips.answer(keys="expanded", values="expanded"),
            "The numbers are right, and for every new token keys and values of all heads are made of the whole cache. "
            "Bracket the products differently: the matrix that makes a key can meet the query first, and the one that "
            "makes a value can wait for the sum.",
        ),
        Misconception(
            "expands_the_values",
            slips.answer(values="expanded"),
            "The numbers are right, the query has absorbed its matrix, and values of every head are still made of the "
            "whole cache. Sum the latent vectors first, by their weights: then one vector a head is left to project.",
        ),
        Misconception(
            "copies_the_cache_for_every_head",
            slips.answer(keys="copied", values="copied"),
            "The numbers are right, and torch makes a copy of the cache for every head: a product of (B, H, T, C) and "
            "(B, 1, C, S) is done by copying the second to (B, H, C, S). Let the heads be rows of one matrix for "
            "each sequence: (B, H·T, C), or an einsum without h in the cache.",
        ),
        Misconception(
            "head_by_head",
            slips.head_by_head,
            "The numbers are right, and much more is written than the cache is large. No single tensor is large: is "
            "something made for the whole cache in a loop over heads?",
        ),
        Misconception(
            "positions_from_zero",
            slips.answer(position="0"),
            "New tokens are turned as if the text began with them. Their positions follow those of the cache.",
        ),
        Misconception(
            "positions_one_too_far",
            slips.answer(position="one too far"),
            "Your first new token has position S + 1. The cache holds positions 0 ... S - 1.",
        ),
        Misconception(
            "one_position_for_all_new_tokens",
            slips.answer(position="all the same"),
            "All new tokens are turned by the position of the first. They have S, S + 1, and so on.",
        ),
        Misconception(
            "new_tokens_see_each_other",
            slips.answer(mask="none"),
            "There is no mask, and with several new tokens the earlier ones see the later ones.",
        ),
        Misconception(
            "mask_from_the_left",
            slips.answer(mask="from the left"),
            "The mask counts queries from 0: the first new token sees only the first token of the cache. Query t "
            "stands at position S + t.",
        ),
        Misconception(
            "does_not_see_itself",
            slips.answer(mask="not itself"),
            "A new token does not attend to itself. Its own latent vector belongs to the cache when it attends.",
        ),
        Misconception(
            "sees_the_old_cache_alone",
            slips.answer(mask="the past alone"),
            "New tokens attend to the old cache alone. They see themselves, and the new ones before them.",
        ),
        Misconception(
            "scale_of_a_row_of_the_cache",
            slips.answer(scale="row of the cache"),
            "The scale is that of the absorbed query, rank + rope. Absorbing changes no score: it is still a product "
            "of nope + rope numbers.",
        ),
        Misconception(
            "scale_of_one_part",
            slips.answer(scale="nope"),
            "The scale counts the part without a position alone. A query has both: the root of nope + rope.",
        ),
        Misconception(
            "no_scale",
            slips.answer(scale="none"),
            "Scores go into the softmax as they are. Divide them by the root of nope + rope.",
        ),
        Misconception(
            "values_from_the_key_half",
            slips.answer(w_uv="keys"),
            "The sum of latent vectors is projected by the rows of kv_b_proj that make keys. Of each head's rows the "
            "first nope make a key, the others a value.",
        ),
        Misconception(
            "halves_exchanged",
            slips.answer(w_uk="values", w_uv="keys"),
            "The two halves of kv_b_proj are exchanged. Of each head's rows the first nope make a key.",
        ),
        Misconception(
            "head_0_for_all",
            slips.answer(heads_of="head 0"),
            "All heads are projected by the matrices of head 0. Every head has its own rows in kv_b_proj.",
        ),
        Misconception(
            "latent_for_value",
            slips.answer(values="first numbers"),
            "The sum of latent vectors is cut, and taken for a value. Each head's rows of kv_b_proj make one of it.",
        ),
        Misconception(
            "rope_score_forgotten",
            slips.answer(rope_score=False),
            "The scores lack q_rope . k_rope, the only part that knows positions. It is not absorbed: it is added.",
        ),
        Misconception(
            "cached_keys_turned_again",
            slips.answer(turn_again=True),
            "The rope keys of the cache are turned once more. They are kept turned.",
        ),
        Misconception(
            "cached_latents_normed_again",
            slips.answer(norm_again=True),
            "The latent vectors of the cache go through their norm once more. They are kept normed.",
        ),
        Misconception(
            "latent_kept_before_its_norm",
            slips.answer(kept="as made"),
            "New latent vectors are added before their norm. Those of the cache are normed, and so are new ones.",
        ),
        Misconception(
            "rope_key_kept_as_it_came",
            slips.answer(kept_rope="as made"),
            "New rope keys are added before their rotation. Those of the cache are turned, and so are new ones.",
        ),
        Misconception(
            "view_for_transpose",
            slips.answer(q_heads="viewed"),
            "With several new tokens heads get each other's numbers: .view(B, heads, T, -1) moves none. First "
            ".view(B, T, heads, -1), then .transpose(1, 2).",
        ),
        Misconception(
            "query_not_turned",
            slips.answer(turn_q=mla_slips.untouched),
            "The rope part of the query is not turned.",
        ),
        Misconception(
            "query_latent_not_normed",
            slips.answer(q_norm=mla_slips.untouched),
            "The latent vector of the query has no norm: q_a_layernorm belongs between its two projections.",
        ),
        Misconception(
            "eps_ignored",
            slips.answer(q_norm=mla_slips.eps_ignored, kv_norm=mla_slips.eps_ignored),
            "eps is 1e-6 in your norms, whatever the caller gives. Models differ in it: use the argument.",
        ),
        Misconception(
            "rope_by_halves",
            slips.answer(turn_q=mla_slips.rope(halves=True), turn_k=mla_slips.rope(halves=True)),
            "Element i is turned with element i + rope/2. In these weights neighbours are a pair: 2i and 2i + 1.",
        ),
        Misconception(
            "rope_sorted_apart",
            slips.answer(turn_q=mla_slips.rope(sorted_apart=True), turn_k=mla_slips.rope(sorted_apart=True)),
            "The turned pairs come out in another order, first members first: they do not meet the numbers of the "
            "cache. Pair i stays at 2i and 2i + 1.",
        ),
        Misconception(
            "only_new_entries_come_back",
            slips.answer(returned="new"),
            "y is right, and what comes back of the cache is the new entries alone. The next step needs all of them.",
        ),
        Misconception(
            "new_entries_are_lost",
            slips.answer(returned="old"),
            "y is right, and the cache comes back as it was. The next step needs the new entries in it.",
        ),
    ),
    hints=(
        "A score of head h is q · (W_UK c): three factors. Which two can you multiply first, so that nothing that is "
        "as long as the cache gets an h? And in the sum of p (W_UV c) over all positions, what does not depend on the "
        "position?",
        "kv_b_proj.view(heads, nope + value, rank) holds W_UK in its first nope rows and W_UV in the others. Absorbed "
        "queries have the shape (B, heads, T, rank), and so have the sums of latent vectors. Scores of the rope parts "
        "are added. The mask compares positions: S + t with 0 ... S + T - 1.",
        "einsum('bhtn,hnc->bhtc', q_nope, w_uk), then einsum('bhtc,bsc->bhts', absorbed, latent) + "
        "einsum('bhtr,bsr->bhts', q_rope, k_rope); behind the softmax einsum('bhts,bsc->bhtc', p, latent), "
        "einsum('bhtc,hvc->bhtv', sums, w_uv). Norms, rotations and scale as in 10.mla.",
    ),
    explanation=(
        "Matrix products may be bracketed as one likes. Expanded, every position gets a key for each head; absorbed, "
        "every head gets one query in the space of the latent vectors, and all heads meet the same cache. That is "
        "attention with one key-value head, whose value is a part of its key. The second projection waits until the "
        "sum over positions is done. With one query, work and bytes that grow with the context shrink by a large "
        "factor; with a whole prompt of queries they grow, because a score is then a longer product."
    ),
)
