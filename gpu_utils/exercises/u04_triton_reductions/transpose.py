"""04.transpose: a tile per program, with sides so long that loads and stores both fill whole transactions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.backends.recording import record_launches
from gpu_utils.errors import BadArgument, ForbiddenCall
from gpu_utils.exercises.u04_triton_reductions import transpose_slips as slips
from gpu_utils.exercises.u04_triton_reductions.transpose_slips import answer
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

_LAYOUTS: dict[str, Callable[[Callable[..., Tensor], int, int, int], Tensor]] = {
    "contiguous": lambda draw, batch, rows, cols: draw(batch, rows, cols),
    "columns of a wider matrix": lambda draw, batch, rows, cols: draw(batch, rows, cols + 9)[:, :, 5 : 5 + cols],
    "every second matrix": lambda draw, batch, rows, cols: draw(2 * batch, rows, cols)[::2],
    "a transpose": lambda draw, batch, rows, cols: draw(batch, cols, rows).mT,
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(getattr(torch, case.get("dtype", "float32")))

    return {"x": _LAYOUTS[case.get("layout", "contiguous")](draw, case["batch"], case["rows"], case["cols"])}


def transpose_reference(x: Tensor) -> Tensor:
    """Rows and columns of each matrix exchanged."""
    return x.double().mT.contiguous()


def _call(wanted: Callable[..., Any], inputs: Inputs) -> Any:
    """The answer's result, which a kernel must have written, and which must be contiguous."""
    with record_launches() as launches:
        value = wanted(**inputs)
    if not launches or not isinstance(value, Tensor):
        return value
    given = [getattr(one, "base", one) for launch in launches for one in (*launch.args, *launch.kwargs.values())]
    places = {one.untyped_storage().data_ptr() for one in given if isinstance(one, Tensor)}
    if value.untyped_storage().data_ptr() not in places:
        raise ForbiddenCall(
            "the result is not memory that a kernel wrote, but a copy that torch made of it; store each element where "
            "it belongs, and return that tensor"
        )
    if value.shape == inputs["x"].mT.shape and not value.is_contiguous():
        raise BadArgument(
            f"the result has strides {value.stride()}: in memory nothing was transposed. Allocate a contiguous result, "
            "torch.empty(shape, ...), and return it without .mT or permute"
        )
    return value


def _elements(case: Case) -> int:
    return int(case["batch"] * case["rows"] * case["cols"])


def _counted(case: Case) -> bool:
    return case["rows"] % 64 == 0 == case["cols"] % 64 and case.get("layout", "contiguous") == "contiguous"


def _fresh(rng: random.Random) -> Case:
    rows, cols = rng.sample(range(20, 110), 2)
    layouts = ["contiguous", "columns of a wider matrix", "every second matrix"]
    return Case("sizes nobody chose", batch=rng.randrange(1, 4), rows=rows, cols=cols, layout=rng.choice(layouts))


def _filled(value: float) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.full(x.mT.shape, value, dtype=x.dtype, device=x.device)


EXERCISE = Exercise(
    id="04.transpose",
    title="A transpose that loads and stores whole transactions",
    parameters=("x",),
    kind="kernel",
    inputs=_inputs,
    reference=transpose_reference,
    tolerance=lambda case, inputs: EXACT,
    call=_call,
    cases=(
        Case("whole tiles: everything is counted", batch=1, rows=64, cols=128),
        Case("elements of two bytes: a transaction holds twice as many", batch=1, rows=128, cols=64, dtype="float16"),
        Case("odd sizes", batch=3, rows=70, cols=45, dtype="bfloat16"),
        Case("a single row", batch=1, rows=1, cols=130),
        Case(
            "x is a part of wider matrices, one row more than a tile",
            batch=2,
            rows=65,
            cols=50,
            layout="columns of a wider matrix",
        ),
        Case("x skips matrices", batch=2, rows=20, cols=30, layout="every second matrix"),
        Case("x is a transpose itself", batch=2, rows=50, cols=70, layout="a transpose"),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "the input": lambda x: x},
    torch_may=(),
    limits=(
        Limit("launches", "Launch your own kernel: transpose_kernel[grid](...).", at_least=lambda case: 1),
        Limit("launches", "One launch is enough: the batch is a dimension of the grid.", at_most=lambda case: 1),
        Limit(
            "blocks",
            "These are more programs than there are tiles: most find nothing to do. Divide rows and columns by the "
            "sides of a tile, rounded up.",
            at_most=lambda case: _elements(case) // 64 if _counted(case) else math.inf,
        ),
        Limit(
            "global_moved_bytes",
            "Each element is read once and written once, in whole transactions. The load goes along rows of x, the "
            "store along rows of the result, which are columns of x: so both sides of a tile must fill a transaction, "
            "of 32 bytes on sm_80 and of 128 on gfx942.",
            at_most=lambda case: (
                2.1 * _elements(case) * (4 if case.get("dtype", "float32") == "float32" else 2)
                if _counted(case)
                else math.inf
            ),
        ),
        Limit(
            "bank_conflicts",
            "More conflicts than Triton itself makes of such tiles: lanes served together want different words "
            "of one bank. Look at the layout of your tile in shared memory.",
            at_most=lambda case: _elements(case) // 4 if _counted(case) else math.inf,
        ),
        Limit("scratch_bytes", "Registers are spilled: take a smaller tile, or more warps.", at_most=lambda case: 0),
    ),
    misconceptions=(
        Misconception(
            "a_row_for_each_program",
            slips.a_row_for_each_program,
            "A program reads a row and writes a column: each element that it stores is in a transaction of its own. "
            "Let a program take a tile, several rows and several columns.",
        ),
        Misconception(
            "tiles_of_16",
            answer(tile=16),
            "Tiles of 16 by 16 are too small for gfx942: 16 elements of float32 are 64 bytes, half a transaction, in "
            "the load as in the store. Make the sides longer.",
        ),
        Misconception(
            "tiles_of_32",
            answer(tile=32),
            "Sides of 32 fill a transaction of 128 bytes with float32. With two bytes to an element they fill half of "
            "it. How long must a side be for both?",
        ),
        Misconception(
            "flat_tiles",
            answer(tile=(16, 128)),
            "Rows of a tile are long, and its columns are short: the load fills whole transactions, and the store, "
            "which goes along columns of x, does not. Both sides count.",
        ),
        Misconception(
            "elements_not_turned",
            answer("elements not turned"),
            "Tiles are where they belong, but the elements in each are not turned: what is stored at [c, r] has to be "
            "x[r, c]. tl.trans turns a tile.",
        ),
        Misconception(
            "tiles_stay",
            answer("tiles stay"),
            "The elements in each tile are turned, and the tile stays where it was, or the grid has rows where the "
            "kernel has columns. Tile (i, j) of x becomes tile (j, i) of the result: which program id counts which?",
        ),
        Misconception(
            "result_row_is_n_cols_long",
            answer(out_row=lambda x: x.shape[2]),
            "A row of the result has as many elements as x has rows. Only for a square matrix is that the same.",
        ),
        Misconception(
            "mask_not_turned",
            answer("mask not turned"),
            "The store has the mask of the load. The stored tile is turned, so its mask must be, too.",
        ),
        Misconception(
            "loads_unmasked",
            answer(load_masks=False),
            "The loads reach past the last row or column: mask both.",
        ),
        Misconception(
            "stores_unmasked",
            answer(store_masks=False),
            "The loads are masked and the store is not: it writes into the next row, and past the end of the result.",
        ),
        Misconception(
            "takes_x_for_contiguous",
            answer(strides=lambda x: (x.shape[1] * x.shape[2], x.shape[2], 1)),
            "It fails for views: x has three strides, of the batch, of the rows and of the columns. Pass them all.",
        ),
        Misconception(
            "takes_matrices_for_neighbours",
            answer(strides=lambda x: (x.shape[1] * x.shape[2], x.stride(1), x.stride(2))),
            "From one matrix to the next it is x.stride(0) elements, which need not be rows times columns.",
        ),
        Misconception(
            "takes_columns_for_neighbours",
            answer(strides=lambda x: (x.stride(0), x.stride(1), 1)),
            "It fails where x is a transpose itself: neighbours in a row are x.stride(2) elements apart.",
        ),
        Misconception(
            "first_matrix_only",
            answer(grid=lambda across, down, batch: (across, down, 1)),
            "Only the first matrix of the batch is transposed: the grid needs a dimension for the batch.",
        ),
        Misconception(
            "batch_without_the_program_id",
            answer(strides=lambda x: (0, x.stride(1), x.stride(2))),
            "Every matrix of the result is made from the first one of x: its address lacks the batch's program id "
            "times x.stride(0).",
        ),
        Misconception(
            "last_tiles_missing",
            answer(tiles=lambda n, tile: max(1, n // tile)),
            "Tiles that are not full have no program: round up, with triton.cdiv.",
        ),
        Misconception(
            "a_launch_for_each_matrix",
            slips.a_launch_for_each_matrix,
            "The batch is a loop of launches. Each costs some microseconds: make the batch a dimension of the grid.",
        ),
        Misconception(
            "always_float32",
            answer(dtype=lambda x: torch.float32),
            "The result has the type of x, whatever it is: nothing is computed here.",
        ),
        Misconception(
            "result_laid_out_like_x",
            slips.result_laid_out_like_x,
            "torch.empty_like keeps the strides of x.mT, and a view has the shape alone: the elements lie in the order "
            "of x. A transpose in memory is asked for.",
        ),
        Misconception(
            "torch_transposes",
            slips.torch_transposes,
            "Your kernel copies, and torch's contiguous() does the transpose after it, with as many bytes again.",
        ),
        Misconception(
            "of_a_copy",
            slips.of_a_copy,
            "A view is copied before your kernel runs. Read it in place, by its strides.",
        ),
        Misconception("with_torch", slips.with_torch, "torch did it. Here it is your kernel's work: launch it."),
    ),
    hints=(
        "A program that reads a row must write a column, in steps of a whole row. What shape must the piece of x have "
        "that a program takes, so that it has long stretches of rows and of columns?",
        "Load a tile with offsets rows[:, None] * stride_m + cols[None, :] * stride_n. In the result its place is "
        "cols[:, None] * n_rows + rows[None, :], a tile of the other shape: tl.trans turns the one into the other, "
        "through shared memory. How many elements fill 128 bytes?",
        "Tiles of 64 by 64; grid (tiles of columns, tiles of rows, batch). tile = tl.load(x_ptr + batch * stride_b + "
        "..., mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :]); tl.store(out_ptr + batch * n_rows * n_cols + "
        "..., tl.trans(tile), mask=(cols < n_cols)[:, None] & (rows < n_rows)[None, :]).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "Loads go along rows of x and stores along columns of it, so one of the two is scattered unless a program "
        "holds a tile whose sides both fill a transaction: 32 bytes on sm_80, 128 on gfx942, which is 32 float32 or 64 "
        "float16. Triton gives load and store a distribution over lanes of their own, and moves the tile from one to "
        "the other through shared memory. On sm_80 its layout there has no bank conflicts; on gfx942 it has some with "
        "any tile that is coalesced, up to 1 for each 16 elements, and only a layout chosen by hand, in Gluon or as in "
        "02.transpose, has none."
    ),
)
