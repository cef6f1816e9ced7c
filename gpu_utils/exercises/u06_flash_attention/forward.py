"""06.forward: attention, a block of queries to each program, whose scores never reach memory."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u06_flash_attention import forward_slips as slips
from gpu_utils.exercises.u06_flash_attention.shared import FALL, fall, scores, tolerance_of_weights
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

COUNTED = 256
"""Queries from which on work is counted: blocks of up to 128 of them leave something to skip."""

MOST_COMPUTED = 0.8
"""Share of the N x N scores that a causal kernel computes where N is COUNTED: blocks of 16 to 128 queries and as many
keys need at most 3/4, and one that skips nothing, or whose waves repeat each other's work, 1 or more."""

LEAST_ROWS = 32
"""A block of as many queries meets the limit on loads, and so do all larger ones."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, (b, h, n, d) = getattr(torch, case["dtype"]), (case["B"], case["H"], case["N"], case["D"])
    q, k = (torch.randn(b, h, n, d, generator=generator) for _ in "qk")
    signs = 1 - 2 * torch.randint(2, (b, h, n, d), generator=generator)
    v = (torch.rand(b, h, n, d, generator=generator) + 0.5) * signs
    if case.get("scores") == "rise":
        q[..., 0], k[..., 0] = FALL, torch.arange(n)
    elif case.get("scores"):
        fall(q, k)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if case.get("views"):
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
        longer = torch.full((b, h, n + 5, d), math.nan, dtype=dtype)
        longer[:, :, :n] = k
        wider = torch.full((b, n + 3, h, d), math.nan, dtype=dtype)
        wider[:, :n] = v.transpose(1, 2)
        k, v = longer[:, :, :n], wider.transpose(1, 2)[:, :, :n]
    return {"q": q, "k": k, "v": v, "causal": case["causal"], "scale": case["scale"]}


def attention_reference(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """softmax(scale * q k^T) v, and the logarithm of each row's sum of exponentials, in float64."""
    s = scores(q, k, causal, scale)
    return torch.softmax(s, -1) @ v.double(), torch.logsumexp(s, -1)


def attention_tolerance(case: Case, inputs: Inputs) -> dict[int, Tolerance]:
    """Of (o, lse): each weight may be rounded to the type of v; scores and sums are float32."""
    q, k, v = (inputs[name] for name in "qkv")
    # a score is a sum whose terms have these sizes: its rounding errors are absolute ones of the logarithm
    largest = float((q.double().abs() @ k.double().abs().mT).max()) * inputs["scale"]
    terms = k.shape[2] + 2 * math.ceil(largest)
    return {
        0: tolerance_of_weights(v),
        1: tolerance(torch.float32, k=terms),
    }


def _is_counted(case: Case) -> bool:
    return bool(case["N"] == COUNTED)


def _full_flops(case: Case) -> float:
    """Two products of all queries with all keys."""
    return 4.0 * case["B"] * case["H"] * case["N"] ** 2 * case["D"]


def _most_loaded(case: Case) -> float:
    """q once, and for each block of queries the keys and values that its last one sees."""
    if not _is_counted(case):
        return math.inf
    blocks = case["N"] // LEAST_ROWS
    seen = (blocks + 1) / 2 if case["causal"] else blocks
    return 1.05 * case["B"] * case["H"] * case["N"] * case["D"] * 2 * (1 + 2 * seen)


def _most_stored(case: Case) -> float:
    return 1.05 * case["B"] * case["H"] * case["N"] * (2 * case["D"] + 4)


def _case(why: str, N: int, causal: bool, B: int = 1, H: int = 2, **more: object) -> Case:
    size = {"B": B, "H": H, "N": N, "D": 16, "causal": causal, "scale": 0.3, "dtype": "bfloat16"}
    return Case(why, **size | more)


def _fresh(rng: random.Random) -> Case:
    # odd: the compiler has met the like before
    return _case(
        "sizes nobody chose",
        N=2 * rng.randrange(10, 50) + 1,
        H=rng.randrange(2, 4),
        causal=rng.random() < 0.6,
        scale=rng.choice([0.2, 0.35, 0.5]),
        views=rng.random() < 0.5,
    )


EXERCISE = Exercise(
    id="06.forward",
    title="Attention whose scores never reach memory",
    parameters=("q", "k", "v", "causal", "scale"),
    kind="kernel",
    inputs=_inputs,
    reference=attention_reference,
    tolerance=attention_tolerance,
    dtype=lambda inputs: {0: inputs["q"].dtype, 1: torch.float32},
    parts=("o", "lse"),
    cases=(
        _case("all keys are seen; no size of a block divides N", 71, causal=False),
        _case("causal, with strides of their own, and NaN behind keys and values", 77, True, B=2, views=True),
        _case(
            "scores that fall from -300, far below a padded key; one more than whole blocks", 129, False, scores="fall"
        ),
        _case("scores that rise from key to key by 10: hidden ones are the largest", 91, causal=True, scores="rise"),
        _case("three positions", 3, causal=True),
        _case("wide heads: D is 64, with strides of their own", 70, True, D=64, dtype="float16", views=True),
        _case("whole blocks: here work and bytes are counted", COUNTED, True, H=1, D=32, scale=0.125, dtype="float16"),
    ),
    fresh=_fresh,
    limits=(
        Limit("launches", "Launch your own kernel: forward_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it, with a block of queries of one head to each program.",
            at_most=lambda case: 1,
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills): smaller blocks, "
            "or more warps to a program.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_store_bytes",
            "Only o and lse are to be stored, each element once: scores and weights stay on the chip.",
            at_most=_most_stored,
        ),
        Limit(
            "matrix_flops",
            "The products are not made by matrix instructions: tl.dot of tiles in 16 bits makes them, both of them.",
            at_least=lambda case: _full_flops(case) / (2 if case["causal"] else 1),
        ),
        Limit(
            "matrix_flops",
            "More is computed than a causal mask leaves. Either tiles of keys that no query of the block sees are not "
            "skipped, or several waves of a program compute the same: a matrix instruction takes 16 rows on sm_80 and "
            "32 on gfx942, and waves that find no rows of their own repeat those of others.",
            at_most=lambda case: MOST_COMPUTED * _full_flops(case) if _is_counted(case) else math.inf,
        ),
        Limit(
            "global_load_bytes",
            "Each block of queries loads the keys and values that it sees: the more queries a block has, the fewer "
            "times each key is loaded. Blocks of 32 queries load little enough.",
            at_most=_most_loaded,
        ),
    ),
    torch_may=(),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    failures=2,
    misconceptions=(
        Misconception(
            "no_scale",
            slips.other_scale(lambda launch: 1.0),
            "The scores are the products as they are: each has to be multiplied by `scale` before the exponential.",
        ),
        Misconception(
            "a_scale_of_its_own",
            slips.other_scale(lambda launch: launch.q.shape[-1] ** -0.5),
            "The scores are divided by the root of D, whatever `scale` says. That is its usual value; here it is a "
            "parameter.",
        ),
        Misconception(
            "powers_of_two",
            slips.other_scale(lambda launch: launch.scale * math.log(2)),
            "The weights are powers of 2: exp2(x) is e^x only when x was multiplied by log2(e) = 1.4427. Put that "
            "factor into the scale.",
        ),
        Misconception(
            "lse_in_base_two",
            slips.answer(ln_2=1.0),
            "o is right, and lse is the logarithm to base 2: log2(x) ln(2) = ln(x), for the maximum as for the sum.",
        ),
        Misconception(
            "lse_without_the_maximum",
            slips.answer(of_m=0.0),
            "o is right, and lse is the logarithm of l alone. l is relative to the maximum: it has to be added again.",
        ),
        Misconception(
            "vector_not_rescaled",
            slips.answer(keep_acc=1),
            "The sum of weights shrinks when the maximum grows, and the vector of weighted values does not. Both are "
            "sums of exp(s - m): the same factor belongs to both.",
        ),
        Misconception(
            "sum_not_rescaled",
            slips.answer(keep_l=1),
            "The weighted values are brought to the new maximum, and the sum l is not. When m grows, everything summed "
            "so far has to be multiplied by exp(m_old - m_new).",
        ),
        Misconception(
            "maximum_of_the_block",
            slips.answer(own_peak=1),
            "The maximum of each block replaces the one before, even where it is lower. Then the factor is above 1, "
            "and infinite where scores fall far. The maximum so far never falls.",
        ),
        Misconception(
            "mask_after_the_maximum",
            slips.answer(after_max=1),
            "The maximum still sees keys that the query does not. Where such a score is far above the others all "
            "visible weights are 0, and 0 / 0 is NaN. Mask first, then take the maximum.",
        ),
        Misconception(
            "padding_counts",
            slips.answer(keys=slips.FAR),
            "Keys behind the end count: loaded as 0, their score is 0, and exp(0 - m) goes into the sum. Their score "
            "has to be -inf.",
        ),
        Misconception(
            "padding_of_small_blocks_counts",
            slips.answer(blocks=(64, 32, 2), keys=slips.FAR),
            "Without causal, padded keys count: loaded as 0, they have the score 0 and the weight exp(0 - m). Their "
            "score has to be -inf.",
        ),
        Misconception(
            "own_key_hidden",
            slips.answer(change=slips.where_causal(ahead=-1)),
            "The query does not see its own position: with `<` the first query sees nothing, and 0 / 0 is NaN.",
        ),
        Misconception(
            "next_key_seen",
            slips.answer(change=slips.where_causal(ahead=1)),
            "The query sees one key too many, that of the next position. Position i sees keys 0 to i.",
        ),
        Misconception(
            "mask_forgotten",
            slips.answer(change=slips.where_causal(ahead=slips.FAR, reach=slips.FAR)),
            "`causal` is ignored: every query sees every key.",
        ),
        Misconception(
            "diagonal_skipped",
            slips.answer(change=slips.where_causal(reach=0)),
            "The loop ends before the tile on the diagonal: the first queries see nothing at all. It must go on until "
            "the last query of the block has its own key.",
        ),
        Misconception(
            "nothing_skipped",
            slips.answer(change=slips.where_causal(reach=slips.FAR)),
            "The numbers are right, and tiles that are hidden as a whole are loaded and computed, only to be masked. "
            "The loop over keys can end where the last query of the block is.",
        ),
        Misconception(
            "never_divided",
            slips.answer(divide=0),
            "o is the sum of weighted values, not divided by the sum of weights.",
        ),
        Misconception(
            "divided_in_the_loop",
            slips.answer(each_round=1, divide=0),
            "The vector is divided by l in every round, and the next round adds to it what is not divided yet. Divide "
            "once, behind the loop.",
        ),
        Misconception(
            "weights_rounded_before_the_sum",
            slips.answer(rounded_p=1),
            "l is the sum of weights that were rounded to 16 bits for tl.dot. Sum the float32 ones, and round "
            "afterwards.",
        ),
        Misconception(
            "scaled_in_16_bits",
            slips.answer(change=slips.scaled_in_half),
            "q was multiplied by the scale and rounded to 16 bits before the product. Multiply the scores: they are "
            "float32.",
        ),
        Misconception(
            "as_if_contiguous",
            slips.answer(change=slips.contiguous_strides),
            "It fails for views: the strides of batch, head and position are those of each tensor, x.stride(0) to "
            "x.stride(2).",
        ),
        Misconception(
            "loads_unmasked",
            slips.answer(rows_loaded=slips.FAR),
            "The last block of queries or keys reaches behind N. A weight of 0 does not help: 0 times NaN is NaN, and "
            "memory ends somewhere.",
        ),
        Misconception(
            "stores_unmasked",
            slips.answer(rows_stored=slips.FAR),
            "The last block of queries stores rows behind N: over the first ones of the next head, and past the end.",
        ),
        Misconception(
            "waves_repeat",
            slips.answer(blocks=(64, 64, 4)),
            "On gfx942 the matrix units do the work twice. The scores are dealt by rows, 32 to a wave: four waves want "
            "128 rows, your block has 64. P V is dealt 2 x 2, and 32 columns are one instruction. More rows, or "
            "num_warps=2.",
        ),
        Misconception(
            "few_queries",
            slips.answer(blocks=(16, 64, 1)),
            "The numbers are right, and keys and values are loaded too often: once for every 16 queries. Each of them "
            "serves all queries of its program, so take more.",
        ),
        Misconception(
            "computes_with_torch",
            slips.of_torch,
            "The numbers are right, but torch computed them, and stored all scores. Here it is your kernel's work.",
        ),
    ),
    hints=(
        "A program keeps its block of queries, a maximum and a sum for each of them, and a vector of D for each of "
        "them. What happens to each of the three when a block of keys arrives? Which is the last block of keys that "
        "the last query of a causal block sees?",
        "One round: s = tl.dot(q, k) * (scale * 1.4427), masked to -inf; new = maximum of m and the rows' maxima; p = "
        "tl.exp2(s - new); factor = tl.exp2(m - new); l and acc are multiplied by the factor and get tl.sum(p, 1) and "
        "tl.dot(p.to(v.dtype), v). Behind the loop o = acc / l and lse = (m + tl.log2(l)) * ln(2). 64 queries want "
        "two warps.",
        "The grid is (triton.cdiv(N, BLOCK_M), B * H); head // H and head % H go with strides 0 and 1. Load k turned: "
        "k_ptr + cols[None, :] * k_n + d[:, None], mask cols[None, :] < N. The loop is for start in range(0, end, "
        "BLOCK_N), end = tl.minimum(first + BLOCK_M, N) if CAUSAL, else N; s = tl.where(cols[None, :] <= rows[:, "
        'None], s, float("-inf")) if CAUSAL, else the same with cols[None, :] < N. num_warps=2 at the launch.',
    ),
    explanation=(
        "The softmax over keys is a merge of blocks with three things carried along: maximum, sum, and the vector of "
        "weighted values. So scores live in registers for one round, and what is stored grows with N. Loads grow with "
        "N * N / BLOCK_M: each block of queries reads all keys that it sees. A causal mask is first a shorter loop: "
        "tiles above the diagonal are never loaded, and about half of all work is gone; the mask itself is needed on "
        "the diagonal alone. Exponentials are cheapest in base 2, because the conversion is part of the scale. One "
        "number a row, lse, is all that the backward pass needs to make every weight again."
    ),
)
