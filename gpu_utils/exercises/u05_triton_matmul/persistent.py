"""05.persistent: no more programs than the chip holds at a time; each walks through tiles of the product."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.u05_triton_matmul import persistent_slips as slips
from gpu_utils.exercises.u05_triton_matmul.persistent_slips import TILE, switched
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def _matrix(rows: int, columns: int, dtype: torch.dtype, transposed: bool, generator: torch.Generator) -> Tensor:
    drawn = signed((columns, rows) if transposed else (rows, columns), generator).to(dtype)
    return drawn.T if transposed else drawn


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, transposed = _TYPES[case["dtype"]], case.get("transposed", False)
    a = _matrix(case["M"], case["K"], dtype, transposed, generator)
    b = _matrix(case["K"], case["N"], dtype, transposed, generator)
    return {"a": a, "b": b, "units": case["units"]}


def persistent_reference(a: Tensor, b: Tensor, units: int) -> Tensor:
    """The product in float64."""
    return a.double() @ b.double()


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # products of size 1 and of both signs
    return tolerance(_TYPES[case["dtype"]], k=case["K"], magnitude=1.1, roundings=1)


def _tiles(case: Case) -> int:
    return math.ceil(case["M"] / TILE) * math.ceil(case["N"] / TILE)


def _programs(case: Case) -> int:
    return min(case["units"], _tiles(case))


def _strips(case: Case) -> int:
    """Bytes of the strips of all tiles, with what is inside of the matrices."""
    rows, columns = math.ceil(case["M"] / TILE), math.ceil(case["N"] / TILE)
    return int(2 * case["K"] * (columns * case["M"] + rows * case["N"]))


def _most_uneven(case: Case) -> float:
    """Of the program with most tiles, over a share on average, and a quarter more; where all tiles are whole."""
    if case["M"] % TILE or case["N"] % TILE:
        return math.inf
    return 1.25 * math.ceil(_tiles(case) / _programs(case)) * _programs(case) / _tiles(case)


def _fresh(rng: random.Random) -> Case:
    sizes = {name: rng.randrange(low, high, 2) for name, low, high in (("M", 67, 96), ("N", 67, 128), ("K", 35, 64))}
    return Case("sizes and units that nobody chose", **sizes, units=rng.randrange(3, 8), dtype="float16")


EXERCISE = Exercise(
    id="05.persistent",
    title="A product by as many programs as the chip has units",
    parameters=("a", "b", "units"),
    kind="kernel",
    inputs=_inputs,
    reference=persistent_reference,
    tolerance=_tolerance,
    cases=(
        Case(
            "whole tiles; seven units for 15 tiles: the last round is one tile",
            M=96,
            N=160,
            K=64,
            units=7,
            dtype="bfloat16",
        ),
        Case("nothing is a multiple of a tile", M=70, N=101, K=50, units=5, dtype="float16"),
        Case("more units than tiles", M=33, N=77, K=37, units=100, dtype="float16"),
        Case("one unit takes every tile, of a tall product", M=77, N=45, K=37, units=1, dtype="float16"),
        Case("both matrices are transposed views", M=64, N=33, K=35, units=5, dtype="float16", transposed=True),
        Case("a single tile, and a short K", M=5, N=32, K=3, units=2, dtype="float16"),
    ),
    fresh=_fresh,
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "Launch your kernel once: it makes the whole product.",
            at_least=lambda case: 1,
            at_most=lambda case: 1,
        ),
        Limit(
            "blocks",
            "More programs than asked for. They are to be as many as there are units, and no more than there are tiles "
            "of 32 x 32.",
            at_most=_programs,
        ),
        Limit(
            "blocks",
            "Fewer programs than asked for: some units would have nothing to do. They are to be as many as there are "
            "units, unless there are fewer tiles of 32 x 32.",
            at_least=_programs,
        ),
        Limit(
            "global_store_bytes",
            "Each element of the result is to be stored once: one tile by one program, after its last step along K.",
            at_most=lambda case: 1.05 * 2 * case["M"] * case["N"],
        ),
        Limit(
            "global_load_bytes",
            "Each tile needs its strip of a and its strip of b once.",
            at_most=lambda case: 2 * _strips(case) + 4096,
        ),
        Limit(
            "matrix_flops",
            "The products are to be those of matrix instructions: tl.dot(a, b, acc).",
            at_least=lambda case: 2 * case["M"] * case["N"] * case["K"],
        ),
        Limit(
            "uneven_loads",
            "One program takes far more tiles than the others. They are to be shared evenly: of 15 tiles, none of "
            "seven programs needs more than three.",
            at_most=_most_uneven,
        ),
    ),
    misconceptions=(
        Misconception(
            "a_program_for_each_tile",
            switched(programs=lambda a, b, units: slips.tiles_of(a, b)),
            "There is a program for each tile. That is an ordinary product. Here the grid is limited by `units`, and a "
            "program goes on with another tile when it has finished one.",
        ),
        Misconception(
            "a_program_for_each_unit",
            switched(programs=lambda a, b, units: units),
            "It fails where there are more units than tiles: the programs that are left over have nothing to do. "
            "Launch the smaller number.",
        ),
        Misconception(
            "one_program",
            switched(programs=lambda a, b, units: 1),
            "One program takes all tiles, one after another, and the other units are idle. Launch as many as there are "
            "units.",
        ),
        Misconception(
            "no_reset",
            switched(slips.NO_RESET),
            "The first tile of each program is right, the others hold the tiles before them, too: the accumulator "
            "begins at zero for each tile, not for each program.",
        ),
        Misconception(
            "stores_at_the_end",
            switched(slips.STORES_AT_THE_END),
            "Only the last tile of each program is written, with the sum of all its tiles. Each tile has a zero to "
            "begin with and a store of its own, inside of the loop over tiles.",
        ),
        Misconception(
            "step_of_one",
            switched(slips.STEP_OF_ONE),
            "The numbers are right, because programs do each other's work again: program p goes on with tile p + 1, "
            "which program p + 1 has. The next tile of a program is as many further as there are programs.",
        ),
        Misconception(
            "all_to_the_first",
            switched(slips.ALL_TO_THE_FIRST),
            "Program 0 takes every tile and the others none. The loop of program p begins at tile p, and goes on by as "
            "many tiles as there are programs.",
        ),
        Misconception(
            "first_tile_only",
            switched(slips.FIRST_TILE_ONLY),
            "Of each program only the first tile is in the result. Either the loop over tiles ends at the number of "
            "programs, not of tiles; or row and column follow from the program id in every round, where they must "
            "follow from the number of the tile.",
        ),
        Misconception(
            "last_round_lost",
            switched(slips.LAST_ROUND_LOST),
            "Each program takes tiles // units tiles. That rounds down, and the tiles that are left over are taken by "
            "nobody. Let each program go on as long as its next tile exists.",
        ),
        Misconception(
            "last_tile_lost",
            switched(slips.LAST_TILE_LOST),
            "The last tile is missing: range(first, end) ends before `end` by itself.",
        ),
        Misconception(
            "tiles_rounded_down",
            switched(slips.TILES_OF_ELEMENTS),
            "Their number is rounded down, so tiles at the lower and right edges are missing, or there is none at all. "
            "Use tl.cdiv in the kernel, too.",
        ),
        Misconception(
            "divides_by_rows",
            switched(slips.DIVIDES_BY_ROWS),
            "Row and column of a tile are its number divided by the tiles of a row, and what is left over. You divide"
            " by the tiles of a column, which is another number unless the result is square.",
        ),
        Misconception(
            "columns_rounded_down",
            switched(slips.ROUNDS_COLUMNS_DOWN),
            "It is right where N is a multiple of 32. Elsewhere the tiles of a row are rounded down, so that the last, "
            "narrow one counts for the next row.",
        ),
        Misconception(
            "k_goes_on",
            switched(slips.K_GOES_ON),
            "The first tile of each program is right. The next ones read behind the last column of a and the last row"
            " of b: pointers that were moved along K must begin again for each tile.",
        ),
        Misconception(
            "k_rounded_down",
            switched(slips.K_ROUNDED_DOWN),
            "The last, incomplete step along K is missing: K is no multiple of the step.",
        ),
        Misconception(
            "no_mask_of_k",
            switched(slips.NO_MASK_OF_K),
            "In the last step along K, what lies behind the last column of a and the last row of b is multiplied, too. "
            "Mask the loads with k < K, and give other=0.0.",
        ),
        Misconception(
            "no_mask_of_the_store",
            switched(slips.NO_MASK_OF_THE_STORE),
            "Tiles at the edges write rows and columns that the result does not have.",
        ),
        Misconception(
            "ignores_strides",
            switched(slips.STRIDES_OF_ROWS),
            "Contiguous matrices work, transposed views do not: element (m, k) of a is at m * a.stride(0) + "
            "k * a.stride(1).",
        ),
        Misconception(
            "copies_first",
            slips.of_copies,
            "contiguous() copies a view before your kernel runs. The kernel can read it in place, by its strides.",
        ),
        Misconception(
            "stores_in_every_step",
            switched(slips.STORES_IN_EVERY_STEP),
            "The result is right, and it was stored after every step along K, each time over what was there.",
        ),
        Misconception(
            "result_in_float32",
            switched(dtype=torch.float32),
            "The accumulator is float32, and the result has the type of a: round once, at the store.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result. End the launcher with return.",
        ),
        Misconception(
            "computes_with_torch",
            lambda a, b, units: a @ b,
            "torch made the product. Here it is your kernel's work, by min(units, tiles) programs.",
        ),
    ),
    hints=(
        "Write the kernel of an ordinary product first, one program for each tile, and find the line where the "
        "program id is used. What is there besides the program id that could say which tile is next?",
        "for tile in range(tl.program_id(0), tiles, tl.num_programs(0)): everything that belongs to one tile goes "
        "inside: row and column from `tile`, an accumulator of zeros, the loop along K from 0, the store.",
        "tiles = tl.cdiv(M, TILE) * tl.cdiv(N, TILE); m, n = tile // tl.cdiv(N, TILE), tile % tl.cdiv(N, TILE); mask "
        "the loads in both directions with other=0.0. The launcher counts tiles by triton.cdiv, and the grid is "
        "(min(units, tiles),).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "A launch of thousands of tiles starts a program for each: pointers are set up again, the first loads wait, "
        "and the chip hands out programs one by one. A persistent kernel pays for that once on each unit. The loop "
        "over tiles takes the place of the scheduler, and everything about one tile must be inside of it. It does not"
        " remove the last round: 15 tiles on 7 units take three rounds, and in the third six units wait. On an H100, "
        "133 tiles take as long as 264. What the loop adds is a place to choose: the order of tiles, loads of the "
        "next tile while this one is stored, or a split of the last tiles along K (stream-K)."
    ),
)
