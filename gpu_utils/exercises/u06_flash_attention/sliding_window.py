"""06.sliding_window: attention to the last keys only, with work that grows like N."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.exercises.u06_flash_attention import sliding_window_slips as slips
from gpu_utils.exercises.u06_flash_attention.shared import fall, tolerance_of_weights
from gpu_utils.exercises.u06_flash_attention.sliding_window_slips import BLOCK, FAR, answer
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

COUNTED = 384
"""Queries from which on work is counted: there a band is far less than a triangle."""

MOST_ROWS = 128
"""A block of as many queries meets the limit on work, with as many keys to a tile as BLOCK, and smaller ones do."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, shape = getattr(torch, case["dtype"]), (case.get("B", 1), case["H"], case["N"], case["D"])
    q, k = (torch.randn(shape, generator=generator) for _ in "qk")
    signs = 1 - 2 * torch.randint(2, shape, generator=generator)
    v = (torch.rand(shape, generator=generator) + 0.5) * signs
    if case.get("scores"):
        fall(q, k)
    return {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype), "window": case["window"]}


def sliding_window_reference(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """In float64: query i sees keys i - window + 1 to i."""
    s = q.double() @ k.double().mT * q.shape[-1] ** -0.5
    seen = torch.ones(s.shape[-2:], dtype=torch.bool).tril().triu(1 - window)
    return s.masked_fill(~seen, -math.inf).softmax(-1) @ v.double()


def _is_counted(case: Case) -> bool:
    return bool(case["N"] == COUNTED)


def _scores(case: Case) -> int:
    """Scores that count."""
    n, window = case["N"], min(case["window"], case["N"])
    return int(case.get("B", 1) * case["H"] * (n * window - window * (window - 1) // 2))


def _scores_of_tiles(case: Case, rows: int) -> int:
    """Scores of all tiles of `rows` queries and BLOCK keys that touch the band."""
    tiles = 0
    for first in range(0, case["N"], rows):
        low = max(0, first - case["window"] + 1) // BLOCK
        tiles += math.ceil(min(first + rows, case["N"]) / BLOCK) - low
    return int(case.get("B", 1) * case["H"] * tiles * rows * BLOCK)


def _fresh(rng: random.Random) -> Case:
    n, window = 2 * rng.randrange(25, 80) + 1, rng.randrange(2, 100)
    return Case("sizes nobody chose", H=rng.randrange(2, 4), N=n, D=16, window=window, dtype="float16")


EXERCISE = Exercise(
    id="06.sliding_window",
    title="Attention to the last keys, in time that grows like N",
    parameters=("q", "k", "v", "window"),
    kind="kernel",
    inputs=_inputs,
    reference=sliding_window_reference,
    tolerance=lambda case, inputs: tolerance_of_weights(inputs["v"]),
    cases=(
        Case("each query sees itself only", H=2, N=37, D=16, window=1, dtype="float16"),
        Case(
            "of the third block's keys the first is the last of a tile",
            B=2,
            H=2,
            N=141,
            D=32,
            window=66,
            dtype="bfloat16",
        ),
        Case("wider than the sequence: plain causal attention", H=2, N=65, D=16, window=200, dtype="float16"),
        Case(
            "as wide as a tile; scores fall from -250, by 8 a key",
            H=2,
            N=151,
            D=16,
            window=64,
            dtype="float16",
            scores="fall",
        ),
        Case("a long sequence: here everything is counted", H=1, N=COUNTED, D=16, window=40, dtype="float16"),
    ),
    fresh=_fresh,
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "Launch your own kernel, once: a block of queries of one head to each program.",
            at_least=lambda case: 1,
            at_most=lambda case: 1,
        ),
        Limit(
            "blocks",
            "These are more programs than there is work for: each takes a block of 16 queries, or more.",
            at_most=lambda case: case.get("B", 1) * case["H"] * math.ceil(case["N"] / 16),
        ),
        Limit(
            "matrix_flops",
            "The products are not made by matrix instructions: tl.dot of tiles in 16 bits makes them, both of them.",
            at_least=lambda case: 4.0 * case["D"] * _scores(case),
        ),
        Limit(
            "matrix_flops",
            "More is computed than the band needs. Tiles that no query of the block sees are to be skipped, those "
            "behind it and those too far before it; or several waves compute the same: each wants rows of its own, 16 "
            "at a time on sm_80 and 32 on gfx942.",
            at_most=lambda case: (
                1.05 * 4 * case["D"] * _scores_of_tiles(case, MOST_ROWS) if _is_counted(case) else math.inf
            ),
        ),
        Limit(
            "global_store_bytes",
            "Only the result is to be stored, each element once.",
            at_most=lambda case: 1.05 * 2 * case.get("B", 1) * case["H"] * case["N"] * case["D"] + 256,
        ),
        Limit("scratch_bytes", "Registers are spilled: take smaller blocks.", at_most=lambda case: 0),
    ),
    misconceptions=(
        Misconception(
            "one_key_too_many",
            answer(back=lambda n, window: window + 1, reach=lambda n, window: window),
            "A query sees one key too many. With a window of 1 it sees itself and nothing else: i - j must be less "
            "than the window.",
        ),
        Misconception(
            "one_key_too_few",
            answer(back=lambda n, window: window - 1),
            "A query sees one key too few; its own counts, too. With a window of 1 nothing is left.",
        ),
        Misconception(
            "to_both_sides",
            answer(
                ahead=lambda n, window: 1 - window,
                end=lambda n, window: BLOCK + window,
            ),
            "The window reaches forward as well as back: a query sees no key behind its own.",
        ),
        Misconception(
            "own_key_hidden",
            answer(ahead=lambda n, window: 1),
            "A query sees its own key, too: j <= i.",
        ),
        Misconception(
            "window_ignored",
            answer(back=lambda n, window: FAR, reach=lambda n, window: FAR),
            "This is causal attention to all keys: the window is nowhere.",
        ),
        Misconception(
            "whole_tiles",
            answer(back=lambda n, window: FAR),
            "Tiles before the window are skipped, but in the first tile that is left some keys are too far back for "
            "some rows. That edge of the band needs a mask as the diagonal does.",
        ),
        Misconception(
            "nothing_seen_yet",
            answer(floor=lambda n, window: float("-inf")),
            "NaN: the first tile of a block may hold no key for its last rows. Their maximum is -inf then, and -inf "
            "minus -inf is NaN.",
        ),
        Misconception(
            "begins_too_late",
            answer(round_by=lambda n, window: BLOCK - 1),
            "The loop begins too late, and keys of the window are lost. The first row of a block looks furthest back, "
            "not the last, and its first key lies inside of a tile: round down.",
        ),
        Misconception(
            "begins_below_0",
            answer(lowest=lambda n, window: -FAR // 2**16),
            "For the first queries the loop begins below key 0, and reads before the head's first key.",
        ),
        Misconception(
            "begins_at_0",
            answer(reach=lambda n, window: FAR),
            "The numbers are right, and every block of queries begins with key 0: tiles that the mask hides as a "
            "whole. So the work still grows like N * N.",
        ),
        Misconception(
            "goes_to_the_end",
            answer(end=lambda n, window: n),
            "The numbers are right, and every block of queries goes on to the last key, behind the diagonal.",
        ),
        Misconception(
            "no_rescale",
            answer(rescale=lambda n, window: 0.0),
            "When a later tile has a larger score, what was summed before belongs to a smaller maximum: it has to be "
            "multiplied by exp(old - new).",
        ),
        Misconception(
            "masked_with_0",
            answer(fill=lambda n, window: 0.0),
            "What is masked gets the score 0, and exp(0 - m) is a weight. Which score has the weight 0?",
        ),
        Misconception(
            "no_scale",
            answer(with_scale=False),
            "The scores lack their factor, one over the root of D.",
        ),
        Misconception(
            "with_torch",
            slips.with_torch,
            "The numbers are right, and torch computed them. Here it is your kernel's work.",
        ),
    ),
    hints=(
        "Draw the scores as a square with queries downwards. What is seen is a band along the diagonal. Which tiles "
        "does a block of 64 queries need, and which of them have an edge of the band inside?",
        "The block's first row looks furthest back, its last row furthest ahead. So keys go from first - window + 1, "
        "not below 0 and rounded down to a tile, to first + BLOCK_M. The mask asks twice: j <= i, and i - j < window.",
        "begin = tl.maximum(first - window + 1, 0) // BLOCK_N * BLOCK_N. In the first tile a row may see nothing: its "
        "maximum is -inf. Use safe = tl.where(new == float('-inf'), 0.0, new) in p = exp2(s - safe) and in the factor "
        "exp2(m - safe).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "A block of 64 queries needs the keys from its first row's window to its last row: window + 63 of them, "
        "however long the sequence is. So the work is N times the window, not N times N. Both ends of the loop follow "
        "from the block's first and last row, and both need a mask for the rows between. Causal tiles never begin with "
        "a row that has seen nothing, because key 0 is seen by all; in a band they do, and a maximum of -inf must not "
        "be subtracted from -inf."
    ),
)
