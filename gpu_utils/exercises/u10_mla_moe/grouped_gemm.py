"""10.grouped_gemm: the products of all experts in one launch, by programs that walk over the tiles of all of them."""

from __future__ import annotations

import itertools
import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tiles import tile_traffic
from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.u10_mla_moe import grouped_gemm_slips as slips
from gpu_utils.exercises.u10_mla_moe.grouped_gemm_slips import TILE, answer
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def _dtype(case: Case) -> torch.dtype:
    return _TYPES[case.get("dtype", "float16")]


def _padded(case: Case) -> list[int]:
    """Rows of each expert's stretch."""
    return [math.ceil(load / TILE) * TILE for load in case["loads"]]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    K, padded = case["K"], _padded(case)
    ends = torch.tensor([0, *padded]).cumsum(0)
    rows = torch.zeros(int(ends[-1]), K)
    for begin, load in zip(ends.tolist(), case["loads"], strict=False):
        rows[begin : begin + load] = signed((load, K), generator)
    weights = signed((len(padded), case["N"], K), generator)
    return {
        "rows": rows.to(_dtype(case)),
        "weights": weights.to(_dtype(case)),
        "offsets": ends.int(),
        "programs": case["programs"],
    }


def grouped_reference(rows: Tensor, weights: Tensor, offsets: Tensor, programs: int) -> Tensor:
    """The products in float64, one expert after the other."""
    ends = offsets.tolist()
    pairs = enumerate(itertools.pairwise(ends))
    return torch.cat([rows[begin:end].double() @ weights[expert].double().T for expert, (begin, end) in pairs])


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # products of size 1 and of both signs
    return tolerance(_dtype(case), k=case["K"], magnitude=1.1, roundings=1)


def _tiles(case: Case) -> int:
    return sum(_padded(case)) // TILE * math.ceil(case["N"] / TILE)


def _programs(case: Case) -> int:
    return min(case["programs"], _tiles(case))


def _whole(case: Case) -> bool:
    return case["N"] % TILE == 0 and case["K"] % TILE == 0


def _strips(case: Case) -> int:
    """Bytes of the strips of all tiles."""
    loaded = tile_traffic(sum(_padded(case)), case["N"], case["K"], TILE, TILE)
    return loaded.read_a + loaded.read_b


def _flops(case: Case) -> float:
    return 2.0 * sum(_padded(case)) * case["N"] * case["K"]


def _most_uneven(case: Case) -> float:
    """Of the program with most tiles, over a share on average, and a quarter more; where all tiles are whole."""
    if not _whole(case):
        return math.inf
    return 1.25 * math.ceil(_tiles(case) / _programs(case)) * _programs(case) / _tiles(case)


def _fresh(rng: random.Random) -> Case:
    loads = [rng.choice([0, 1, rng.randrange(2, 64), 64, rng.randrange(65, 140)]) for _ in range(rng.randrange(3, 7))]
    loads[rng.randrange(len(loads))] = rng.randrange(2, 90)  # some rows there must be
    sizes = {name: rng.randrange(low, high, 2) for name, low, high in (("N", 67, 128), ("K", 35, 64))}
    return Case("loads that nobody chose", loads=tuple(loads), **sizes, programs=rng.randrange(3, 8))


EXERCISE = Exercise(
    id="10.grouped_gemm",
    title="The products of all experts in one launch",
    parameters=("rows", "weights", "offsets", "programs"),
    kind="kernel",
    inputs=_inputs,
    reference=grouped_reference,
    tolerance=_tolerance,
    cases=(
        Case(
            "whole tiles; an expert without rows, and five programs for twelve tiles: everything is counted",
            loads=(200, 0, 64, 1),
            N=128,
            K=64,
            programs=5,
        ),
        Case(
            "nothing is a multiple of a tile; two neighbours are idle", loads=(1, 130, 0, 0, 5), N=101, K=50, programs=3
        ),
        Case(
            "the first and the last expert are idle, and there are more programs than tiles",
            loads=(0, 3, 64, 0),
            N=70,
            K=37,
            programs=100,
        ),
        Case("one program takes every tile", loads=(3, 64, 65), N=45, K=37, programs=1),
        Case(
            "a long sum in bfloat16, and more programs than tiles",
            loads=(64, 7),
            N=64,
            K=512,
            programs=9,
            dtype="bfloat16",
        ),
        Case("a single expert, one column more than a tile, and a short K", loads=(5,), N=65, K=3, programs=9),
    ),
    fresh=_fresh,
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "One launch makes the products of all experts.",
            at_least=lambda case: 1,
            at_most=lambda case: 1,
        ),
        Limit(
            "blocks",
            "More programs than asked for: they are to be min(programs, tiles). A program that is done with a tile "
            "goes on to another one.",
            at_most=_programs,
        ),
        Limit(
            "blocks",
            "Fewer programs than asked for: they are to be min(programs, tiles), with tiles of 64 x 64.",
            at_least=_programs,
        ),
        Limit(
            "global_load_bytes",
            "Each tile of 64 x 64 needs its strip of the rows and its strip of one expert's weights once; smaller "
            "tiles load more.",
            at_most=lambda case: 1.5 * _strips(case) + 4096 * (_tiles(case) + 1) if _whole(case) else math.inf,
        ),
        Limit(
            "matrix_flops",
            "The products are to be those of matrix instructions: tl.dot(a, b, acc).",
            at_least=_flops,
        ),
        Limit(
            "matrix_flops",
            "The matrix instructions do more than twice the work of the tiles that there are. Does a program multiply "
            "tiles that no expert has, or a tile for several experts? (Or is a tile smaller than 64 x 64, so that its "
            "waves compute the same?)",
            at_most=lambda case: 2.05 * _flops(case) if _whole(case) else math.inf,
        ),
        Limit(
            "global_store_bytes",
            "Each element of the result is to be stored once, after the last step along K.",
            at_most=lambda case: 1.05 * 2 * sum(_padded(case)) * case["N"],
        ),
        Limit(
            "uneven_loads",
            "One program takes far more tiles than the others. Share them evenly: of twelve tiles, none of five "
            "programs needs more than three.",
            at_most=_most_uneven,
        ),
        Limit(
            "scratch_bytes",
            "Registers are spilled: take a smaller step along K, or more warps.",
            at_most=lambda case: 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "first_experts_weights",
            answer(slips.FIRST_EXPERT),
            "All rows were multiplied by the weights of expert 0. The expert of a tile follows from its first row and "
            "the offsets.",
        ),
        Misconception(
            "boundary_of_a_stretch",
            answer(slips.BOUNDARY),
            "The first tile of a stretch gets the weights of an expert before it. Where one stretch ends at row "
            "128, row 128 belongs to the next.",
        ),
        Misconception(
            "one_expert_too_far",
            answer(slips.NEXT_EXPERT),
            "Tiles get the weights of the expert after theirs. offsets[e] is where expert e begins, offsets[e + 1] "
            "where it ends.",
        ),
        Misconception(
            "equal_stretches",
            answer(slips.EQUAL_STRETCHES),
            "The expert of a tile was worked out as if all experts had the same number of rows. Stretches differ: look "
            "into the offsets.",
        ),
        Misconception(
            "idle_experts_not_counted",
            answer(slips.SKIPS_EMPTY),
            "It is right until an expert has no rows; from there on the weights are those of an earlier expert. An "
            "expert without rows has a number, too.",
        ),
        Misconception(
            "weights_of_an_expert_are_not_a_row",
            answer(slips.WEIGHTS_BY_N),
            "From one expert's weights to the next it is N * K elements.",
        ),
        Misconception(
            "rows_of_the_first_stretch",
            answer(slips.ROWS_OF_THE_STRETCH),
            "Every expert multiplies the rows of the first stretch: a tile's rows begin at the offset of its expert.",
        ),
        Misconception(
            "every_expert_for_every_tile",
            answer(slips.EVERY_EXPERT),
            "The result is right, and each tile was multiplied for every expert, with zeros for all but one of them: "
            "the work of a dense layer. A tile belongs to one expert.",
        ),
        Misconception(
            "padded_to_the_longest",
            answer(slips.PADDED_TO_LONGEST),
            "The result is right, and every expert gets as many tiles as the one with most rows. Count the tiles that "
            "there are.",
        ),
        Misconception(
            "weights_transposed",
            answer(slips.TRANSPOSED),
            "The weights of an expert have shape (N, K): element (n, k) is at n * K + k.",
        ),
        Misconception(
            "no_reset",
            answer(slips.NO_RESET),
            "The first tile of each program is right, the others hold the tiles before them, too: the accumulator "
            "begins at zero for each tile.",
        ),
        Misconception(
            "step_of_one",
            answer(slips.STEP_OF_ONE),
            "The numbers are right, because programs do each other's work again. The next tile of a program is as many "
            "further as there are programs.",
        ),
        Misconception(
            "all_to_the_first",
            answer(slips.ALL_TO_THE_FIRST),
            "Program 0 takes every tile and the others none. The loop of program p begins at tile p.",
        ),
        Misconception(
            "first_tile_only",
            answer(slips.FIRST_TILE_ONLY),
            "Of each program only the first tile is in the result. The loop ends at the number of tiles.",
        ),
        Misconception(
            "last_round_lost",
            answer(slips.LAST_ROUND_LOST),
            "Each program takes tiles // programs tiles, which rounds down: those left over are taken by nobody.",
        ),
        Misconception(
            "columns_rounded_down",
            answer(slips.COLUMNS_ROUNDED_DOWN),
            "It is right where N is a multiple of 64. Elsewhere the last, narrow tile of a row is missing: tl.cdiv.",
        ),
        Misconception(
            "k_rounded_down",
            answer(slips.K_ROUNDED_DOWN),
            "The last, incomplete step along K is missing.",
        ),
        Misconception(
            "k_goes_on",
            answer(slips.K_GOES_ON),
            "The first tile of each program is right. The next ones begin along K where the last one ended: pointers "
            "begin again for each tile.",
        ),
        Misconception(
            "no_mask_of_k",
            answer(slips.NO_MASK_OF_K),
            "In the last step along K, what lies behind the last column is multiplied, too: mask both loads with k "
            "< K.",
        ),
        Misconception(
            "no_mask_of_columns",
            answer(slips.NO_MASK_OF_COLUMNS),
            "The last tile of a row writes columns that the result does not have, into the next row. Rows need no "
            "mask: stretches are whole tiles. Columns do.",
        ),
        Misconception(
            "sum_in_the_type_of_rows",
            answer(slips.NARROW_SUM),
            "The sum is rounded after every step along K. Keep it in float32 until it is complete.",
        ),
        Misconception(
            "stores_in_every_step",
            answer(slips.STORES_IN_EVERY_STEP),
            "The result is right, and it was stored after every step along K, each time over what was there.",
        ),
        Misconception(
            "a_program_for_each_tile",
            answer(grid=lambda rows, weights, programs: slips.tiles_of(rows, weights)),
            "There is a program for each tile. Here the grid is limited by `programs`, and a program goes on with "
            "another tile when it has finished one.",
        ),
        Misconception(
            "a_program_for_each_expert",
            answer(grid=lambda rows, weights, programs: len(weights)),
            "There is a program for each expert. Their loads differ, so most would wait for one. Launch min(programs, "
            "tiles), which share the tiles of all experts.",
        ),
        Misconception(
            "more_programs_than_tiles",
            answer(grid=lambda rows, weights, programs: programs),
            "It fails where there are more programs than tiles: those left over have nothing to do. Launch the smaller "
            "number.",
        ),
        Misconception(
            "a_launch_for_each_expert",
            slips.launch_for_each_expert,
            "The host read the offsets, and launched a product for each expert. One launch does it, if the kernel "
            "reads the offsets.",
        ),
        Misconception(
            "result_in_float32",
            answer(dtype=torch.float32),
            "The result has the type of rows: round once, at the store.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result. End the launcher with return.",
        ),
        Misconception(
            "computes_with_torch",
            slips.with_torch,
            "torch made the products. Here they are your kernel's work.",
        ),
    ),
    hints=(
        "Begin with your persistent product of unit 05 and forget the experts: rows (R, K) times one matrix. Which "
        "line says where the weights begin? What must a tile know to find its own?",
        "Stretches are whole tiles, so a tile of 64 rows has one expert: the e with offsets[e] <= first row < "
        "offsets[e + 1]. How many stretches have ended at or before that row? Load all ends as one vector.",
        "ends = tl.load(offsets_ptr + 1 + one, mask=one < E, other=R) before the loop; in it expert = tl.sum((ends "
        "<= first).to(tl.int32)), and the weights begin at weights_ptr + expert * N * K. R // 64 rows of tiles; the "
        "grid is (min(programs, tiles),).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    failures=2,
    explanation=(
        "To the scheduler the rows of all experts are one tall matrix. That is what sorting and padding were for: a "
        "tile has one expert, so one number, found in the offsets, chooses the weights, and everything else is the "
        "persistent product of unit 05. An idle expert has no tile; it costs nothing, and a busy one is shared by all "
        "programs. The offsets are read by the kernel, on the device: the host need not know the loads, and a captured "
        "graph of launches stays the same for every batch. Rows need no mask. What padding costs is counted in matrix "
        "FLOPs: on average half a tile for each expert that has any row."
    ),
)
