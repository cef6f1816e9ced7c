"""14.gemm: one tile program for an SM, a CU and an AI core."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u14_tilelang import gemm_slips as slips
from gpu_utils.exercises.u14_tilelang.tiles import TARGETS, most_moved, products
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception
from gpu_utils.grading.tiles import Tiled

SIZES = ("M", "N", "K", "BM", "BN", "BK", "dtype", "cores")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype = getattr(torch, case["dtype"])
    a = torch.randn(case["M"], case["K"], generator=generator).to(dtype)
    b = torch.randn(case["N"], case["K"], generator=generator).to(dtype)
    return {"target": case["target"], **{name: case[name] for name in SIZES}, "a": a, "b": b}


def gemm_reference(a: Tensor, b: Tensor, **sizes: object) -> Tensor:
    """a @ b.T in float64."""
    return a.double() @ b.double().T


def _tensors(inputs: Inputs) -> Sequence[Tensor]:
    return inputs["a"], inputs["b"], torch.empty(inputs["M"], inputs["N"])


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float32, k=case["K"])


def _fresh(rng: random.Random) -> Case:
    tile = {"BM": rng.choice((32, 64)), "BN": rng.choice((32, 64)), "BK": rng.choice((32, 64))}
    rows, columns, steps = rng.randrange(1, 4), rng.randrange(1, 4), rng.randrange(2, 5)
    sizes = {"M": rows * tile["BM"], "N": columns * tile["BN"], "K": steps * tile["BK"]}
    dtype = rng.choice(("float16", "bfloat16"))
    cores = rng.randrange(1, rows * columns + 1)
    target = rng.choice(TARGETS)
    return Case("sizes, tiles and a chip nobody chose", target=target, **sizes, **tile, dtype=dtype, cores=cores)


EXERCISE = Exercise(
    id="14.gemm",
    title="One matrix product for three vendors",
    parameters=("T", "vendor", *SIZES),
    kind="tile",
    targets=TARGETS,
    inputs=_inputs,
    reference=gemm_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=Tiled(SIZES, _tensors, blocks=lambda inputs: inputs["cores"]),
    cases=(
        Case(
            "four AI cores, six tiles: two cores make one more",
            **{"target": "ascend950", "M": 64, "N": 96, "K": 96, "BM": 32, "BN": 32, "BK": 32},
            **{"dtype": "float16", "cores": 4},
        ),
        Case(
            "an SM: three blocks for three rows of two tiles that are not square",
            **{"target": "sm_80", "M": 96, "N": 128, "K": 96, "BM": 32, "BN": 64, "BK": 32},
            **{"dtype": "float16", "cores": 3},
        ),
        Case(
            "a CU, in bfloat16: two blocks for three tiles",
            **{"target": "gfx942", "M": 64, "N": 96, "K": 96, "BM": 64, "BN": 32, "BK": 32},
            **{"dtype": "bfloat16", "cores": 2},
        ),
    ),
    fresh=_fresh,
    trivial={
        "zeros": slips.filled(0.0),
        "ones": slips.filled(1.0),
        "nan": slips.filled(float("nan")),
        "the input": slips.the_input,
    },
    limits=(
        Limit(
            "matrix_flops",
            "The product is to be made by tensor cores, matrix cores and the cube core. T.gemm on tiles becomes their "
            "instructions; a loop over single elements does not. K // BK steps make a tile; more multiply by zeros.",
            at_least=products,
            at_most=products,
        ),
        Limit(
            "global_moved_bytes",
            "Each tile of c needs BM rows of a and BN rows of b once, and is stored once. Is a tile loaded again, or "
            "more than a tile?",
            at_most=lambda case: most_moved(case, out_bytes=4),
        ),
    ),
    misconceptions=(
        Misconception(
            "same_text_everywhere",
            slips.same_text_everywhere,
            "It lowers for GPUs and not for an AI core, which has no threads at this level and no fragments. Ask "
            "vendor: T.Kernel takes the number of cores alone there, and tiles live in buffers that have names.",
        ),
        Misconception(
            "no_matrix_unit",
            slips.no_matrix_unit,
            "The numbers are right, and every lane has multiplied for itself. What calls the matrix unit on two tiles?",
        ),
        Misconception(
            "not_transposed",
            slips.variant(transpose=False),
            "b is stored as (N, K), so its tile is (BN, BK): both tiles have K across. T.gemm multiplies a by b as it "
            "is, unless you say that b is to be transposed.",
        ),
        Misconception(
            "b_is_k_by_n",
            slips.variant(transpose=False, b_is_k_by_n=True),
            "You read b as (K, N). It is (N, K): row n of b holds the K numbers of column n of the product.",
        ),
        Misconception(
            "never_cleared",
            slips.variant(clear=lambda k: False),
            "T.gemm adds to what the accumulator holds, and nobody has written that yet. On a virtual GPU registers "
            "happen to begin at 0; the AI core reports it, and TileLang warned. Clear it before, or in the first step.",
        ),
        Misconception(
            "cleared_every_step",
            slips.variant(clear=lambda k: True),
            "The sum begins anew in every step, and what is left is the last BK products of K. When must it "
            "begin at 0?",
        ),
        Misconception(
            "one_step_short",
            slips.variant(steps=lambda K, BK: K // BK - 1),
            "The last BK products of each sum are missing. How many steps of BK are there in K?",
        ),
        Misconception(
            "k_not_scaled",
            slips.variant(k_at=lambda k, BK: k),
            "Step k begins at column k, so neighbouring steps overlap. It counts tiles: where does tile k begin?",
        ),
        Misconception(
            "ignores_the_tile",
            slips.variant(tile=(64, 64, 32)),
            "Your tile has sizes of its own. Those asked for are BM, BN and BK: with 96 rows a tile of 64 leaves "
            "32 out.",
        ),
        Misconception(
            "rows_and_columns_swapped",
            slips.variant(row=lambda t, rows, columns: t % columns, column=lambda t, rows, columns: t // columns),
            "Some tiles are made twice and some never. Blocks that follow one another share a row of tiles, which has "
            "N // BN of them: the quotient is the row, the remainder the column. With 2 rows of 3 tiles block 5 is in "
            "row 1, column 2.",
        ),
        Misconception(
            "stored_at_the_mirrored_place",
            slips.variant(out_at=lambda m, n: (n, m)),
            "The tile is right and goes to c[n, m]. Its rows are those of a.",
        ),
        Misconception(
            "sums_in_half_precision",
            slips.variant(sums="float16"),
            "The numbers are right to three digits: the accumulator has 16 bits. Both matrix units add in float32.",
        ),
        Misconception(
            "a_block_for_each_tile",
            slips.variant(
                blocks=lambda tiles, cores: tiles,
                rounds=lambda tiles, core, cores: 1,
                dealt=lambda core, i, cores: core,
            ),
            "Each tile has a block of its own. Launch `cores` blocks, whatever the number of tiles, and let each make "
            "several, one after the other.",
        ),
        Misconception(
            "one_tile_each",
            slips.variant(rounds=lambda tiles, core, cores: 1),
            "Each core makes its first tile and stops. With 4 cores and 6 tiles, cores 0 and 1 have a second one.",
        ),
        Misconception(
            "as_many_for_everybody",
            slips.variant(rounds=lambda tiles, core, cores: -(-tiles // cores)),
            "Every core makes as many tiles as the busiest one, so the last ones lie beyond c. How many of the numbers "
            "core, core + cores, core + 2 cores, ... are below the number of tiles?",
        ),
        Misconception(
            "operands_in_the_unified_buffer",
            slips.variant(operands="alloc_shared"),
            "On an AI core T.alloc_shared is the unified buffer, which belongs to the vector cores. The cube "
            "core takes "
            "its operands from L1.",
        ),
    ),
    hints=(
        "Four things differ between the vendors, and all of them are names: how the kernel is opened, where tiles of a "
        "and b are kept, where sums are kept. The loops and the copies are one text.",
        "Core c makes the tiles c, c + cores, c + 2 cores, ...: (tiles - c + cores - 1) // cores of them, in a loop of "
        "T.serial around the loop over K. Tile t lies in row t // (N // BN) and column t % (N // BN). Buffers are "
        "allocated once, before the loops.",
        "for i in T.serial(...): t = core + i * cores; m and n from t; for k in T.Pipelined(K // BK, num_stages=2): "
        "T.copy(a[m, k * BK], a_tile); T.copy(b[n, k * BK], b_tile); T.gemm(a_tile, b_tile, acc, transpose_B=True, "
        "clear_accum=(k == 0)); and after the loop over K T.copy(acc, c[m, n]).",
    ),
    explanation=(
        "One text fixes what is computed, in which tiles, and what is brought in while what is multiplied. "
        "The compiler "
        "decides what is different: ldmatrix and mma, or TMA and wgmma; LDS and MFMA; copies into L1 in the cube's "
        "own layout, with a flag for each buffer. What it cannot decide is in your branches: where data lives. The "
        "bytes from memory are the same on all three, because the tile is."
    ),
    seconds=60.0,
    failures=2,
)
