"""06.gqa: several query heads share keys and values, which a program loads once for all of them."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.exercises.u06_flash_attention import gqa_slips as slips
from gpu_utils.exercises.u06_flash_attention.gqa_slips import FAR, answer
from gpu_utils.exercises.u06_flash_attention.shared import fall, tolerance_of_weights
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

COUNTED = 512
"""Keys from which on bytes and work are counted: there the queries are next to nothing."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, batch, heads, kv_heads = getattr(torch, case["dtype"]), case.get("B", 1), case["H"], case["H_kv"]
    n, length, depth = case["N"], case["S"], 32
    q, k = (torch.randn(batch, h, m, depth, generator=generator) for h, m in ((heads, n), (kv_heads, length)))
    signs = 1 - 2 * torch.randint(2, k.shape, generator=generator)
    v = (torch.rand(k.shape, generator=generator) + 0.5) * signs
    if case.get("scores"):
        fall(q[:, :1], k[:, :1])

    def in_a_cache(x: Tensor) -> Tensor:
        """Room for more positions behind the last one, which nobody has written yet."""
        if case.get("cache") == "heads inside":
            longer = torch.full((batch, length + 7, kv_heads, depth), math.nan, dtype=dtype).transpose(1, 2)
        else:
            longer = torch.full((batch, kv_heads, length + 7, depth), math.nan, dtype=dtype)
        longer[:, :, :length] = x
        return longer[:, :, :length]

    return {"q": q.to(dtype), "k": in_a_cache(k), "v": in_a_cache(v), "causal": case["causal"]}


def gqa_reference(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """In float64: head h of q with head h // (H / H_kv) of k and v; the last query stands at the last key."""
    group, (n, length) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    s = q.double() @ k.mT * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(~torch.ones(n, length, dtype=torch.bool).tril(length - n), -math.inf)
    return s.softmax(-1) @ v


def _is_counted(case: Case) -> bool:
    return bool(case["S"] >= COUNTED)


def _keys(case: Case) -> int:
    """Rows of k, and of v, in all of its heads."""
    return int(case.get("B", 1) * case["H_kv"] * case["S"])


def _fresh(rng: random.Random) -> Case:
    kv_heads, n = rng.randrange(1, 4), rng.randrange(1, 4)
    group, length = rng.randrange(2, 6), rng.randrange(20, 150)
    sizes = {"H": kv_heads * group, "H_kv": kv_heads, "N": n, "S": length, "dtype": "float16"}
    return Case("sizes nobody chose", **sizes, causal=rng.random() < 0.7)


EXERCISE = Exercise(
    id="06.gqa",
    title="Query heads that share keys, in one tile",
    parameters=("q", "k", "v", "causal"),
    kind="kernel",
    inputs=_inputs,
    reference=gqa_reference,
    tolerance=lambda case, inputs: tolerance_of_weights(inputs["v"]),
    cases=(
        Case("a token and its own key", H=4, H_kv=2, N=1, S=1, causal=True, dtype="float16"),
        Case(
            "as many heads of keys as of queries, not causal, the first with scores that fall from -180",
            H=2,
            H_kv=2,
            N=5,
            S=83,
            causal=False,
            scores="fall",
            dtype="float16",
        ),
        Case("one new token for each of two sequences", B=2, H=8, H_kv=2, N=1, S=37, causal=True, dtype="float16"),
        Case(
            "three new tokens, groups of three, positions before heads in the cache",
            B=2,
            H=6,
            H_kv=2,
            N=3,
            S=70,
            causal=True,
            cache="heads inside",
            dtype="bfloat16",
        ),
        Case("one head of keys for all, and 65 rows", H=13, H_kv=1, N=5, S=41, causal=True, dtype="float16"),
        Case("a long cache: here everything is counted", H=16, H_kv=2, N=1, S=COUNTED, causal=True, dtype="float16"),
    ),
    fresh=_fresh,
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "Launch your own kernel, once, for all heads and sequences.",
            at_least=lambda case: 1,
            at_most=lambda case: 1,
        ),
        Limit(
            "matrix_flops",
            "The products are not made by matrix instructions: tl.dot of tiles in 16 bits makes them, both of them.",
            at_least=lambda case: 2.0 * 32 * case["H"] * case["N"] * case["S"] if _is_counted(case) else 0,
        ),
        Limit(
            "global_load_bytes",
            "Keys and values are loaded again for each query head that shares them. Let one program take all queries "
            "of a group, as rows of one tile.",
            at_most=lambda case: 2.2 * 2 * 2 * 32 * _keys(case) if _is_counted(case) else math.inf,
        ),
        Limit(
            "matrix_flops",
            "The matrix instructions work on empty rows. A tile has 16 rows at least, and one query fills one of them: "
            "the other heads of its group fill some more.",
            at_most=lambda case: 4.2 * 4 * 32 * 16 * _keys(case) if _is_counted(case) else math.inf,
        ),
        Limit(
            "global_store_bytes",
            "Only the result is to be stored, each element once.",
            at_most=lambda case: 1.05 * 2 * case.get("B", 1) * case["H"] * case["N"] * 32 + 256,
        ),
        Limit("scratch_bytes", "Registers are spilled: take smaller blocks.", at_most=lambda case: 0),
    ),
    misconceptions=(
        Misconception(
            "every_other_head",
            answer(by=lambda q, k, causal: 1, step=lambda q, k, causal: k.shape[1]),
            "Head h of q is given head h % H_kv of k. Heads of a group are neighbours: heads 0 to H / H_kv - 1 share "
            "the first one.",
        ),
        Misconception(
            "causal_by_packed_row",
            answer(mod=lambda q, k, causal: FAR if causal else 1),
            "The causal mask compares rows of the tile with keys. Row r holds a query of some head: which position "
            "does it stand at, when each head has N of them?",
        ),
        Misconception(
            "causal_by_head",
            answer(div=lambda q, k, causal: q.shape[2], mod=lambda q, k, causal: FAR if causal else 1),
            "Row r is query r % N; r // N is its head, and the causal mask compares that with keys.",
        ),
        Misconception(
            "sequence_for_head",
            answer(
                heads_of_kv=lambda q, k, causal: FAR,
                strides=lambda k: (k.stride(0) + k.stride(1), *k.stride()[1:3]),
            ),
            "The second head of keys is not that of the first sequence: of a program for sequence and head together, "
            "% H_kv gives the head and // H_kv the sequence.",
        ),
        Misconception(
            "queries_at_the_beginning",
            answer(offset=lambda q, k, causal: 0 if causal else k.shape[2] - 1),
            "Query i is taken to stand at position i. The queries are the newest tokens: the last one stands at the "
            "last key.",
        ),
        Misconception(
            "own_key_hidden",
            answer(offset=lambda q, k, causal: k.shape[2] - q.shape[2] - 1 if causal else k.shape[2] - 1),
            "A query sees its own key, too. The last one sees all S of them.",
        ),
        Misconception(
            "never_causal",
            answer(offset=lambda q, k, causal: k.shape[2] - 1, mod=lambda q, k, causal: 1),
            "With one new token it is right. Of several, the first does not see the keys of those behind it.",
        ),
        Misconception(
            "absent_keys_count",
            answer(offset=lambda q, k, causal: k.shape[2] - q.shape[2] if causal else FAR),
            "Where it is not causal, keys behind the end count. They are loaded as 0, and a score of 0 has a weight.",
        ),
        Misconception(
            "program_for_each_head",
            answer(
                each=lambda q, k, causal: q.shape[1],
                rows=lambda q, k, causal: q.shape[2],
                by=lambda q, k, causal: 1,
                heads_of_kv=lambda q, k, causal: q.shape[1] // k.shape[1],
            ),
            "The numbers are right, and each query head has a program of its own, which loads the keys and values that "
            "it shares with others. They could be loaded once for the group.",
        ),
        Misconception(
            "one_tile_of_rows",
            answer(tiles=lambda rows: 1),
            "Rows are missing where a group has more queries than a tile has rows: it needs several programs.",
        ),
        Misconception(
            "group_is_h_kv",
            answer(rows=lambda q, k, causal: k.shape[1] * q.shape[2], by=lambda q, k, causal: k.shape[1]),
            "H_kv is the number of groups. How many heads are in one?",
        ),
        Misconception(
            "cache_as_contiguous",
            answer(strides=lambda k: (k.shape[1] * k.shape[2] * k.shape[3], k.shape[2] * k.shape[3], k.shape[3])),
            "k and v are parts of a longer cache: from one head to the next it is k.stride(1) elements, and from one "
            "position to the next k.stride(2).",
        ),
        Misconception(
            "first_sequence_only",
            answer(strides=lambda k: (0, *k.stride()[1:3])),
            "All sequences read the cache of the first one.",
        ),
        Misconception(
            "no_scale",
            answer(with_scale=False),
            "The scores lack their factor, one over the root of D.",
        ),
        Misconception(
            "repeats_keys",
            slips.repeated,
            "repeat_interleave copies keys and values once for each head, which is what sharing them should save.",
        ),
        Misconception(
            "with_torch",
            slips.with_torch,
            "The numbers are right, and torch computed them. Here it is your kernel's work.",
        ),
    ),
    hints=(
        "A program loads a tile of keys and uses it for 16 queries or more. One head may have a single query. Who else "
        "needs the same keys?",
        "The queries of a group lie side by side in memory: H / H_kv heads of N rows each are one matrix of "
        "H / H_kv * N rows. Row r of it is query r % N of head r // N. The grid has a program for each head of keys.",
        "rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), and at = (tl.program_id(1) * GROUP * N + "
        "rows[:, None]) * D + d[None, :]. The last key that row r sees is S - N + r % N if causal, else S - 1.",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "In decoding nearly all bytes are keys and values, and nearly no work is done with them: one query a head. A "
        "group's heads want the same ones, so their queries become rows of one tile: keys are loaded once for all of "
        "them, and rows of the matrix instruction that would be empty are filled. q needs no rearrangement, because "
        "the heads of a group are neighbours. Only the causal mask has to know that row r is query r % N."
    ),
)
