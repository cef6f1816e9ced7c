"""05.tiled: a matrix product of any sizes and strides, a tile of the result to each program."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u05_triton_matmul import tiled_slips as slips
from gpu_utils.exercises.u05_triton_matmul.tile_slips import TILE
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception


def drawn(shape: tuple[int, int], dtype: torch.dtype, generator: torch.Generator, view: bool = False) -> Tensor:
    """Of both signs and of size 0.5 to 1.5; `view`: part of a wider matrix, and what lies beside is NaN."""
    signs = 1 - 2 * torch.randint(2, shape, generator=generator)
    x = ((torch.rand(shape, generator=generator) + 0.5) * signs).to(dtype)
    if not view:
        return x
    wide = torch.full((shape[0] + 1, shape[1] + 6), math.nan, dtype=dtype)
    wide[:-1, 3:-3] = x
    return wide[:-1, 3:-3]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, (m, n, k) = getattr(torch, case["dtype"]), (case["M"], case["N"], case["K"])
    if case.get("transposed"):
        return {"a": drawn((k, m), dtype, generator).T, "b": drawn((n, k), dtype, generator).T}
    view = bool(case.get("views"))
    return {"a": drawn((m, k), dtype, generator, view), "b": drawn((k, n), dtype, generator, view)}


def product_reference(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, in float64."""
    return a.double() @ b.double()


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # the factors are of size 0.5 to 1.5: the mean square of a product is 1.17
    return tolerance(inputs["a"].dtype, k=max(1, case["K"]), magnitude=1.1, roundings=1)


def bytes_of_tiles(case: Case, tile: int = TILE) -> float:
    """What square tiles load of both matrices: a is read once for each column of tiles, b once for each row of them."""
    m, n, k = case["M"], case["N"], case["K"]
    return float(k * (m * math.ceil(n / tile) + n * math.ceil(m / tile)) * getattr(torch, case["dtype"]).itemsize)


def is_counted(case: Case) -> bool:
    """Whether every tile is full, so that no lane is without an element of its own."""
    return all(case[size] % TILE == 0 and case[size] for size in ("M", "N", "K"))


def least_flops(case: Case) -> float:
    return 0 if case["dtype"] == "float32" else 2 * case["M"] * case["N"] * case["K"]


def _filled(value: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: torch.full((a.shape[0], b.shape[1]), value, dtype=a.dtype, device=a.device)


def _fresh(rng: random.Random) -> Case:
    # odd, so that the compiler has met the like before
    m, n, k = (2 * rng.randrange(20, 48) + 1 for _ in range(3))
    return Case("sizes nobody chose", M=m, N=n, K=k, dtype="bfloat16")


EXERCISE = Exercise(
    id="05.tiled",
    title="A matrix product, a tile to each program",
    parameters=("a", "b"),
    kind="kernel",
    inputs=_inputs,
    reference=product_reference,
    tolerance=_tolerance,
    cases=(
        Case("whole tiles: here everything is counted", M=128, N=128, K=64, dtype="float16"),
        Case("no size is a multiple of a tile", M=65, N=71, K=101, dtype="bfloat16"),
        Case("parts of wider matrices, with NaN beside", M=64, N=64, K=45, dtype="float16", views=True),
        Case("one row, and K longer than a block can be, in whole blocks", M=1, N=21, K=384, dtype="bfloat16"),
        Case(
            "float32 to all of its digits, of two transposes",
            M=35,
            N=65,
            K=51,
            dtype="float32",
            transposed=True,
        ),
        Case("nothing to sum: K is 0", M=5, N=3, K=0, dtype="bfloat16"),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "a": lambda a, b: a},
    limits=(
        Limit("launches", "Launch your own kernel: tiled_kernel[grid](...).", at_least=lambda case: 1),
        Limit("launches", "One launch can do all of it.", at_most=lambda case: 1),
        Limit(
            "matrix_flops",
            "The product is not made by matrix instructions. Triton issues them for tl.dot(a, b, acc) of two tiles in "
            "16 bits, and for nothing else.",
            at_least=least_flops,
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills): a smaller tile, "
            "or more warps to a program.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_load_bytes",
            "Each row of a tile reads all its K elements of a, and each column those of b. Whole tiles of 64 x 64 read "
            "every element of a once for each 64 columns of the result; smaller ones read it more often.",
            at_most=lambda case: 1.05 * bytes_of_tiles(case) if is_counted(case) else math.inf,
        ),
        Limit(
            "global_store_bytes",
            "Each element of the result is to be stored once, behind the loop over K.",
            at_most=lambda case: 1.05 * case["M"] * case["N"] * getattr(torch, case["dtype"]).itemsize + 256,
        ),
        Limit(
            "matrix_flops",
            "The matrix instructions do more than twice the work of this product: the tile has too few rows and "
            "columns for its waves, and several of them compute the same.",
            at_most=lambda case: 4 * case["M"] * case["N"] * case["K"] if is_counted(case) else math.inf,
        ),
    ),
    torch_may=(),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    misconceptions=(
        Misconception(
            "no_masks",
            slips.no_masks,
            "The last tiles reach past the ends of a, of b and of the result. Each of the three dimensions has an end, "
            "and each tile two dimensions: every load and the store need a mask made of two comparisons.",
        ),
        Misconception(
            "no_mask_along_k",
            slips.no_mask_along_k,
            "Rows and columns are masked, K is not, or only in one of the loads. The last block of K reads on, into "
            "the next row or past the end. Two masks and two zeros: 0 times NaN is NaN, so one of them is not enough.",
        ),
        Misconception(
            "masks_along_k_only",
            slips.masks_along_k_only,
            "K is masked, rows and columns of the loads are not. What they read too much would change no element that "
            "is stored, but it lies past the end of a and b.",
        ),
        Misconception(
            "store_unmasked",
            slips.store_unmasked,
            "The loads are masked, the store is not: a tile at the edge writes past the ends of rows, over the first "
            "elements of the next ones, and past the end of the result.",
        ),
        Misconception(
            "one_more_along_k",
            slips.one_more_along_k,
            "`<= K` lets one element too many through: they are numbered 0 to K - 1.",
        ),
        Misconception(
            "last_block_lost",
            slips.last_block_lost,
            "The end of the sum is missing: K // BLOCK_K blocks are whole ones, and what is left over is a block too.",
        ),
        Misconception(
            "keeps_the_last_block",
            slips.keeps_the_last_block,
            "Each block of K replaces the one before: the result is the product of the last one. tl.dot(a, b, acc) "
            "adds to acc.",
        ),
        Misconception(
            "same_block_again",
            slips.same_block_again,
            "The loop sums the first block of K again and again: its place does not move on.",
        ),
        Misconception(
            "rows_of_the_tile",
            slips.rows_of_the_tile,
            "All programs compute the first rows: the row of an element is the tile's first row, made from the program "
            "id, and its place in the tile.",
        ),
        Misconception(
            "columns_of_the_tile",
            slips.columns_of_the_tile,
            "All programs compute the first columns: the column of an element is the tile's first column, made from "
            "the program id of its axis, and its place in the tile.",
        ),
        Misconception(
            "exchanged",
            slips.exchanged,
            "It fails where there are more tiles one way than the other: the grid has the columns first and the kernel "
            "the rows, or the other way round.",
        ),
        Misconception(
            "rounded_down",
            slips.rounded_down,
            "The last tiles of the result have no program: M // 64 rounds down. triton.cdiv rounds up.",
        ),
        Misconception(
            "as_if_contiguous",
            slips.as_if_contiguous,
            "Contiguous matrices work, views do not: a[i, k] lies at i * a.stride(0) + k * a.stride(1).",
        ),
        Misconception(
            "rows_strides_only",
            slips.rows_strides_only,
            "The first stride of each matrix is honoured, the second is taken to be 1. In a transpose it is not.",
        ),
        Misconception(
            "other_way_of_b",
            slips.other_way_of_b,
            "b is read as its transpose: its first index is k, which goes with stride(0), and its second the column of "
            "the result, with stride(1).",
        ),
        Misconception(
            "default_precision",
            slips.default_precision,
            "float32 has lost half of its digits. Unless told otherwise, tl.dot rounds float32 factors to 10 bits for "
            "the matrix units, where the target has such instructions. input_precision keeps them whole.",
        ),
        Misconception(
            "in_float16",
            slips.in_float16,
            "The tiles are rounded to float16 before they are multiplied. Give tl.dot the tiles as they are loaded.",
        ),
        Misconception(
            "sums_rounded",
            slips.sums_rounded,
            "The sum is rounded to 16 bits after each block of K. Keep it in float32, and round once, at the store.",
        ),
        Misconception(
            "outer_products",
            slips.outer_products,
            "The numbers are right, but each multiplication is one of a lane: no matrix instruction was issued. "
            "Multiply whole tiles with tl.dot.",
        ),
        Misconception(
            "small_tiles",
            slips.small_tiles,
            "The numbers are right, and a and b are read too often: with tiles of 32 x 32 each element of a is loaded "
            "once for each 32 columns of the result. Twice the side is half the bytes.",
        ),
        Misconception(
            "in_float32",
            slips.in_float32,
            "The result is float32 whatever a is: torch.empty makes that where no dtype is given. Ask for a.dtype.",
        ),
        Misconception(
            "copies_first",
            slips.copies_first,
            "contiguous() copies a view before your kernel runs. The kernel can read it in place, by its strides.",
        ),
        Misconception(
            "torch_multiplies",
            lambda a, b: a @ b,
            "The product is torch's. Here it is your kernel's work: launch it with tiled_kernel[grid](...).",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result: end the launcher with return out.",
        ),
    ),
    hints=(
        "A program owns 64 x 64 elements of the result. Which rows of a does it need, and which columns of b? It can "
        "hold only a part of them at a time: a block of K, then the next one. What must be 0 behind the end of K?",
        "rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), cols from program_id(1); acc is a tile of float32 "
        "zeros. In each step along K load a tile of shape (BLOCK_M, BLOCK_K) and one of (BLOCK_K, BLOCK_N); each mask "
        "asks for both of its dimensions, with other=0.0. The store's mask asks for rows and columns.",
        "a at a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask (rows[:, None] < M) & (ks[None, :] < "
        "K); b at b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn; acc = tl.dot(a, b, acc, "
        'input_precision="ieee"). The grid is (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N)).',
    ),
    explanation=(
        "An element of the result is a sum over K, so a program may take K in blocks and keep only its tile of sums. "
        "Of the three masks those of rows and columns protect memory: what they switch off would go to elements that "
        "are not stored. That along K protects numbers: every element of the tile sums over the whole block, so what "
        "lies behind the end must count as 0, in both factors, because 0 times NaN is NaN. A tile of 64 x 64 makes 64 "
        "products of each element that it loads; a larger tile makes more, until registers or shared memory end."
    ),
)
