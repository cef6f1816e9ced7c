"""06.decode: one new query for each sequence against a cache that several programs share."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.exercises.u06_flash_attention import decode_slips as slips
from gpu_utils.exercises.u06_flash_attention.shared import (
    MOST_OF_A_PROGRAM,
    PEAK,
    attended,
    drawn_queries,
    dtype_of,
    tolerance_of_decoding,
)
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    lengths, H, S, D = case["lengths"], case["H"], case["S"], case["D"]
    B, dtype = len(lengths), dtype_of(case)
    q = drawn_queries((B, H, D), dtype, generator)
    both = torch.randn(B, S, 2, H, D, generator=generator)
    if case.get("peak"):
        # near PEAK, near its negative, and falling from the one to the other: by 96 in 32 positions, so that even exp
        # of a difference is infinite
        wanted = torch.stack([torch.full((S,), PEAK), torch.full((S,), -PEAK), torch.linspace(PEAK, -PEAK, S)])
        along = q.float() * (math.sqrt(D) / q.float().square().sum(2, keepdim=True))
        both[:, :, 0] += along[:, None] * wanted[:B, :, None, None]
    for b, length in enumerate(lengths):
        both[b, length:] = math.nan  # whatever was there before
    both = both.to(dtype)
    k, v = both[:, :, 0], both[:, :, 1]
    if not case.get("packed"):
        k, v = k.contiguous(), v.contiguous()
    return {"q": q, "k": k, "v": v, "lengths": torch.tensor(lengths, dtype=torch.int32), "splits": case["splits"]}


def decode_reference(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int) -> Tensor:
    """Attention of each query to the valid part of its cache, in float64."""
    return torch.stack([attended(q[b], k[b, :n], v[b, :n]) for b, n in enumerate(lengths.tolist())])


def _programs(case: Case) -> int:
    return len(case["lengths"]) * int(case["H"]) * int(case["splits"])


def _most_load_bytes(case: Case) -> float:
    valid = 2 * sum(case["lengths"]) * case["H"] * case["D"] * dtype_of(case).itemsize
    return 1.05 * valid + MOST_OF_A_PROGRAM * (_programs(case) + len(case["lengths"]) * case["H"])


def _most_store_bytes(case: Case) -> float:
    # a part is a vector, its m and its l, perhaps more numbers; the result
    return _programs(case) * (case["D"] + 16) * 4 + len(case["lengths"]) * case["H"] * case["D"] * 2 + 1024


COUNTED, MOST_UNEVEN = (512, 64), 2.4
"""Lengths of the case whose bytes are counted, and what a program may load there, of the mean: in halves of each cache
256 positions, 1.8 times the mean of 144. A whole cache is 3.6 times."""


def _case(why: str, lengths: tuple[int, ...], H: int, S: int, splits: int, D: int = 32, **more: object) -> Case:
    given = {"dtype": "bfloat16", **more}
    return Case(why, lengths=lengths, H=H, S=S, D=D, splits=splits, **given)


def _fresh(rng: random.Random) -> Case:
    S = rng.randrange(60, 200)
    lengths = tuple(rng.randrange(1, S) for _ in range(rng.randrange(2, 4)))
    return _case("lengths nobody chose", lengths, rng.randrange(2, 4), S, rng.randrange(2, 6))


EXERCISE = Exercise(
    id="06.decode",
    title="One new token: a cache shared by several programs",
    parameters=("q", "k", "v", "lengths", "splits"),
    kind="kernel",
    inputs=_inputs,
    reference=decode_reference,
    tolerance=tolerance_of_decoding,
    cases=(
        _case("a long cache and a short one: here bytes are counted", COUNTED, 2, 512, 2, D=64, dtype="float16"),
        _case("lengths of all kinds, and no part is whole blocks", (37, 1, 150), 2, 150, 4),
        _case("more parts than entries: some parts are empty", (5, 2), 1, 20, 7),
        _case("a single part of several blocks", (90, 61), 1, 91, 1),
        _case("k and v lie side by side in one tensor", (70, 33), 3, 80, 3, D=64, dtype="float16", packed=True),
        _case("scores near 150, near -150, and falling", (100, 77, 100), 1, 100, 2, D=64, dtype="float16", peak=True),
    ),
    fresh=_fresh,
    torch_may=(),
    seconds=30.0,
    limits=(
        Limit(
            "launches",
            "One kernel for the parts, and one that merges them.",
            at_least=lambda case: 1,
            at_most=lambda case: 2,
        ),
        Limit(
            "blocks",
            "Each part of each head of each sequence is a program of its own, B * H * splits of them: that is what "
            "fills the chip. The merge takes a few programs more.",
            at_least=_programs,
            at_most=lambda case: _programs(case) + len(case["lengths"]) * case["H"] * case["D"],
        ),
        Limit(
            "global_load_bytes",
            "Only the valid part of each cache is to be loaded, and each element of it once: k for the scores and v "
            "for their sum, block by block, in one pass. Masks and the end of the loop decide what is loaded.",
            at_most=_most_load_bytes,
        ),
        Limit(
            "global_store_bytes",
            "A part leaves a vector of D numbers, its peak and its sum; scores stay in registers.",
            at_most=_most_store_bytes,
        ),
        Limit(
            "scratch_bytes",
            "Registers spill to memory: take smaller blocks of the cache.",
            at_most=lambda case: 0,
        ),
        Limit(
            "uneven_loads",
            "One part has far more of its cache than the others, and the chip waits for it. What is the length of a "
            "part?",
            at_most=lambda case: MOST_UNEVEN if case["lengths"] == COUNTED else math.inf,
        ),
    ),
    misconceptions=(
        Misconception(
            "all_in_part_0",
            slips.answer("all in part 0"),
            "Part 0 takes a whole cache and the others nothing. A part is a share of the sequence's own length: that, "
            "divided by `splits`, rounding up.",
        ),
        Misconception(
            "lengths_ignored",
            slips.answer(used=0, more=lambda S: S),
            "The whole cache takes part. Behind lengths[b] entries lies whatever was there before: the loop, and the "
            "parts, must end at the length.",
        ),
        Misconception(
            "length_of_sequence_0",
            slips.answer(length_stride=0),
            "Every sequence is taken to be as long as the first one. The length of a sequence is entry b.",
        ),
        Misconception(
            "one_entry_too_many",
            slips.answer(more=lambda S: 1),
            "One entry too many takes part: a cache of n valid entries ends with entry n - 1.",
        ),
        Misconception(
            "last_entry_lost",
            slips.answer(more=lambda S: -1),
            "The newest entry of each cache is missing. It is valid: the new token attends to itself, too.",
        ),
        Misconception(
            "empty_part",
            slips.answer("divides", "multiplied by total"),
            "NaN where a part is empty. Either it divides its vector by its sum, and 0 / 0 is NaN: divide once, behind "
            "the merge. Or the merge meets it first: it left m = -inf, and takes -inf from -inf.",
        ),
        Misconception(
            "parts_round_down",
            slips.answer(down=True),
            "The last entries of a cache are in no part: length // splits rounds down. Round up, and let the last part "
            "end where the cache does.",
        ),
        Misconception(
            "unscaled",
            slips.answer(scale=lambda width: 1.0),
            "The scores lack their factor, so the softmax is much too sharp.",
        ),
        Misconception(
            "scaled_by_the_width",
            slips.answer(scale=lambda width: 1 / width),
            "The scores are divided by D. It is its root: a sum of D products of random numbers grows with sqrt(D).",
        ),
        Misconception(
            "no_peak",
            slips.answer("no peak"),
            "exp of a large score is infinite, and where all scores are far below 0 all weights are 0. Keep the "
            "largest score so far, and subtract it before exp.",
        ),
        Misconception(
            "numerator_unscaled",
            slips.answer("numerator unscaled"),
            "When a block brings a higher peak, the sum of weights shrinks and the vector does not. Both were taken "
            "relative to the old peak.",
        ),
        Misconception(
            "padding_counts",
            slips.answer("padding counts"),
            "Lanes behind the end of a part count: their score is 0, and exp of 0 - peak is added to l. A score that "
            "must not count is -inf.",
        ),
        Misconception(
            "merge_adds",
            slips.answer(merge="adds"),
            "The parts are added as they are. Each is relative to the peak of its own: bring them to a common peak "
            "first, vector and sum alike.",
        ),
        Misconception(
            "merge_averages",
            slips.answer(merge="averages"),
            "The result is the mean of the parts' results. A part with larger scores counts more: its weight is its "
            "own sum, relative to the common peak.",
        ),
        Misconception(
            "parts_divided",
            slips.answer("divides"),
            "Parts come divided by their own sums and are merged as if they were not; and an empty one is 0 / 0. "
            "Divide once, after the merge.",
        ),
        Misconception(
            "sums_not_rescaled",
            slips.answer(merge="sums as they are"),
            "In the merge the vector shrinks and l does not. Both are relative to a peak, and both need the factor.",
        ),
        Misconception(
            "into_the_next_part",
            slips.answer("into the next part"),
            "Entries at a border count twice: a part runs into the next one. Compare with the end of the part, not "
            "with the length.",
        ),
        Misconception(
            "heads_before_positions",
            slips.answer(strides=lambda k: (k.stride(0), k.shape[3], k.shape[1] * k.shape[3])),
            "It is written for a cache of shape (B, H, S, D). Here positions come before heads: the next position of "
            "the same head is stride(1) further on.",
        ),
        Misconception(
            "as_if_contiguous",
            slips.answer(strides=lambda k: (k[0].numel(), k.shape[2] * k.shape[3], k.shape[3])),
            "It fails where k and v are parts of one tensor: from position to position it is k.stride(1) elements, "
            "whatever the shape says.",
        ),
        Misconception(
            "splits_ignored",
            slips.answer(one_part=True),
            "The numbers are right, and each cache is walked through by one program. A chip with hundreds of units "
            "wants `splits` times as many.",
        ),
        Misconception(
            "masks_late",
            slips.answer("masks late", used=0, more=lambda S: S),
            "The numbers are right, and the whole cache is loaded, valid or not. What the mask of the load and the end "
            "of the loop leave out costs nothing.",
        ),
        Misconception(
            "torch_merges",
            slips.torch_merges,
            "The parts are right, and torch merges them: here that is your second kernel's work.",
        ),
    ),
    hints=(
        "A cache of 10 entries, three parts: which entries has part 1, and where does the last part end? What are m, l "
        "and the vector of a part with no entry, and what does each contribute to the merge?",
        "Program (b, h, split) reads lengths[b], and its part begins at split * cdiv(length, splits). Its loop keeps "
        "m, l and a vector of D sums, as lesson 06 does for a tile, with one row. It stores all three, undivided. The "
        "merge does the same to parts that the loop did to blocks: factor exp(m - new) for what it has, exp(m_part - "
        "new) for what comes.",
        "scores = tl.where(there, tl.sum(q[None, :] * k, axis=1), float('-inf')); new = tl.maximum(m, tl.max(scores, "
        "axis=0)); p = tl.exp(scores - new); factor = tl.exp(m - new); l = l * factor + tl.sum(p, axis=0); acc = acc * "
        "factor + tl.sum(p[:, None] * v, axis=0). tl.num_programs(2) is `splits`; an empty part leaves -inf, 0 and "
        "zeros, and exp(-inf - new) is 0.",
    ),
    explanation=(
        "Decoding reads each key and value once for two FLOPs a number, so memory decides, and memory is busy only "
        "when enough programs ask. Sequences times heads are few; parts of the cache multiply them. A part is a "
        "softmax of its own, with its peak, its sum and its vector, and two of these merge by the same factors that "
        "merge two blocks of a row, in any order. A part without entries has -inf, 0 and zeros, the neutral element "
        "of that merge, as long as nobody divides it by its own sum. Parts cost splits * (D + 2) numbers for each "
        "head, nothing beside a long cache."
    ),
)
