"""04.sum_of_columns: many programs share a column, by atomics or, where the bits must not depend on luck, without."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.other_order import in_both_orders, other_bits
from gpu_utils.exercises.u04_triton_reductions import sum_of_columns_slips as slips
from gpu_utils.exercises.u04_triton_reductions.sum_of_columns_slips import answer
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

FEWEST, MOST = 16, 256
"""Rows of x that one program adds up before it hands its sums on."""

_LAYOUTS: dict[str, Callable[[Callable[..., Tensor], int, int], Tensor]] = {
    "contiguous": lambda draw, rows, cols: draw(rows, cols),
    "columns of a wider matrix": lambda draw, rows, cols: draw(rows, cols + 9)[:, 5 : 5 + cols],
    "transposed": lambda draw, rows, cols: draw(cols, rows).T,
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    def draw(*shape: int) -> Tensor:
        # 0.5 and more, most of them positive: no row is lost in the tolerance, and long sums grow large
        size = torch.rand(shape, generator=generator) + 0.5
        signs = 1 - 2 * (torch.rand(shape, generator=generator) < 0.2).float()
        return (size * signs).to(getattr(torch, case.get("dtype", "float32")))

    x = _LAYOUTS[case.get("layout", "contiguous")](draw, case["rows"], case["cols"])
    return {"x": x, "deterministic": case["deterministic"]}


def column_sums_reference(x: Tensor, deterministic: bool) -> Tensor:
    """The sum of each column, in float64."""
    return x.double().sum(0)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # terms below 1.5, most of one sign: partial sums grow with their number
    return tolerance(torch.float32, k=case["rows"], magnitude=1.5 * math.sqrt(max(1, case["rows"])))


def _call(wanted: Callable[..., Any], inputs: Inputs) -> list[Any]:
    """The answer's result; a deterministic one's twice, the second time from programs in another order, not counted."""
    return in_both_orders(wanted, inputs) if inputs["deterministic"] else [wanted(**inputs)]


def _judge(case: Case, inputs: Inputs, value: list[Any]) -> Difference | None:
    expected, tol = column_sums_reference(**inputs), _tolerance(case, inputs)
    for got in value:
        if found := compare(expected, got, tol, torch.float32):
            return found
    changed = other_bits(value[0], value[-1], "result")
    return Difference("order", f"deterministic=True, and {changed}") if changed else None


def _counted(case: Case) -> bool:
    return case["rows"] % MOST == 0 and case["rows"] > 0 and case["cols"] % 64 == 0


def _bytes(case: Case) -> int:
    return int(case["rows"] * case["cols"] * (4 if case.get("dtype", "float32") == "float32" else 2))


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a shape nobody chose",
        rows=rng.randrange(300, 700),
        cols=rng.randrange(20, 150),
        deterministic=rng.random() < 0.5,
        layout=rng.choice(["contiguous", "columns of a wider matrix"]),
    )


EXERCISE = Exercise(
    id="04.sum_of_columns",
    title="Column sums shared by many programs",
    parameters=("x", "deterministic"),
    kind="kernel",
    inputs=_inputs,
    reference=column_sums_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=_call,
    judge=_judge,
    cases=(
        Case("whole tiles: everything is counted, and atomics are allowed", rows=2048, cols=64, deterministic=False),
        Case("whole tiles, and the same bits in whatever order programs run", rows=2048, cols=64, deterministic=True),
        Case("odd sizes in float16", rows=320, cols=77, dtype="float16", deterministic=False),
        Case("sums that bfloat16 cannot hold", rows=1300, cols=33, dtype="bfloat16", deterministic=True),
        Case(
            "a part of a wider matrix, and one column more than a tile of 64",
            rows=150,
            cols=65,
            layout="columns of a wider matrix",
            deterministic=False,
        ),
        Case(
            "a transpose: columns are contiguous, rows are not",
            rows=300,
            cols=40,
            layout="transposed",
            deterministic=True,
        ),
        Case("a single row", rows=1, cols=5, deterministic=True),
        Case("no rows at all: every sum is 0", rows=0, cols=3, deterministic=True),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x, deterministic: torch.zeros(x.shape[1], device=x.device),
        "ones": lambda x, deterministic: torch.ones(x.shape[1], device=x.device),
        "nan": lambda x, deterministic: torch.full((x.shape[1],), math.nan, device=x.device),
        "the input": lambda x, deterministic: x,
    },
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "Where any order is allowed, programs add to the same result with tl.atomic_add: one launch. Two passes "
            "are for deterministic=True.",
            at_least=lambda case: min(1, case["rows"]),
            at_most=lambda case: math.inf if case["deterministic"] else 1,
        ),
        Limit(
            "blocks",
            "Too few programs: while they walk down all those rows, the rest of the chip is idle. A program adds up "
            f"{FEWEST} to {MOST} rows, and the others are another program's.",
            at_least=lambda case: -(-case["rows"] // MOST),
        ),
        Limit(
            "blocks",
            "These are more programs than there is work for: a program takes a block of columns, at least 32 of them.",
            at_most=lambda case: (case["rows"] // FEWEST) * (case["cols"] // 32) if _counted(case) else math.inf,
        ),
        Limit(
            "global_load_bytes",
            "x is read once, and partial sums are few. More means that x is read twice, that a program adds up too few "
            "rows, or that a tile has fewer elements than a program has lanes: 128 on sm_80, 256 on gfx942, with four "
            "waves. Then several lanes load the same element.",
            at_most=lambda case: 1.25 * _bytes(case) if _counted(case) else math.inf,
        ),
        Limit(
            "global_sectors_per_ideal",
            "Neighbouring lanes should read neighbours in a row. Make tiles wide: let the columns be the last "
            "dimension, with stride 1.",
            at_most=lambda case: 1.6 if _counted(case) else math.inf,
        ),
        Limit(
            "global_atomics",
            f"An atomic goes to memory each time. Add up at least {FEWEST} rows in registers, and then add each column "
            "to memory once.",
            at_most=lambda case: case["cols"] * -(-case["rows"] // FEWEST),
        ),
        Limit(
            "global_store_bytes",
            f"Partial sums are stored once for each program, and a program adds up at least {FEWEST} rows.",
            at_most=lambda case: 4 * case["cols"] * (-(-case["rows"] // FEWEST) + 1),
        ),
        Limit(
            "scratch_bytes",
            "Registers are spilled: take a smaller tile, or more warps.",
            at_most=lambda case: 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "atomics_in_any_case",
            answer(atomics=lambda deterministic: True),
            "Atomics lose nothing, but they add in the order in which programs come, and a float sum rounds after each "
            "step: another order, other bits. With deterministic=True let each program store its sums in a row of its "
            "own, and add those rows up in a second launch.",
        ),
        Misconception(
            "two_passes_in_any_case",
            answer(atomics=lambda deterministic: False),
            "Two passes are right in both cases, and the first case asks for one launch: tl.atomic_add on a result "
            "that begins with zeros needs no second one.",
        ),
        Misconception(
            "the_other_way_round",
            answer(atomics=lambda deterministic: deterministic),
            "The flag is used the wrong way round: atomics where it is True, two passes where it is False.",
        ),
        Misconception(
            "adds_without_atomics",
            answer("adds without atomics"),
            "Load, add, store are three steps. Between the first and the last of them another program stores its own "
            "sum, which is then lost. tl.atomic_add does the three in one.",
        ),
        Misconception(
            "one_program_for_a_column",
            slips.one_program,
            "One program walks down all the rows of its columns: right, without races, and with a few programs for a "
            "chip that holds hundreds. Share the rows out.",
        ),
        Misconception(
            "adds_to_new_memory",
            answer(new=torch.empty),
            "tl.atomic_add adds to what is there, and torch.empty leaves whatever was there before. Begin with zeros.",
        ),
        Misconception(
            "adds_every_element_to_memory",
            answer("adds each to memory"),
            "Every element is added to memory by an atomic of its own. Add up the rows of a program in registers "
            "first: tl.sum over the tile, then one atomic for each column.",
        ),
        Misconception(
            "too_few_rows_for_a_program",
            answer(rows_each=4, block_m=4),
            f"A program adds up four rows and hands its sums on: a quarter of x is written again. {FEWEST} to {MOST} "
            "rows a program make it little.",
        ),
        Misconception(
            "partial_sums_returned",
            answer(second="none"),
            "With deterministic=True these are the partial sums, one row for each program. They still have to be added "
            "up, by a second launch.",
        ),
        Misconception(
            "torch_adds_the_partials",
            answer(second="torch"),
            "The first pass is right, and the second is torch's. Here it is your kernel's: its input is a matrix whose "
            "columns are to be summed, and a kernel for that exists already.",
        ),
        Misconception(
            "second_pass_in_one_step",
            answer(second="one step"),
            "The second pass adds up the first 16 partial sums and stops. It must go on to the last one: how many "
            "programs did the first pass have?",
        ),
        Misconception(
            "partials_overlap",
            answer(part_step=lambda x: slips.BLOCK_N),
            "From one program's partial sums to the next it is n_cols elements, not the width of a tile: so they lie "
            "over each other.",
        ),
        Misconception(
            "partials_in_the_type_of_x",
            answer(keep=lambda x: x.dtype),
            "The partial sums are stored in the type of x, which rounds them to 8 or 11 bits on the way. Keep them in "
            "float32.",
        ),
        Misconception(
            "adds_up_in_the_type_of_x",
            answer("narrow"),
            "The sums are kept in the type of x: bfloat16 adds 1 to 256 and gets 256. Make the running sum float32.",
        ),
        Misconception(
            "result_in_the_type_of_x",
            slips.in_the_type_of_x,
            "The result is float32, whatever the type of x is.",
        ),
        Misconception(
            "keeps_the_last_tile",
            answer("keeps the last"),
            "Each step replaces what the one before left: only the last tile of each program arrives. Add to the "
            "running sum.",
        ),
        Misconception(
            "sums_of_the_rows",
            slips.sums_of_rows,
            "These are the sums of the rows. A column sum runs over the rows: it adds up along axis 0 of the tile.",
        ),
        Misconception(
            "one_number_for_all_columns",
            answer("one number"),
            "All columns of a tile get one number: tl.sum was taken over the columns, too. tl.sum(tile, axis=0) leaves "
            "one sum for each column.",
        ),
        Misconception(
            "rows_counted_again",
            answer(rows=lambda x: x.shape[0]),
            "Every program goes on to the last row, so later rows are counted by many of them. Where do the rows of a "
            "program end?",
        ),
        Misconception(
            "rows_without_the_program_id",
            answer(row_step=lambda x: 0),
            "Every program adds up the same first rows. Which row does program p begin with?",
        ),
        Misconception(
            "columns_without_the_program_id",
            answer(col_step=lambda x: 0),
            "Every program takes the first columns. The columns must depend on the second program id.",
        ),
        Misconception(
            "no_mask_of_rows",
            answer(mask_rows=lambda x: 1 << 30),
            "The last program reaches past the last row. A tile needs both masks, of rows and of columns.",
        ),
        Misconception(
            "no_mask_of_columns",
            answer(mask_cols=lambda x: 1 << 30),
            "The last tile reaches past the last column, into the next row and out of the result. Mask the columns, in "
            "the loads and where sums are stored or added.",
        ),
        Misconception(
            "last_rows_missing",
            answer(programs=lambda x, each: max(1, x.shape[0] // each)),
            "The rows that fill no whole program are missing: round the number of programs up, with triton.cdiv.",
        ),
        Misconception(
            "last_columns_missing",
            answer(columns=lambda x: max(1, x.shape[1] // slips.BLOCK_N)),
            "The last, incomplete block of columns has no program: round up, with triton.cdiv.",
        ),
        Misconception(
            "a_program_for_each_column",
            answer(columns=lambda x: x.shape[1]),
            "The grid has a program for each column, and a program takes a block of them: most find nothing to do. "
            "Count blocks, not columns.",
        ),
        Misconception(
            "takes_x_for_contiguous",
            answer(strides=lambda x: (x.shape[1], 1)),
            "It fails for views. From one row to the next it is x.stride(0) elements, and from one column to the next "
            "x.stride(1).",
        ),
        Misconception(
            "takes_columns_for_neighbours",
            answer(strides=lambda x: (x.stride(0), 1)),
            "It fails for a transpose: neighbours in a row are x.stride(1) elements apart.",
        ),
        Misconception(
            "of_a_copy",
            slips.of_a_copy,
            "A view is copied before your kernel runs: read and written once more. Read it in place, by its strides.",
        ),
        Misconception(
            "with_torch",
            slips.with_torch,
            "The numbers are right, and torch computed them. Here it is your kernel's work.",
        ),
    ),
    hints=(
        "Cut the rows into pieces of, say, 64, and give each program one piece of one block of columns: a grid of two "
        "dimensions. What does a program have when it is done, and where can it put that without being in the way of "
        "the others?",
        "With atomics: tl.atomic_add(out_ptr + cols, sums, mask=...) on a result of zeros. Without: a matrix of "
        "partial sums with one row for each program of a column. Its column sums are the result, so a second launch of "
        "the same kernel, with one program for all of its rows, does it.",
        "total += tl.load(tile) in a loop over the rows of the program, total a tile of float32; sums = tl.sum(total, "
        "axis=0). Then either tl.atomic_add(out_ptr + cols, ...) or tl.store(out_ptr + tl.program_id(0) * n_cols + "
        "cols, ...). Second launch: grid (1, blocks of columns), x is `partial`, its rows are all one program's.",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "A result that many programs share can be reached in two ways. Atomics add to it in the order in which "
        "programs come: one launch, one atomic for each program and column, and bits that change from run to run, "
        "because a float sum rounds at each step. Partial sums in memory of their own are added up in an order that "
        "the second kernel fixes: a second launch, a few more bytes, and always the same bits. Either way each program "
        "first adds up many rows in registers, so that what is shared is small."
    ),
)
