"""06.backward: the three gradients of attention, with the weights made again tile by tile."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u06_flash_attention import backward_slips as slips
from gpu_utils.exercises.u06_flash_attention.backward_slips import BLOCK, FAR, LOG2_E, Gradients, answer
from gpu_utils.exercises.u06_flash_attention.shared import scores
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

COUNTED = 384
"""Queries and keys where work is counted: blocks of 128 leave something to skip."""

MOST_COMPUTED = 1.2
"""Share of seven products for each of the 21 tiles of 64 x 64 that hold a score that counts, on sm_80. Blocks of 128
need 1.14. What skips nothing for dq needs 1.31, for dk and dv 1.41, for all 1.71; with five products a tile 1.22."""

LINE_OF_GFX942 = 128
"""Bytes of a transaction there; on sm_80 they are 32."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype = getattr(torch, case.get("dtype", "float16"))
    shape = batch, heads, n, depth = case.get("B", 1), case["H"], case["N"], case.get("D", 32)
    far = case.get("apart", 0.0)  # q and k on opposite sides of 0: all scores are far below 0

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    q, k = (((0.3 if far else 1.0) * draw(*shape) + at).to(dtype) for at in (far, -far))
    v = (draw(*shape) + 0.3).to(dtype)
    if case.get("do") == "one number":
        do = (draw(1, 1, 1, 1).abs() + 0.5).to(dtype).expand(shape)
    elif case.get("do") == "heads inside":
        do = (draw(batch, n, heads, depth) + 0.3).to(dtype).transpose(1, 2)
    else:
        do = (draw(*shape) + 0.3).to(dtype)
    scale = case.get("scale", depth**-0.5)
    s = scores(q, k, case["causal"], scale)
    o, lse = (s.softmax(-1) @ v.double()).to(dtype), s.logsumexp(-1).float()
    return {"do": do, "q": q, "k": k, "v": v, "o": o, "lse": lse, "causal": case["causal"], "scale": scale}


def backward_reference(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool, scale: float
) -> Gradients:
    """What autograd makes of attention in float64; o and lse are not used.

    Written out, and tested against autograd: its first use in a process imports for half a second.
    """
    p = scores(q, k, causal, scale).softmax(-1)
    do, q, k, v = (x.double() for x in (do, q, k, v))
    dp = do @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.mT @ q, p.mT @ do


def _tolerance(case: Case, inputs: Inputs) -> dict[int, Tolerance]:
    # p and ds are rounded to the type of the inputs before they are multiplied again, each term for itself: so the
    # errors of a sum add up as the root of the sum of its terms' squares
    do, q, k, o = (inputs[name].double().abs() for name in ("do", "q", "k", "o"))
    s = scores(inputs["q"], inputs["k"], inputs["causal"], inputs["scale"])
    p = s.softmax(-1)
    dp, delta = (inputs["do"].double() @ inputs["v"].double().mT).abs(), (do * o).sum(-1, keepdim=True)
    ds = p * (dp + delta) * inputs["scale"]
    squares = (ds**2 @ k**2, (ds**2).mT @ q**2, (p**2).mT @ do**2)
    dtype = inputs["q"].dtype
    sizes = [float(terms.amax().sqrt()) for terms in squares]
    return {part: tolerance(dtype, magnitude=size, accumulator=dtype) for part, size in enumerate(sizes)}


def _tiles(case: Case) -> int:
    """Tiles of 64 x 64 that have a score that counts."""
    side = math.ceil(case["N"] / BLOCK)
    return side * (side + 1) // 2 if case["causal"] else side**2


def _is_counted(case: Case) -> bool:
    return bool(case["N"] == COUNTED)


@dataclass(frozen=True)
class _OfOneLine(Limit):
    """A limit for targets whose transactions have `line` bytes: on the others waves repeat work in other shapes."""

    line: int = 0

    def violation(self, case: Case, counters: Mapping[str, float]) -> str | None:
        return super().violation(case, counters) if counters.get("sector_bytes") == self.line else None


def _product(case: Case) -> int:
    """FLOPs of one of the products of a tile."""
    return int(2 * BLOCK * BLOCK * case.get("D", 32))


def _most_computed(case: Case, times: float) -> float:
    if not _is_counted(case):
        return math.inf
    return times * MOST_COMPUTED * 7 * _product(case) * _tiles(case) * _heads(case)


def _heads(case: Case) -> int:
    return int(case.get("B", 1) * case["H"])


def _most_stored(case: Case) -> float:
    # twice, so that dq may be stored in float32 first; and a row has delta and one more number of 4 bytes
    of_row = 2 * 3 * 2 * case.get("D", 32) + 8
    return 1.05 * _heads(case) * case["N"] * of_row


def _fresh(rng: random.Random) -> Case:
    causal = rng.random() < 0.6  # as the public cases have it, so that the compiler has met it before
    do = rng.choice(["contiguous", "heads inside"]) if causal else "one number"
    n, scale = rng.randrange(20, 100), rng.uniform(0.1, 0.4)
    return Case("sizes nobody chose", H=rng.randrange(2, 4), N=n, causal=causal, do=do, scale=scale)


EXERCISE = Exercise(
    id="06.backward",
    title="The gradients of attention, tile by tile",
    parameters=("do", "q", "k", "v", "o", "lse", "causal", "scale"),
    kind="kernel",
    inputs=_inputs,
    reference=backward_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: inputs["q"].dtype,
    parts=("dq", "dk", "dv"),
    cases=(
        Case("a single token", H=3, N=1, causal=True),
        Case("a tile that is not full", H=1, N=37, causal=True),
        Case("six tiles of 64 keys: here everything is counted", H=1, N=COUNTED, causal=True),
        Case(
            "not causal, do is one number, as after o.sum(), and all scores are near -128: the weight of a key that is "
            "not there would be infinite",
            H=2,
            N=69,
            causal=False,
            do="one number",
            apart=2.83,
            scale=0.5,
        ),
        Case(
            "several sequences, other numbers, and do as a model hands it on",
            B=2,
            H=2,
            N=65,
            D=16,
            causal=True,
            dtype="bfloat16",
            do="heads inside",
        ),
    ),
    fresh=_fresh,
    torch_may=(),
    limits=(
        Limit("launches", "Launch your own kernels, as many as you need, up to four.", at_least=lambda case: 1),
        Limit("launches", "At most four launches, for all heads together.", at_most=lambda case: 4),
        Limit(
            "blocks",
            "These are more programs than there is work for: each takes 16 rows of a head, or more.",
            at_most=lambda case: 3 * _heads(case) * math.ceil(case["N"] / 16),
        ),
        Limit(
            "matrix_flops",
            "The products are not made by matrix instructions. Triton issues them for tl.dot of two tiles.",
            at_least=lambda case: 5 * case["N"] ** 2 * case.get("D", 32) * _heads(case) if _is_counted(case) else 0,
        ),
        _OfOneLine(
            "matrix_flops",
            "Too many products. Seven a tile are enough (five, if dq is made where dk is), and tiles of 64 x 64 above "
            "the diagonal need none at all, neither for dq nor for dk and dv. Or blocks have fewer rows than their "
            "waves can share, 16 to each on sm_80: then waves repeat each other's work, and fewer warps or larger "
            "tiles help.",
            at_most=lambda case: _most_computed(case, 1.0),
            line=32,
        ),
        _OfOneLine(
            "matrix_flops",
            "Too many products. Tiles above the diagonal need none; and on gfx942 a matrix instruction takes 32 rows, "
            "so waves with too few of them do the same work. Twice is allowed. Take fewer warps or larger tiles.",
            at_most=lambda case: _most_computed(case, 2.0),
            line=LINE_OF_GFX942,
        ),
        Limit(
            "global_store_bytes",
            "dq, dk and dv are stored, and a number or two for each row. What else goes to memory? The N x N weights "
            "are to live in registers only, a tile at a time.",
            at_most=lambda case: _most_stored(case) if _is_counted(case) else math.inf,
        ),
        Limit("scratch_bytes", "Registers are spilled: take smaller tiles.", at_most=lambda case: 0),
    ),
    misconceptions=(
        Misconception(
            "without_delta",
            answer(use_delta=lambda q, causal, scale: 0.0),
            "dv is right, dq and dk are not: ds is p * dp. The weights of a row sum to 1, so when one rises the others "
            "fall. Which number of each row has to be taken from dp?",
        ),
        Misconception(
            "delta_of_do_and_do",
            answer(dq={"with_o": lambda q, causal, scale: 0.0, "with_do": lambda q, causal, scale: 1.0}),
            "delta is the sum of do * do along a row. Its second factor should be the output.",
        ),
        Misconception(
            "gradients_without_scale",
            answer(
                dq={"scale": lambda q, causal, scale: 1.0},
                dkdv={"scale": lambda q, causal, scale: 1.0},
            ),
            "dq and dk lack the factor `scale`: s = scale * q k^T, so it comes back with either of them.",
        ),
        Misconception(
            "dk_without_scale",
            answer(dkdv={"scale": lambda q, causal, scale: 1.0}),
            "dq is right, and dk lacks the factor `scale`: s = scale * q k^T, so it comes back with q as with k.",
        ),
        Misconception(
            "lse_for_dk_and_dv_in_base_2",
            answer(dkdv={"lse_by": lambda q, causal, scale: LOG2_E**2}),
            "dq is right. The kernel of dk and dv takes lse times log2(e), and exp of that: lse is natural, so the "
            "factor belongs to exp2 alone.",
        ),
        Misconception(
            "lse_taken_for_base_2",
            answer(lse_by=lambda q, causal, scale: 1.0),
            "exp2 wants both in base 2: the scores are multiplied by log2(e), lse is not. It is a natural logarithm.",
        ),
        Misconception(
            "dk_and_dv_exchanged",
            answer(order=lambda dq, dk, dv: (dq, dv, dk)),
            "dk and dv are exchanged: the result is (dq, dk, dv).",
        ),
        Misconception(
            "loop_on_the_wrong_side",
            answer(
                dkdv={
                    "from_first": lambda q, causal, scale: 0,
                    "to_first": lambda q, causal, scale: int(causal),
                    "end": lambda q, causal, scale: BLOCK if causal else q.shape[2],
                }
            ),
            "The loop for dk and dv ends at the diagonal, as that of the queries does. Which queries see a key, those "
            "before it or those behind it?",
        ),
        Misconception(
            "mask_on_the_wrong_side",
            answer(dkdv={"side": lambda q, causal, scale: -1 if causal else 1}),
            "dq is right. In the tiles of dk and dv the causal mask keeps the wrong half: rows are still queries "
            "there, and columns keys.",
        ),
        Misconception(
            "no_causal_mask",
            answer(diagonal=lambda q, causal, scale: -FAR),
            "Tiles above the diagonal are skipped, but those on it have keys behind their queries: mask them.",
        ),
        Misconception(
            "absent_keys_count",
            answer(last_key=lambda q, causal, scale: FAR),
            "It fails where scores are far below 0. A key behind the end is loaded as 0 and has the score 0, so its "
            "weight is exp(0 - lse): infinite, and infinity times 0 is NaN. Let p be 0 there.",
        ),
        Misconception(
            "queries_unmasked",
            answer(dkdv={"limit": lambda q, causal, scale: FAR}),
            "The last tile of queries reads past row N, into the next head or out of the tensor, and what it finds is "
            "added to dk and dv.",
        ),
        Misconception(
            "nothing_skipped",
            answer(
                dq={"from_first": lambda q, causal, scale: 0, "end": lambda q, causal, scale: q.shape[2]},
                dkdv={"from_first": lambda q, causal, scale: 0},
            ),
            "The numbers are right, and tiles that are masked as a whole are computed all the same. Where may the loop "
            "over queries begin, and that over keys end?",
        ),
        Misconception(
            "dkdv_begins_at_query_0",
            answer(dkdv={"from_first": lambda q, causal, scale: 0}),
            "The numbers are right, and the loop for dk and dv begins at query 0. No query before a tile's first key "
            "sees any of its keys.",
        ),
        Misconception(
            "dq_ends_at_the_last_key",
            answer(dq={"from_first": lambda q, causal, scale: 0, "end": lambda q, causal, scale: q.shape[2]}),
            "The numbers are right, and the loop for dq ends at the last key. No query of a tile sees a key behind the "
            "tile's last query.",
        ),
        Misconception(
            "do_as_contiguous",
            answer(strides=lambda do: (math.prod(do.shape[1:]), math.prod(do.shape[2:]), do.shape[3], 1)),
            "do is read as if it were contiguous. Autograd hands on what it has: after a transpose its strides differ, "
            "and after o.sum() all of them are 0.",
        ),
        Misconception(
            "stride_of_the_last_dimension",
            answer(dkdv={"d": lambda q, causal, scale: 1}),
            "dq is right, dk and dv are not where do is one number for all. It may have strides of 0: is each of its "
            "four strides used in both kernels?",
        ),
        Misconception(
            "delta_of_the_tile",
            answer("delta of the tile"),
            "It works while one tile has all keys. sum(p * dp) over a tile is a part of delta only; the whole of it is "
            "the sum of do * o along the row, which needs no other tile.",
        ),
        Misconception(
            "not_transposed",
            answer("not transposed"),
            "dq is right. dk and dv sum over queries, the rows of p and ds: so the tile must be turned before it is "
            "multiplied by q or do.",
        ),
        Misconception(
            "ds_not_transposed",
            answer("ds not transposed"),
            "dq and dv are right, and ds was not turned for dk: dk = ds^T q sums over queries, the rows of ds.",
        ),
        Misconception(
            "dq_in_memory",
            answer("dq in memory"),
            "Several programs load dq, add, and store it: what another one stored between the two is lost. Give each "
            "tile of queries a program of its own, or use tl.atomic_add to zeros in float32.",
        ),
        Misconception(
            "stores_the_weights",
            answer("stores p"),
            "The weights are stored, N x N of them for each head. Making them again from q, k and lse is what lets "
            "attention train on long sequences.",
        ),
        Misconception(
            "with_torch",
            slips.with_torch,
            "The numbers are right, and torch computed them. Here it is your kernels' work.",
        ),
    ),
    hints=(
        "A tile of scores has queries as rows and keys as columns. dq sums along its rows, dk and dv along its "
        "columns. So let a program of one kernel own 64 queries and walk over keys, and one of another kernel "
        "own 64 keys and walk over queries. Then nobody shares a sum.",
        "Both make p again: s = tl.dot(q, tl.trans(k)) * scale, p = exp(s - lse[:, None]), and 0 where the mask says "
        "so. Then dp = tl.dot(do, tl.trans(v)) and ds = p * (dp - delta[:, None]). The queries' kernel makes delta, "
        "the row sum of do * o, and can store it for the other one.",
        "dq = tl.dot(ds.to(k.dtype), k, dq), times scale at the end. dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv) and "
        "dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk). Causal: keys from 0 to first + BLOCK for the tile of queries "
        "that begins at first, and queries from first to N for the tile of keys that begins there.",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    failures=2,
    explanation=(
        "The forward pass leaves one number for each row, lse, and with it any tile of weights can be made again: "
        "p = exp(s - lse), without a maximum and without a sum. Of softmax's derivative only the row sum of p * dp "
        "needs all keys, and it is the row sum of do * o, which needs none. dq sums over keys and dk, dv over queries: "
        "two kernels, each with its own sums in registers, make s and dp twice, seven products in place of five, and "
        "need no atomics. One kernel with five products has to add dq in memory."
    ),
)
