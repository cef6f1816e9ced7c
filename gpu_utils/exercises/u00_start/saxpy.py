"""00.saxpy: a x + y on views: every tensor has its own strides."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.backends import record_launches
from gpu_utils.errors import InputCopied
from gpu_utils.exercises.u00_start import saxpy_slips as slips
from gpu_utils.exercises.u00_start.saxpy_slips import BLOCK
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception
from gpu_utils.grading.watch import Watch

MOST_THREADS = 64
"""Threads for each element. BLOCK = 128 needs 1 on NVIDIA and 2 on AMD where rows are whole blocks."""

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


class _NoCopies(Watch):
    """Refuses copies of given tensors inside the block: contiguous(), clone(), reshape() of a view that needs one."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        self.memory = {_memory(tensor) for tensor in tensors}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        copies = func.overloadpacket in (torch.ops.aten.clone, torch.ops.aten._to_copy)
        if copies and args[0].numel() > 1 and _memory(args[0]) in self.memory:
            shape = tuple(args[0].shape)
            raise InputCopied(
                f"a tensor of shape {shape} was copied (contiguous, clone and reshape can do that), expected the "
                "kernel to read x and y where they are; pass it their strides instead"
            )
        return func(*args, **(kwargs or {}))


def _call(answer: Callable[..., Tensor], inputs: Inputs) -> Tensor:
    with _NoCopies(inputs["x"], inputs["y"]), record_launches() as launches:
        result = answer(**inputs)
    if not isinstance(result, Tensor):
        return result  # the comparison says what is wrong with it
    known = {_memory(value) for value in (inputs["x"], inputs["y"], result)}
    for launch in launches:
        for value in (*launch.args, *launch.kwargs.values()):
            if isinstance(value, Tensor) and value.numel() > 1 and _memory(value) not in known:
                raise InputCopied(
                    f"{launch.name} was given a tensor of shape {tuple(value.shape)} that is neither x nor y nor the "
                    "result, expected it to read x and y where they are; pass it their strides instead of copies"
                )
    return result


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


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
    call=_call,
    cases=(
        Case("contiguous, one block to a row: here memory transactions are counted", rows=16, cols=BLOCK),
        Case("several blocks to a row and a tail", rows=4, cols=2 * BLOCK + 44),
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
            "Most of these threads belong to programs that have no element: a program takes BLOCK columns of a row, so "
            "the grid needs one program for each block of each row.",
            at_most=lambda case: MOST_THREADS * case["rows"] * case["cols"] if _is_counted(case) else math.inf,
        ),
    ),
    misconceptions=(
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
            "copy_ is a copy too, and so is every operation of torch that makes a new tensor from x: the view is read "
            "and written once more before your kernel runs. Give the kernel x itself, and its strides.",
        ),
        Misconception(
            "result_laid_out_like_x_by_its_row_stride",
            slips.result_laid_out_like_x_by_its_row_stride,
            "It fails when x is a transpose: torch.empty_like keeps the strides of x, so two rows of your result lie "
            "one element apart, and programs write over each other. Ask for a contiguous result by its shape.",
        ),
        Misconception(
            "result_laid_out_like_x",
            slips.result_laid_out_like_x,
            "It fails when x is a transpose: torch.empty_like keeps the strides of x, so your result is transposed in "
            "memory too. Either ask for a contiguous result by its shape, or store with out.stride().",
        ),
        Misconception(
            "no_mask",
            slips.no_mask,
            "The last block of a row reaches past its end, into the next row or out of the tensor. "
            "Columns that do not exist need a mask.",
        ),
        Misconception(
            "unmasked_store",
            slips.on_grid(slips.blocks, slips.unmasked_store_kernel),
            "The loads are masked, the store is not: at the end of a row it writes over the next one, and after the "
            "last row out of the tensor. Give it the same mask.",
        ),
        Misconception(
            "mask_one_long",
            slips.on_grid(slips.blocks, slips.one_long_kernel),
            "`cols <= n_cols` lets one lane too many through: columns are numbered 0 to n_cols - 1. What lies one past "
            "the end of a row is the start of the next one, or nothing.",
        ),
        Misconception(
            "one_block_per_row",
            slips.on_grid(lambda rows, cols: (rows, 1)),
            "Only the first block of each row is written. Rows longer than BLOCK need more programs along the second "
            "axis of the grid (or a loop in the kernel).",
        ),
        Misconception(
            "grid_rounds_down",
            slips.on_grid(lambda rows, cols: (rows, cols // BLOCK)),
            "The end of each row is never written: cols // BLOCK rounds down, so the last, incomplete block of a row "
            "gets no program, and a row shorter than a block gets none at all.",
        ),
        Misconception(
            "grid_rounds_down_to_one",
            slips.on_grid(lambda rows, cols: (rows, max(1, cols // BLOCK))),
            "Long rows lose their end: max(1, cols // BLOCK) mends rows that are shorter than a block, and still "
            "rounds down for all others. Divide so that a started block counts.",
        ),
        Misconception(
            "one_program_for_each_element",
            slips.on_grid(lambda rows, cols: (rows, cols)),
            "The numbers are right, but the grid has one program for each element, and a program takes BLOCK of them: "
            "nearly all find their mask empty. Count the blocks of a row, not its elements.",
        ),
        Misconception(
            "axes_of_the_grid_swapped",
            slips.on_grid(lambda rows, cols: slips.blocks(rows, cols)[::-1]),
            "The first axis of the grid counts what tl.program_id(0) counts. In the kernel that is the row; in the "
            "launcher it is the block of columns. Let both agree.",
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
            "lanes_down_the_rows",
            slips.lanes_down_the_rows,
            "The numbers are right, but tl.arange counts rows here: neighbouring lanes are a whole row apart, and each "
            "transaction brings mostly bytes that nobody in the warp or wavefront asked for. "
            "Let tl.arange count columns.",
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
        "Where in memory is x[row, col]? x.stride() gives two numbers: the distance between rows and the distance "
        "between columns, both in elements.",
        "Use a grid of two dimensions, (rows, blocks to a row): tl.program_id(0) is the row, tl.program_id(1) the "
        "block of columns. Mask the columns. Pass x.stride(0), x.stride(1), y.stride(0) and y.stride(1) to the kernel.",
        "x_ptr + row * stride_xm + cols * stride_xn, with cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK) and "
        "mask = cols < n_cols; the same for y. Allocate with torch.empty(x.shape, dtype=x.dtype, device=x.device) and "
        "store at out_ptr + row * n_cols + cols.",
    ),
    explanation=(
        "A view is a pointer, a shape and strides: x[row, col] lies at x_ptr + row * stride_xm + col * stride_xn. "
        "With its own two strides for each tensor the same kernel reads slices, transposes and a repeated row "
        "(stride 0), and nothing is copied. The price is speed where neighbouring lanes read addresses that are far "
        "apart; unit 02 counts that."
    ),
)
