"""00.saxpy: a x + y on views of any shape: every tensor has its own strides, and no row a program of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u00_start import saxpy_slips as slips
from gpu_utils.exercises.u00_start.saxpy_slips import BLOCK
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

MOST_THREADS = 16
"""Threads for each element. BLOCK = 128 needs 1 on NVIDIA and 2 on AMD; a row of three to each program 43 and 85."""

_LAYOUTS: dict[str, Callable[[Callable[..., Tensor], int, int], Tensor]] = {
    "contiguous": lambda draw, rows, cols: draw(rows, cols),
    "columns of a wider matrix": lambda draw, rows, cols: draw(rows, cols + 7)[:, 3 : 3 + cols],
    "every second row": lambda draw, rows, cols: draw(2 * rows, cols)[::2],
    "every third column": lambda draw, rows, cols: draw(rows, 3 * cols)[:, ::3],
    "transposed": lambda draw, rows, cols: draw(cols, rows).T,
    "one row repeated": lambda draw, rows, cols: draw(1, cols).expand(rows, cols),
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    x, y = (_LAYOUTS[case.get(name, "contiguous")](draw, case["rows"], case["cols"]) for name in ("x", "y"))
    return {"a": case.get("a", -1.5), "x": x, "y": y}


def saxpy_reference(a: float, x: Tensor, y: Tensor) -> Tensor:
    """a x + y in float64, contiguous."""
    return a * x.double() + y.double()


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # a x is rounded before y is added, unless the two are fused: that error stays when the sum is small
    return tolerance(inputs["x"].dtype, k=2, magnitude=abs(inputs["a"]))


def _is_counted(case: Case) -> bool:
    """Whether rows are contiguous and no row starts inside a transaction."""
    contiguous = all(case.get(name, "contiguous") == "contiguous" for name in ("x", "y"))
    return contiguous and case["cols"] % BLOCK == 0


def _fresh(rng: random.Random) -> Case:
    layouts = list(_LAYOUTS)
    return Case(
        "layouts nobody chose",
        rows=rng.randrange(2, 9),
        cols=rng.randrange(BLOCK // 2, 3 * BLOCK),
        x=rng.choice(layouts),
        y=rng.choice(layouts),
        a=rng.choice([-2.25, 0.5, 3.0]),
    )


EXERCISE = Exercise(
    id="00.saxpy",
    title="a x + y on rows and columns with strides",
    parameters=("a", "x", "y"),
    kind="kernel",
    inputs=_inputs,
    reference=saxpy_reference,
    tolerance=_tolerance,
    cases=(
        Case("contiguous, one block to a row: here memory transactions are counted", rows=16, cols=BLOCK),
        Case("long rows, whose ends are no ends of blocks", rows=5, cols=2 * BLOCK + 45),
        Case("many short rows: most threads need an element", rows=500, cols=3),
        Case("x is part of a wider matrix", rows=5, cols=100, x="columns of a wider matrix"),
        Case("y skips rows, x does not", rows=4, cols=130, y="every second row"),
        Case("neighbours in a row are 3 apart in memory", rows=3, cols=90, x="every third column"),
        Case(
            "neighbours in a row of y are 3 apart in memory, those of x are not",
            rows=3,
            cols=90,
            y="every third column",
        ),
        Case("x is a transpose: its columns are contiguous", rows=6, cols=140, x="transposed", a=2.0),
        Case("y is one row, repeated with stride 0", rows=4, cols=96, y="one row repeated"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda a, x, y: torch.zeros(x.shape, device=x.device),
        "ones": lambda a, x, y: torch.ones(x.shape, device=x.device),
        "nan": lambda a, x, y: torch.full(x.shape, float("nan"), device=x.device),
        "x": lambda a, x, y: x,
        "y": lambda a, x, y: y,
    },
    limits=(
        Limit(
            "launches",
            "Launch your own kernel: saxpy_kernel[grid](...); a * x + y in Python launches two of torch's.",
            at_least=lambda case: 1,
        ),
        Limit(
            "global_sectors_per_ideal",
            "Memory is moved in whole transactions: where a row lies in one piece, let neighbouring lanes read "
            "neighbours in the row, so that they share them.",
            at_most=lambda case: 2.0 if _is_counted(case) else math.inf,
        ),
        Limit(
            "threads",
            "Most of these threads find no element: a program takes BLOCK elements, and a row may have only three. "
            "Count the elements of the whole result, and let a program go on in the next row.",
            at_most=lambda case: MOST_THREADS * case["rows"] * case["cols"] + 4096,
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "a_row_to_a_program",
            slips.a_row_to_a_program,
            "The numbers are right, but each row has programs of its own: where a row has three elements, 125 of a "
            "program's 128 positions are masked. Count through the whole result, and work out row and column of each.",
        ),
        Misconception(
            "row_and_column_exchanged",
            slips.switched(PLACE="exchanged"),
            "Element i of the result lies in row i // n_cols, and its column is what is left over. Here it is the "
            "other way round.",
        ),
        Misconception(
            "divides_by_the_rows",
            slips.switched(PLACE="by rows"),
            "A row ends after n_cols elements. Here it is divided by the number of rows.",
        ),
        Misconception(
            "column_of_the_lane",
            slips.switched(PLACE="of the lane"),
            "The column is made from tl.arange alone, so each program starts a row anew. A block may begin in the "
            "middle of a row: make row and column from the same offsets.",
        ),
        Misconception(
            "ignores_strides",
            slips.ignores_strides,
            "Contiguous tensors work, views do not: element i of a view is not at x_ptr + i. Find an element by its "
            "row and its column, each times its own stride.",
        ),
        Misconception(
            "strides_of_x_for_y",
            slips.strides_of_x_for_y,
            "It fails where x and y are laid out differently. Same shape does not mean same strides: "
            "y.stride() must reach the kernel too.",
        ),
        Misconception(
            "column_stride_of_x_only",
            slips.column_stride_of_x_only,
            "x is read with both of its strides, y only with that of its rows. Neighbours in a row of y need not be "
            "neighbours in memory either: y has a column stride of its own.",
        ),
        Misconception(
            "ignores_column_strides",
            slips.ignores_column_strides,
            "Row strides are honoured, but neighbours in a row are taken to be neighbours in memory. In a transpose or "
            "in x[:, ::3] they are not: the column needs a stride of its own.",
        ),
        Misconception(
            "no_repeated_row",
            slips.no_repeated_row,
            "It fails where one row of y is repeated. Its row stride is 0, and that is no missing stride: every row "
            "lies at the same place. Use the stride as it is.",
        ),
        Misconception(
            "flattens_with_view",
            slips.flattens_with_view,
            "view(-1) refuses tensors with gaps, and rightly: they have no flat order in memory. "
            "Keep two dimensions, and give the kernel both strides.",
        ),
        Misconception(
            "copies_first",
            slips.copies_first,
            "contiguous() and reshape() copy the view before your kernel runs: each copied tensor is read and written "
            "once more, just to be read again. The kernel can read it in place, by its strides.",
        ),
        Misconception(
            "copies_by_hand",
            slips.copies_by_hand,
            "x and y are read and written once more before your kernel runs, even where they are contiguous. Give the "
            "kernel x and y themselves, and their strides.",
        ),
        Misconception(
            "torch_multiplies",
            slips.torch_multiplies,
            "The numbers are right, but torch did a part of it, beside your kernel. Here all of it is the kernel's "
            "work, in one pass over x and y.",
        ),
        Misconception(
            "result_laid_out_like_x",
            slips.result_laid_out_like_x,
            "It fails when x is a transpose: torch.empty_like keeps the strides of x, so your result is transposed in "
            "memory too. Ask for a contiguous result by its shape: torch.empty(x.shape, ...).",
        ),
        Misconception(
            "no_mask",
            slips.switched(MASK="none"),
            "The last block reaches past the end of the result, and of x and y. Elements that do not exist need a "
            "mask. It must compare their offsets: a column that is left over by a division is always below n_cols.",
        ),
        Misconception(
            "unmasked_store",
            slips.switched(MASK="loads"),
            "The loads are masked, the store is not: after the last element it writes out of the result. "
            "Give it the same mask.",
        ),
        Misconception(
            "mask_one_long",
            slips.switched(MASK="one long"),
            "`offsets <= n` lets one lane too many through: elements are numbered 0 to n - 1.",
        ),
        Misconception(
            "mask_of_the_columns",
            slips.switched(MASK="columns"),
            "Only the first row is written: the mask compares the offsets in the whole result with the number of "
            "columns. How many elements there are is rows * cols.",
        ),
        Misconception(
            "one_block_only",
            slips.on_grid(lambda n: 1),
            "Only the first block is written: the grid has one program. How many blocks does the whole result have?",
        ),
        Misconception(
            "grid_rounds_down",
            slips.on_grid(lambda n: n // BLOCK),
            "The end of the result is never written: n // BLOCK rounds down, so the last, incomplete block gets no "
            "program.",
        ),
        Misconception(
            "one_program_for_each_element",
            slips.on_grid(lambda n: n),
            "The numbers are right, but the grid has one program for each element, and a program takes BLOCK of them: "
            "nearly all find their mask empty. Count blocks, not elements.",
        ),
        Misconception(
            "writes_into_x",
            slips.into("x"),
            "The result is written over x. Allocate a new tensor; the caller still needs x.",
        ),
        Misconception(
            "writes_into_y",
            slips.into("y"),
            "The result is written over y. Allocate a new tensor; the caller still needs y.",
        ),
        Misconception(
            "neighbours_down_the_rows",
            slips.switched(PLACE="down the rows"),
            "The numbers are right, but neighbouring lanes have neighbours of a column: they are a whole row apart, "
            "and each transaction brings mostly bytes that nobody in the warp or wavefront asked for. "
            "Let the column change first.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result: a launch returns nothing. End the launcher with return out.",
        ),
        Misconception(
            "computes_with_torch",
            lambda a, x, y: (a * x + y).expand(x.shape),
            "The numbers are right, but torch computed them. Here it is your kernel's work: launch it with "
            "saxpy_kernel[grid](...).",
        ),
    ),
    hints=(
        "Count the elements of the result row by row, from 0 to rows * cols - 1. In which row and in which column is "
        "element i? And where in memory is x[row, col]?",
        "A program takes BLOCK elements of the result, and the mask asks which of them exist. A division by n_cols "
        "gives the row of each, the rest of it the column. Pass x.stride(0), x.stride(1), y.stride(0) and y.stride(1) "
        "to the kernel.",
        "row, col = offsets // n_cols, offsets % n_cols; x_ptr + row * stride_xm + col * stride_xn; the same for y. "
        "Allocate with torch.empty(x.shape, dtype=x.dtype, device=x.device) and store at out_ptr + offsets. The grid "
        "is (triton.cdiv(rows * cols, BLOCK),).",
    ),
    explanation=(
        "A view is a pointer, a shape and strides: x[row, col] lies at x_ptr + row * stride_xm + col * stride_xn. "
        "With its own two strides for each tensor the same kernel reads slices, transposes and a repeated row "
        "(stride 0), and nothing is copied. Which elements a program takes is another question: counted through the "
        "whole result, every lane but those of the last block has one, however short a row is. The price is a "
        "division for each element, and speed where neighbouring lanes read addresses that are far apart; unit 02 "
        "counts that."
    ),
)
