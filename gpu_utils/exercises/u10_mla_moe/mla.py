"""10.mla: multi-head latent attention for a whole sequence, and what a cache has to keep of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u10_mla_moe import mla_slips as slips
from gpu_utils.exercises.u10_mla_moe.latents import (
    Sizes,
    Weights,
    attention_reference,
    drawn_sizes,
    drawn_weights,
    sizes_of,
    tiny_weights,
    tolerances,
)
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

PARTS = ("y", "latent", "k_rope")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    sizes = sizes_of(case)
    x = torch.randn(case["batch"], case["tokens"], sizes.width, generator=generator)
    weights = drawn_weights(sizes, generator)
    return {
        "x": case.get("size", 1.0) * x,
        "weights": weights,
        "heads": sizes.heads,
        "theta": case.get("theta", 10_000.0),
        "eps": case.get("eps", 1e-6),
    }


def mla_reference(x: Tensor, weights: Weights, heads: int, theta: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    s = Sizes.of(weights, heads)
    nothing = x.new_empty(len(x), 0, s.rank), x.new_empty(len(x), 0, s.rope)
    return attention_reference(x, *nothing, weights, heads, theta, eps)


def _tolerance(case: Case, inputs: Inputs) -> dict[int, Tolerance]:
    T = inputs["x"].shape[1]
    found = tolerances(inputs["weights"], inputs["heads"], T, T)
    return {at: found[name] for at, name in enumerate(PARTS)}


def _filled(value: float | None) -> Callable[..., Any]:
    def answer(x: Tensor, weights: Weights, heads: int, **_more: Any) -> tuple[Tensor, ...]:
        s = Sizes.of(weights, heads)
        if value is None:
            return x, x[..., : s.rank].clone(), x[..., : s.rope].clone()
        return tuple(torch.full((*x.shape[:2], n), value, device=x.device) for n in (s.width, s.rank, s.rope))

    return answer


def _case(why: str, batch: int, tokens: int, **more: Any) -> Case:
    usual = {"heads": 4, "width": 40, "q_rank": 24, "rank": 20, "nope": 12, "rope": 6, "value": 10}
    return Case(why, batch=batch, tokens=tokens, **usual | more)


def _fresh(rng: random.Random) -> Case:
    return _case(
        "sizes nobody chose",
        rng.randint(1, 3),
        rng.randint(5, 40),
        theta=rng.choice([100.0, 10_000.0]),
        **drawn_sizes(rng),
    )


EXERCISE = Exercise(
    id="10.mla",
    title="Multi-head latent attention, and its cache",
    parameters=("x", "weights", "heads", "theta", "eps"),
    kind="torch",
    inputs=_inputs,
    reference=mla_reference,
    tolerance=_tolerance,
    parts=PARTS,
    cases=(
        _case("two sequences; no two sizes are alike", 2, 11),
        _case("a single token: its latent vector is all it sees", 2, 1),
        _case("values longer than keys, and another theta", 1, 17, value=14, nope=8, heads=3, theta=100.0),
        _case("small tokens, so that eps counts", 1, 6, size=0.05, eps=0.1),
        Example(
            "the small example",
            x=lambda: torch.tensor([[[2.0], [-3.0]]]),
            weights=tiny_weights,
            heads=1,
            theta=10_000.0,
            eps=1e-6,
        ),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "input": _filled(None)},
    misconceptions=(
        Misconception(
            "scale_of_one_part",
            slips.answer(scale="nope"),
            "The scale counts the part without a position alone. A query has both parts: the root of nope + rope.",
        ),
        Misconception(
            "scale_of_the_values",
            slips.answer(scale="value"),
            "The scale is that of a value. Scores are products of queries and keys: the root of nope + rope.",
        ),
        Misconception(
            "scale_of_a_row_of_the_cache",
            slips.answer(scale="row of the cache"),
            "The scale is taken from a row of the cache, rank + rope. A score is a product of a query and a key, which "
            "have nope + rope numbers.",
        ),
        Misconception(
            "no_scale",
            slips.answer(scale="none"),
            "Scores go into the softmax as they are. Divide them by the root of nope + rope.",
        ),
        Misconception(
            "rope_on_the_whole_query_and_key",
            slips.answer(turn_keys=True),
            "The parts without a position are turned, too. Then W_UK could not be absorbed any more: only the rope "
            "parts are turned.",
        ),
        Misconception(
            "rope_by_halves",
            slips.answer(turn_q=slips.rope(halves=True), turn_k=slips.rope(halves=True)),
            "Element i is turned with element i + rope/2. In these weights neighbours are a pair: 2i and 2i + 1.",
        ),
        Misconception(
            "rope_sorted_apart",
            slips.answer(turn_q=slips.rope(sorted_apart=True), turn_k=slips.rope(sorted_apart=True)),
            "The numbers are right, and they come out in another order: all first members of the pairs, then all "
            "second ones. Scores do not mind; a cache that others read does. Pair i stays at 2i and 2i + 1.",
        ),
        Misconception(
            "rope_turns_too_slowly",
            slips.answer(turn_q=slips.rope(steps=1.0), turn_k=slips.rope(steps=1.0)),
            "Your angles fall with theta^(-i / rope). Pair i turns by theta^(-2i / rope) for each position.",
        ),
        Misconception(
            "positions_from_one",
            slips.answer(turn_q=slips.rope(first=1), turn_k=slips.rope(first=1)),
            "y is right, because only distances count in a score, and every rope key in the cache is turned by one "
            "position too many. The first token has position 0.",
        ),
        Misconception(
            "turned_backwards",
            slips.answer(turn_q=slips.rope(sign=-1), turn_k=slips.rope(sign=-1)),
            "y is right, because queries and keys turn alike; but they turn backwards: the first of a pair becomes "
            "a cos - b sin, and the second a sin + b cos.",
        ),
        Misconception(
            "query_not_turned",
            slips.answer(turn_q=slips.untouched),
            "Keys are turned and queries are not. A score then depends on the place of a key, not on the distance.",
        ),
        Misconception(
            "key_not_turned",
            slips.answer(turn_k=slips.untouched),
            "Queries are turned and the rope part of the key is not.",
        ),
        Misconception(
            "no_positions_at_all",
            slips.answer(turn_q=slips.untouched, turn_k=slips.untouched),
            "Nothing is turned: a token does not know how far away another one is.",
        ),
        Misconception(
            "rope_key_kept_as_it_came",
            slips.answer(kept_rope="as made"),
            "y is right, and the cache has rope keys before their rotation. Who decodes would have to turn every one "
            "of them again: keep them turned.",
        ),
        Misconception(
            "rope_score_forgotten",
            slips.answer(rope_score=False),
            "The scores lack q_rope . k_rope, the only part that knows positions.",
        ),
        Misconception(
            "latent_kept_before_its_norm",
            slips.answer(kept="as made"),
            "y is right, and the cache has latent vectors before their norm. Keys and values are made of the normed "
            "ones: keep those, or every decoded token has to norm all of them again.",
        ),
        Misconception(
            "latent_not_normed",
            slips.answer(kv_norm=slips.untouched),
            "The latent vector of keys and values has no norm. kv_a_layernorm belongs between the two projections.",
        ),
        Misconception(
            "query_latent_not_normed",
            slips.answer(q_norm=slips.untouched),
            "The latent vector of the query has no norm: q_a_layernorm belongs between its two projections.",
        ),
        Misconception(
            "norm_with_a_mean",
            slips.answer(q_norm=slips.layer_norm, kv_norm=slips.layer_norm),
            "The mean is taken off first, as a LayerNorm does. The weights are called layernorm, and it is an RMSNorm.",
        ),
        Misconception(
            "norm_without_weights",
            slips.answer(q_norm=slips.unweighted, kv_norm=slips.unweighted),
            "The norms have weights: q_a_layernorm and kv_a_layernorm multiply what comes out.",
        ),
        Misconception(
            "norm_by_the_sum",
            slips.answer(q_norm=slips.summed, kv_norm=slips.summed),
            "The norm divides by the root of the sum of squares. It is the root of their mean.",
        ),
        Misconception(
            "norm_of_latent_and_rope_together",
            slips.answer(norm_all=True),
            "The norm is taken over all that kv_a_proj_with_mqa gives. It is of the latent part alone: the rope part "
            "is split off first, and has no norm.",
        ),
        Misconception(
            "eps_ignored",
            slips.answer(q_norm=slips.eps_ignored, kv_norm=slips.eps_ignored),
            "eps is 1e-6 in your norms, whatever the caller gives. Models differ in it: use the argument.",
        ),
        Misconception(
            "eps_outside_of_the_root",
            slips.answer(q_norm=slips.eps_outside, kv_norm=slips.eps_outside),
            "eps is added to the root. It is added to the mean of squares, under the root.",
        ),
        Misconception(
            "no_mask",
            slips.answer(mask="none"),
            "Tokens see those that come later. Token t attends to 0 ... t.",
        ),
        Misconception(
            "mask_turned",
            slips.answer(mask="turned"),
            "The mask leaves the later tokens and hides the earlier ones.",
        ),
        Misconception(
            "does_not_see_itself",
            slips.answer(mask="not itself"),
            "A token does not attend to itself. Token t attends to 0 ... t.",
        ),
        Misconception(
            "softmax_over_queries",
            slips.answer(axis=-2),
            "The softmax runs over the queries. The weights of one query, over the keys, add up to 1.",
        ),
        Misconception(
            "values_from_the_key_half",
            slips.answer(kv_b="values of the keys"),
            "Values are taken from the numbers that are keys. Of each head's rows in kv_b_proj the first nope make a "
            "key, the others a value.",
        ),
        Misconception(
            "values_before_keys",
            slips.answer(kv_b="values first"),
            "Of each head's rows in kv_b_proj you take the first for values. Keys come first.",
        ),
        Misconception(
            "keys_of_all_heads_first",
            slips.answer(kv_b="keys of all heads first"),
            "kv_b_proj is cut into keys of all heads and values of all heads. Its rows go by head: the key of head 0, "
            "the value of head 0, the key of head 1, and so on.",
        ),
        Misconception(
            "rope_before_nope_in_the_query",
            slips.answer(q_parts="rope nope"),
            "Of a head's query the first numbers are taken as its rope part. The nope part comes first.",
        ),
        Misconception(
            "rope_before_the_latent",
            slips.answer(kv_parts="rope latent"),
            "The first numbers of kv_a_proj_with_mqa's output are taken as the rope part. The latent comes first.",
        ),
        Misconception(
            "heads_inside",
            slips.answer(q_heads="inside"),
            "The query is cut into (numbers, heads). Heads are the outer axis: all numbers of head 0 come first.",
        ),
        Misconception(
            "heads_inside_of_the_output",
            slips.answer(output="numbers first"),
            "What goes into o_proj has heads as its inner axis: all values of head 0 come first. Look at the order of "
            "axes before you flatten them.",
        ),
        Misconception(
            "view_for_transpose",
            slips.answer(q_heads="viewed", kv_b="viewed"),
            "Heads are made by .view(B, heads, T, -1). A view moves no number: a head then gets numbers of other heads "
            "and tokens. First .view(B, T, heads, -1), then .transpose(1, 2).",
        ),
        Misconception(
            "view_for_transpose_there_and_back",
            slips.answer(q_heads="viewed", kv_b="viewed", output="viewed"),
            "Heads are made by .view(B, heads, T, -1), and taken back by .reshape(B, T, -1): no axis changes its place "
            "at all, so tokens mix. It takes a transpose(1, 2) on the way there, and one on the way back.",
        ),
        Misconception(
            "output_without_a_transpose",
            slips.answer(output="viewed"),
            "The values' sums, (B, heads, T, value), are reshaped to (B, T, heads · value) as they lie: a token gets "
            "results of others. transpose(1, 2) comes first.",
        ),
        Misconception(
            "query_and_key_joined_in_two_orders",
            slips.answer(crossed=True),
            "The query is joined as [rope, nope] and the key as [nope, rope]. The lengths fit, and the wrong numbers "
            "meet: one order for both.",
        ),
        Misconception(
            "head_number_for_position",
            slips.answer(turn_q=slips.by_head_number),
            "Queries are turned by the number of their head. Look at the axis that your rotation takes for positions: "
            "with (B, T, heads, rope) it is not the last but one.",
        ),
    ),
    hints=(
        "Write the shapes down first: which size does each weight tell? rank is the length of kv_a_layernorm, and "
        "what kv_a_proj_with_mqa has more is rope. Which of the seven knows nope + rope, and which nope + value?",
        "x -> q_a -> norm -> q_b -> heads -> nope and rope parts. x -> kv_a -> latent and rope part; norm the latent, "
        "turn the rope part; latent -> kv_b -> heads -> keys and values. A score is q_nope . key + q_rope . k_rope; "
        "k_rope has no head: give it an axis of length 1. RoPE: x[..., 0::2] and x[..., 1::2] are the pairs.",
        "q = (norm(x @ q_a.T) @ q_b.T).view(B, T, heads, -1).transpose(1, 2); kv = (latent @ kv_b.T).view(B, T, heads, "
        "-1).transpose(1, 2), split into [nope, value]; scores = q_nope @ keys.mT + q_rope @ k_rope[:, None].mT, times "
        "(nope + rope) ** -0.5, masked; (p @ values).transpose(1, 2).flatten(2) @ o.T.",
    ),
    explanation=(
        "Every projection goes through a narrow vector: queries through one, keys and values through another. The "
        "second is all that a later token needs of this one, and it has no head: so it is what the cache keeps, after "
        "the norm, because keys and values are made of the normed one. A rotation between the latent vector and the "
        "score would tie keys to their positions, so positions live in a part of their own, which one small key of "
        "all heads and the rope part of each query share."
    ),
)
