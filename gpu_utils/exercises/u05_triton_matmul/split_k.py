"""05.split_k: a product with few tiles and a long K, cut along K so that more programs have work."""

from __future__ import annotations

import math
import random

import torch
import triton
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u05_triton_matmul import split_k_slips as slips
from gpu_utils.exercises.u05_triton_matmul.split_k_slips import BLOCK
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

MOST_DEEP = 128
"""Depth of a tile: where K has fewer blocks than there are parts, fewer programs are no mistake."""


MANY, MOST_UNEVEN = 10, 4.0
"""Where there are so many parts, none loads more than so many times the average: empty parts, which blocks of 128 leave
of 14, make it 1.6, and a tile of fewer columns than its neighbour twice as much."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(getattr(torch, case["dtype"]))

    M, N, K = case["M"], case["N"], case["K"]
    return {"a": draw(M, K), "b": draw(K, N), "splits": case["splits"], "deterministic": case["deterministic"]}


def split_k_reference(a: Tensor, b: Tensor, splits: int, deterministic: bool) -> Tensor:
    """a @ b in float64."""
    return a.double() @ b.double()


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # one rounding: a part that was rounded by itself is off by a share of the part, however small the sum is
    return tolerance(inputs["a"].dtype, k=case["K"], roundings=1)


def _parts(case: Case) -> int:
    """Programs that each tile has at least."""
    return min(case["splits"], triton.cdiv(case["K"], MOST_DEEP))


def _least_blocks(case: Case) -> int:
    return triton.cdiv(case["M"], 64) * triton.cdiv(case["N"], 64) * _parts(case)


def _most_blocks(case: Case) -> int:
    tiles = triton.cdiv(case["M"], 16) * triton.cdiv(case["N"], 16)
    return tiles * case["splits"] + case["M"] + triton.cdiv(case["M"] * case["N"], 64)


def _most_load_bytes(case: Case) -> float:
    M, N, K = case["M"], case["N"], case["K"]
    of_tiles = 2 * K * (triton.cdiv(N, BLOCK) * M + triton.cdiv(M, BLOCK) * N)
    # the sums: where a row of them has fewer elements than a program has lanes, several lanes load the same one
    lanes = max(4, 256 // triton.next_power_of_2(N))
    return 1.05 * of_tiles + lanes * 4 * case["splits"] * M * N + 1024


def _least_atomics(case: Case) -> float:
    return 0 if case["deterministic"] or _parts(case) < 2 else case["M"] * case["N"]


def _padded(case: Case) -> int:
    return 64 * triton.cdiv(case["M"], 64) * 64 * triton.cdiv(case["N"], 64)


def _most_atomics(case: Case) -> float:
    return 0 if case["deterministic"] else _padded(case) * case["splits"]


def _most_flops(case: Case) -> float:
    # 8: on gfx942 four waves compute the same 32 x 32 tile, each for itself, and eight waves would, too
    return 8 * 2 * _padded(case) * (64 * triton.cdiv(case["K"], 64) + 64 * case["splits"])


def _case(why: str, M: int, N: int, K: int, splits: int, *, deterministic: bool, dtype: str = "bfloat16") -> Case:
    return Case(why, M=M, N=N, K=K, splits=splits, deterministic=deterministic, dtype=dtype)


def _fresh(rng: random.Random) -> Case:
    # odd: the compiler has met the like before
    return _case(
        "sizes nobody chose",
        M=2 * rng.randrange(3, 30) + 1,
        N=2 * rng.randrange(3, 30) + 1,
        K=2 * rng.randrange(100, 200) + 1,
        splits=rng.randrange(2, 7),
        deterministic=rng.random() < 0.5,
    )


EXERCISE = Exercise(
    id="05.split_k",
    title="K cut into parts, so that a small result fills the chip",
    parameters=("a", "b", "splits", "deterministic"),
    kind="kernel",
    inputs=_inputs,
    reference=split_k_reference,
    tolerance=_tolerance,
    cases=(
        _case("one tile, and a long K: only its parts make programs", 3, 31, 1037, 14, deterministic=False),
        _case("the same, with parts added in order", 3, 31, 1037, 14, deterministic=True),
        _case("four tiles; the last part is shorter, and ends inside a block", 40, 50, 383, 3, deterministic=False),
        _case("four tiles and parts of unlike length, added in order", 40, 50, 383, 3, deterministic=True),
        _case("more parts than blocks of K: some have nothing to do", 19, 27, 75, 7, deterministic=False),
        _case("the same; a part that is empty is still added", 19, 27, 75, 7, deterministic=True),
        _case("a single part", 33, 65, 65, 1, deterministic=False),
        _case("float16", 40, 50, 301, 4, deterministic=True, dtype="float16"),
    ),
    fresh=_fresh,
    limits=(
        Limit(
            "launches",
            "One kernel for the product, and one that adds up or rounds: two at most.",
            at_least=lambda case: 1,
            at_most=lambda case: 2,
        ),
        Limit(
            "blocks",
            "Each part of each tile is to be a program of its own: that is what fills the chip. The grid needs a third "
            "dimension, or tiles * splits programs in one; and the second kernel takes a block of elements at a time.",
            at_least=_least_blocks,
            at_most=_most_blocks,
        ),
        Limit(
            "global_atomics",
            "Atomics arrive in whatever order they like, and float32 sums depend on it: where `deterministic` is True "
            "there may be none. Where it is False, each part adds its tile once, after its loop.",
            at_least=_least_atomics,
            at_most=_most_atomics,
        ),
        Limit(
            "global_load_bytes",
            "Each part needs its own columns of a and its own rows of b, and no others. Does a part load what belongs "
            "to another one?",
            at_most=_most_load_bytes,
        ),
        Limit(
            "matrix_flops",
            "The products are to be made by tl.dot, once each: a part loops over its own stretch of K only.",
            at_least=lambda case: 2 * case["M"] * case["N"] * case["K"],
            at_most=_most_flops,
        ),
        Limit(
            "uneven_loads",
            "One part has far more of K than the others. Part 0 is not to do it all: how many blocks of K has a part?",
            at_most=lambda case: MOST_UNEVEN if case["splits"] >= MANY else math.inf,
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "new_memory_under_atomics",
            slips.answer(new=torch.empty),
            "tl.atomic_add adds to what is there, and torch.empty leaves whatever was there before. Sums that are "
            "added up in memory begin at zero.",
        ),
        Misconception(
            "every_part_from_0",
            slips.answer(all_from_0=True),
            "Every part begins at k = 0, so the first stretch of K is added `splits` times. Where a part begins "
            "depends on its program id.",
        ),
        Misconception(
            "end_of_k_lost",
            slips.answer(part=lambda K, splits: K // splits),
            "The end of K is in no part: K // splits rounds down, so `splits` parts of that length stop before K.",
        ),
        Misconception(
            "whole_blocks_only",
            slips.answer(part=lambda K, splits: K // BLOCK // splits * BLOCK),
            "The end of K is in no part: the blocks are divided rounding down, and so is K itself. Round up both "
            "times, and mask what passes the end.",
        ),
        Misconception(
            "a_part_is_all_of_k",
            slips.answer(part=lambda K, splits: triton.cdiv(K, BLOCK) * BLOCK),
            "Part 0 is all of K, and the others find nothing left. A part has a share of the blocks: their number "
            "divided by `splits`, rounding up.",
        ),
        Misconception(
            "parts_in_one_place",
            slips.answer(share=True),
            "With atomics it is right. In order, all parts store into the same memory: part s needs M * N elements of "
            "its own, s * M * N further on.",
        ),
        Misconception(
            "without_the_first_part",
            slips.answer(parts=lambda splits: (1, splits)),
            "The sum of the parts begins with part 1. They are numbered from 0.",
        ),
        Misconception(
            "without_the_last_part",
            slips.answer(parts=lambda splits: (0, splits - 1)),
            "The last part is missing from the sum: range(n) ends before n by itself.",
        ),
        Misconception(
            "grid_rounds_down",
            slips.answer(tiles=lambda n, block: n // block),
            "The last rows have no program: a tile that is not full is needed too.",
        ),
        Misconception(
            "always_atomics",
            slips.answer(atomic=lambda deterministic: True),
            "`deterministic` is ignored: atomics arrive in another order each time, and float32 addition rounds after "
            "each. Where it is True, store the parts side by side, and add them in a fixed order.",
        ),
        Misconception(
            "never_atomics",
            slips.answer(atomic=lambda deterministic: False),
            "`deterministic` is ignored: where it is False, the parts are to be added by atomics, into one float32 "
            "tensor instead of `splits` of them.",
        ),
        Misconception(
            "torch_sums",
            slips.torch_sums,
            "The numbers are right, and torch added the parts. Here that is the work of your second kernel, which "
            "also rounds.",
        ),
        Misconception(
            "computes_with_torch",
            slips.with_torch,
            "The product is torch's. Here it is your kernels' work.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernels ran, and nobody gets their result: end the launcher with return out.",
        ),
        Misconception(
            "into_the_next_part",
            slips.answer("into the next part", part=triton.cdiv),
            "Some of K is counted twice: the last block of a part reaches into the next part, and its mask compares "
            "with K only. A part ends where the next one begins.",
        ),
        Misconception(
            "b_from_the_start",
            slips.answer("b from the start"),
            "Each part takes its own columns of a, but the first rows of b. Both operands move along K.",
        ),
        Misconception(
            "keeps_the_last_block",
            slips.answer("keeps the last block"),
            "Each step of the loop replaces what the one before left. Give the accumulator to tl.dot as its third "
            "argument, or add.",
        ),
        Misconception(
            "sums_in_the_type_of_a",
            slips.answer(narrow_sums=lambda deterministic: True),
            "Every part is rounded to 16 bits before it is added. Where parts cancel, their rounding errors stay: "
            "keep them, and their sum, in float32, and round once, at the end.",
        ),
        Misconception(
            "atomics_in_the_type_of_a",
            slips.answer(narrow_sums=lambda deterministic: not deterministic),
            "The atomics add in 16 bits: every addition rounds, as many times as there are parts. Let them add to a "
            "float32 tensor, and convert it at the end.",
        ),
        Misconception(
            "parts_in_the_type_of_a",
            slips.answer(narrow_sums=lambda deterministic: deterministic),
            "With atomics it is right. In order, each part is stored in 16 bits, and rounded by that, before it is "
            "added: keep the parts in float32.",
        ),
        Misconception(
            "rounds_after_each_part",
            slips.answer(narrow=True),
            "The parts are float32, and their running sum is not: it is rounded after each of them. Add up in float32 "
            "and round once.",
        ),
        Misconception(
            "without_atomics",
            slips.answer(into="read and write"),
            "The parts of a tile write to the same elements, and nobody waits for the others: the last store wins, and "
            "what a part read before is old by then. Reading, adding and writing must be one step: tl.atomic_add.",
        ),
        Misconception(
            "empty_part_unwritten",
            slips.answer("no empty part"),
            "A part that finds nothing left of K stores nothing, and the sum reads what was in its memory before. Let "
            "it store its zeros, or leave it out of the sum.",
        ),
        Misconception(
            "all_parts_in_one_program",
            slips.answer("all parts in one program", programs=lambda splits: 1, parts=lambda splits: (0, 1)),
            "The numbers are right, and one program walks over all parts of its tile: as few programs as without "
            "splitting. The part belongs into the grid.",
        ),
        Misconception(
            "a_launch_for_each_part",
            slips.a_launch_for_each_part,
            "The parts are right, and each is a launch of its own, behind the one before: the chip is as empty as "
            "without them. All parts belong into one grid.",
        ),
        Misconception(
            "adds_every_block",
            slips.answer("adds every block"),
            "The atomic stands inside the loop, so each block of K goes to memory. Add up in registers along the part, "
            "and send the tile once.",
        ),
        Misconception(
            "walks_over_all_of_k",
            slips.answer("all of K, masked"),
            "The numbers are right, and every part walks over all of K and masks what is not its own: the matrix "
            "units multiply zeros. Let the loop begin and end with the part.",
        ),
        Misconception(
            "no_mask_on_k",
            slips.answer("no mask on K"),
            "The last block of K passes the end: what it loads there belongs to the next row, or to nobody, and is "
            "multiplied and added. There it must load zeros.",
        ),
        Misconception(
            "no_mask_on_the_result",
            slips.answer("no mask on the result"),
            "The loads are masked, the atomics are not: a tile at the edge adds to elements outside of the result. "
            "Zeros too must not go there.",
        ),
        Misconception(
            "result_in_float32",
            slips.answer(dtype=torch.float32),
            "The sums are float32, the result is to have the dtype of a.",
        ),
    ),
    hints=(
        "Cut K = 10 into 3 parts on paper: where does part s begin, where does it end, and what does the last one get? "
        "Then ask how often each element of the result is written, and by whom.",
        "The part is a third program id. It owns K from s * part to min((s + 1) * part, K), with part in whole blocks, "
        "rounded up; its masks compare with the end of the part. In order: part s stores its float32 tile s * M * N "
        "further on, and a second kernel loops over the parts. Not in order: tl.atomic_add to zeros in float32.",
        "part = triton.cdiv(triton.cdiv(K, BLOCK_K), splits) * BLOCK_K; first = tl.program_id(2) * part; end = "
        "tl.minimum(first + part, K); for start in range(first, end, BLOCK_K). Allocate torch.zeros((M, N), "
        "dtype=torch.float32) for atomics, torch.empty((splits, M, N), ...) for parts; the second kernel adds "
        "sums_ptr + s * n + offsets over s and stores to out, which converts.",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "A product has as many programs as its result has tiles, and K makes none: three rows of a GPT-2 block are a "
        "handful of tiles for a chip with hundreds of units. Parts of K multiply the programs by `splits`, each "
        "with its share of "
        "the bytes of a and b, which are read as often as before. The price is the sum at the end: `splits` times "
        "M * N * 4 bytes to atomics, or through memory and a second kernel. Atomics need no second pass for float32 "
        "and no room for the parts, but their order is not fixed, and so neither are the last bits. Both add in "
        "float32 and round once."
    ),
)
