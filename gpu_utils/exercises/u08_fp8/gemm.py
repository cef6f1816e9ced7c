"""08.gemm: a product of two FP8 matrices with their scales, promoted to float32 every 128 steps."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tiles import tile_traffic
from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.u08_fp8 import gemm_slips as slips
from gpu_utils.exercises.u08_fp8.gemm_slips import BLOCK
from gpu_utils.exercises.u08_fp8.shared import TILE, dtype_of, spread
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception


def _scales(rows: int, cols: int, case: Case, generator: torch.Generator) -> Tensor:
    """From 1/64 to 1/4: neighbours differ by up to 16 times. Where the case says so, times as much."""
    return torch.exp2(4 * torch.rand((rows, cols), generator=generator) - 6) * case.get("times", 1)


def _codes(rows: int, cols: int, beside: int, case: Case, generator: torch.Generator) -> Tensor:
    """Codes (rows, cols). Where the case says so, in a matrix with `beside` more columns."""
    codes = (signed((rows, cols), generator) * 16).to(dtype_of(case))
    if not case.get("view"):
        return codes
    wide = torch.full((rows, cols + beside), math.nan).to(codes.dtype)
    wide[:, :cols] = codes
    return wide[:, :cols]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    M, N, K = case["M"], case["N"], case["K"]
    tiles = math.ceil(K / TILE)
    return {
        "a": _codes(M, K, 16, case, generator),
        "a_scales": _scales(M, tiles, case, generator),
        "b": _codes(N, K, 32, case, generator),
        "b_scales": _scales(math.ceil(N / TILE), tiles, case, generator),
    }


def gemm_reference(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
    """The product of what codes and scales stand for, in float64: no digit of it is lost."""
    wide_a = a.double() * spread(a_scales, 1, TILE, a.shape)
    wide_b = b.double() * spread(b_scales, TILE, TILE, b.shape)
    return wide_a @ wide_b.T


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # A product of two codes has 8 digits and is exact in float32, and so each sum of 128 but for float32's roundings;
    # the scales are rounded once for each 128. At the end one rounding to bfloat16.
    largest = float(inputs["a_scales"].max() * inputs["b_scales"].max())
    return tolerance(torch.bfloat16, k=case["K"], magnitude=1.1 * 16 * 16 * largest, roundings=1)


def _is_counted(case: Case) -> bool:
    return case["M"] % BLOCK == case["N"] % BLOCK == case["K"] % TILE == 0


def _most_loaded(case: Case) -> float:
    """Sectors of 32 bytes of tiles of 64 x 64; and of the scales, one or two for each row, column and tile of K.

    Not bytes: up to 64 lanes that hold parts of one row may load its scale, each for itself, and from one sector.
    """
    if not _is_counted(case):
        return math.inf
    M, N, K = case["M"], case["N"], case["K"]
    loaded = tile_traffic(M, N, K, BLOCK, BLOCK, dtype_bytes=1)
    scales = K // TILE * (M * (N // BLOCK) + N * (M // BLOCK))
    return 1.1 * (loaded.read_a + loaded.read_b) / 32 + 1.5 * scales


def _filled(value: float) -> Any:
    def answer(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
        return torch.full((len(a), len(b)), value, dtype=torch.bfloat16, device=a.device)

    return answer


def _first(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
    """As much of a as the result has elements."""
    return a.float().flatten().repeat(len(b))[: len(a) * len(b)].view(len(a), len(b)).to(torch.bfloat16)


def _fresh(rng: random.Random) -> Case:
    # odd, so that the compiler has met the like before
    M, N, K = (2 * rng.randrange(*ends) + 1 for ends in ((10, 40), (60, 90), (70, 190)))
    return Case("sizes nobody chose", M=M, N=N, K=K)


EXERCISE = Exercise(
    id="08.gemm",
    title="FP8 times FP8, promoted every 128",
    parameters=("a", "a_scales", "b", "b_scales"),
    kind="kernel",
    fp8=True,
    targets=("sm_89", "gfx942"),
    inputs=_inputs,
    reference=gemm_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.bfloat16,
    cases=(
        Case("whole tiles: here everything is counted", M=64, N=128, K=256),
        Case("one more than whole tiles along K, and more columns than a block", M=37, N=129, K=257),
        # with sums that no float16 holds: many a kernel ends with acc.to(tl.float16)
        Case("K is shorter than a tile, and the results are large", M=17, N=43, K=33, times=512),
        # wider than a tile beside K, and one row more than a tile of 64
        Case("parts of wider matrices, with NaN beside", M=65, N=67, K=120, view=True),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "a": _first},
    limits=(
        Limit("launches", "Launch your own kernel: gemm_kernel[grid](...).", at_least=lambda case: 1),
        Limit("launches", "One launch can do all of it.", at_most=lambda case: 1),
        Limit(
            "fp8_matrix_flops",
            "The product is not made by matrix instructions on FP8. Triton issues them for tl.dot of two FP8 tiles, "
            "as they were loaded; what becomes bfloat16, float16 or float32 first is multiplied at half the speed or "
            "less. Give tl.dot the codes, and scale what comes out.",
            at_least=lambda case: 2 * case["M"] * case["N"] * case["K"],
        ),
        Limit(
            "fp8_matrix_flops",
            "The matrix instructions do more than twice the work of this product: the tile is too small for its waves, "
            "and several of them compute the same.",
            at_most=lambda case: 4 * case["M"] * case["N"] * case["K"] if _is_counted(case) else math.inf,
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills): a smaller tile, "
            "or more warps to a program.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_load_sectors",
            "a and b are to be loaded as often as tiles of 64 x 64 load them, and scales once for each 128 steps.",
            at_most=_most_loaded,
        ),
        Limit(
            "global_store_bytes",
            "Each element of the result is to be stored once, behind the loop.",
            at_most=lambda case: 1.05 * 2 * case["M"] * case["N"] + 256,
        ),
    ),
    torch_may=(),
    seconds=30.0,
    failures=2,
    misconceptions=(
        Misconception(
            "no_a_scales",
            slips.answer("no a_scales"),
            "a_scales are not used: each row's stretch of 128 has one.",
        ),
        Misconception(
            "no_b_scales",
            slips.answer("no b_scales"),
            "b_scales are not used: each block of 128 x 128 of b has one.",
        ),
        Misconception(
            "scales_behind_the_loop",
            slips.answer("last scales"),
            "One scale for all of K, the last one: it multiplies the whole sum, or every part of it. Each 128 steps "
            "have scales of their own, so the product of a tile is scaled before it is added.",
        ),
        Misconception(
            "scales_of_the_first_tile",
            slips.answer("first tile"),
            "The scales of the first 128 steps are used for all. They move along K with the loop.",
        ),
        Misconception(
            "scales_of_the_first_block_of_columns",
            slips.answer("first block"),
            "Columns from 128 on have the scales of the first 128. The row of b_scales is n // 128.",
        ),
        Misconception(
            "a_scale_for_each_column",
            slips.answer("column"),
            "b_scales has no row for each column of the result: one for 128 of them. Which row has column n?",
        ),
        Misconception(
            "scaled_again",
            slips.answer("again"),
            "The whole sum is scaled at each step, so the first tiles are scaled many times. Scale what the tile adds.",
        ),
        Misconception(
            "divided_by_the_scales",
            slips.answer("divided"),
            "The product is divided by the scales. A code times its scale is the number that it stands for.",
        ),
        Misconception(
            "scales_added",
            slips.answer("sum of scales"),
            "The two scales are added. A product of two numbers, each with a factor, has the product of both.",
        ),
        Misconception(
            "scaled_before_the_product",
            slips.answer("scaled before"),
            "a is scaled and rounded to FP8 once more before it is multiplied: a digit is lost in each, and small ones "
            "become 0. The codes go into tl.dot as they were loaded.",
        ),
        Misconception(
            "sum_in_bfloat16",
            slips.answer("each sum in bfloat16"),
            "The sum is rounded to bfloat16 after each tile. Promotion is to float32, which holds what 128 steps give: "
            "keep acc in it, and let tl.store convert the last value.",
        ),
        Misconception(
            "scales_of_a_transposed",
            slips.answer("transposed scales"),
            "a_scales is read as if it had a row for each tile. It has one for each row of a: shape (M, tiles).",
        ),
        Misconception(
            "scales_of_b_transposed",
            slips.answer("transposed scales of b"),
            "b_scales is read as if it had a row for each tile. It has one for each 128 rows of b: shape "
            "(blocks of N, tiles).",
        ),
        Misconception(
            "only_whole_tiles",
            slips.answer("whole tiles"),
            "Where 128 does not divide K its last part is left out: K // 128 counts whole tiles. Round up.",
        ),
        Misconception(
            "by_way_of_float16",
            slips.answer("by way of float16"),
            "The sums became float16 on their way: that ends at 65,504, and the result is bfloat16 so that it does "
            "not. Let tl.store convert acc.",
        ),
        Misconception(
            "no_mask_along_k",
            slips.answer("behind K"),
            "The last tile of K reads on, into the next row or past the end. Both loads need k < K, and zeros there.",
        ),
        Misconception(
            "no_mask_on_the_result",
            slips.answer("unmasked"),
            "The store has no mask: tiles at the edge write over other rows, or past the end.",
        ),
        Misconception(
            "rows_of_k",
            slips.answer(contiguous=True),
            "It fails where a and b are parts of wider matrices: rows are a.stride(0) apart, not K.",
        ),
        Misconception(
            "in_bfloat16",
            slips.answer(wide="bfloat16"),
            "The numbers are right, and the matrix units multiplied numbers of 16 bits. The codes are FP8: give them "
            "to tl.dot as they were loaded.",
        ),
        Misconception(
            "scaled_in_float32",
            slips.answer(wide="float32"),
            "Codes and scales were multiplied to float32 numbers first. Their product is no longer FP8's: NVIDIA's "
            "matrix units cut such numbers to TF32, and on both vendors it takes many times as long. Give tl.dot the "
            "codes, and scale what comes out.",
        ),
        Misconception(
            "result_in_float32",
            slips.answer(dtype=torch.float32),
            "The sums are float32, the result is to be bfloat16.",
        ),
        Misconception(
            "torch_scales",
            slips.torch_scales,
            "torch scales and adds what several launches have multiplied: each sum goes to memory and back. In one "
            "kernel it stays in registers.",
        ),
        Misconception(
            "torch_multiplies",
            slips.torch_multiplies,
            "torch multiplies, in float32. Here it is your kernel's work, on FP8.",
        ),
    ),
    hints=(
        "Which numbers of a tile are the same for all 128 steps along K? For those steps the codes can be multiplied "
        "and added as they are.",
        "A loop over tiles of 128 along K. In it: two tiles of codes, a tl.dot of them that begins at 0, the scales of "
        "the rows (a vector) and of the columns (n // 128), and acc += product * a_scale[:, None] * b_scale[None, :].",
        "product = tl.dot(a, b); a_scale = tl.load(a_scales_ptr + m * tiles + tile, mask=m < M, other=0.0); b_scale = "
        "tl.load(b_scales_ptr + n // 128 * tiles + tile, mask=n < N, other=0.0); acc += product * a_scale[:, None] * "
        "b_scale[None, :]. Behind the loop tl.store converts acc to bfloat16.",
    ),
    explanation=(
        "Because the scales change every 128 steps, the sum of the matrix unit must end there: the tile's product is "
        "scaled in float32 and added to a float32 sum. That is the promotion of the DeepSeek-V3 report, and it costs "
        "one multiplication and one addition for each element and 128 steps. It also keeps the matrix unit's own sum "
        "short, which Hopper wants, because that sum has about 14 bits. On AMD the same kernel runs with the chip's "
        "own FP8, whose codes and largest number differ; the scales do not care."
    ),
)
