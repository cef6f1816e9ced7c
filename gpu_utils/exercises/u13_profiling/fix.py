"""13.fix: a kernel that is right and slow, with the profile that says why; the mended one is judged by counters."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT, Tolerance, tolerance
from gpu_utils.exercises.other_order import in_both_orders, other_bits
from gpu_utils.exercises.u13_profiling import fix_slips as slips
from gpu_utils.exercises.u13_profiling.fix_slips import Gradients, answer
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

MOST = 128
"""Rows that one program may add up."""

_LAYOUTS: dict[str, Callable[[Callable[..., Tensor], int, int], Tensor]] = {
    "contiguous": lambda draw, rows, cols: draw(rows, cols),
    "columns of a wider matrix": lambda draw, rows, cols: draw(rows, cols + 9)[:, 5 : 5 + cols],
    "transposed": lambda draw, rows, cols: draw(cols, rows).T,
    "every second row": lambda draw, rows, cols: draw(2 * rows, cols)[::2],
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype = getattr(torch, case.get("dtype", "float32"))

    def gradient(*shape: int) -> Tensor:
        # 0.5 and more, most of them positive: no row is lost in the tolerance, and long sums grow large
        size = torch.rand(shape, generator=generator) + 0.5
        return (size * (1 - 2 * (torch.rand(shape, generator=generator) < 0.2).float())).to(dtype)

    def output(*shape: int) -> Tensor:
        # a third below 0, a third exactly 0, as after a ReLU, and a third above
        drawn = torch.rand(shape, generator=generator) * 3 - 1.5
        return torch.where(drawn.abs() < 0.5, torch.zeros(()), drawn).to(dtype)

    shape = case["rows"], case["cols"]
    dy = _LAYOUTS[case.get("dy", "contiguous")](gradient, *shape)
    return {"dy": dy, "y": _LAYOUTS[case.get("y", "contiguous")](output, *shape)}


def relu_gradients(dy: Tensor, y: Tensor) -> Gradients:
    """The gradient before the ReLU, and that of the bias, its sum over the rows in float64."""
    dz = torch.where(y > 0, dy, torch.zeros_like(dy))
    return dz, dz.double().sum(0)


def _tolerance(case: Case, inputs: Inputs) -> Mapping[int, Tolerance]:
    # terms below 1.5, most of one sign: partial sums grow with their number
    sums = tolerance(torch.float32, k=case["rows"], magnitude=1.5 * math.sqrt(max(1, case["rows"])))
    return {0: EXACT, 1: sums}


def whole(rows: int, cols: int) -> bool:
    """Whether bytes, sectors and launches are counted for such a matrix."""
    return rows % MOST == 0 == cols % 64


def _call(wanted: Callable[..., Any], inputs: Inputs) -> list[Any]:
    """The answer's result; where nothing is counted twice, the second time from programs in another order."""
    return [wanted(**inputs)] if whole(*inputs["dy"].shape) else in_both_orders(wanted, inputs)


def _judge(case: Case, inputs: Inputs, value: list[Any]) -> Difference | None:
    expected, tol = relu_gradients(**inputs), _tolerance(case, inputs)
    for got in value:
        if found := compare(expected, got, tol, {0: inputs["dy"].dtype, 1: torch.float32}, parts=("dz", "db")):
            return found
    changed = other_bits(value[0][1], value[-1][1], "db")
    return Difference("order", changed) if changed else None


def _counted(case: Case) -> bool:
    return whole(case["rows"], case["cols"])


def _most_programs(case: Case) -> float:
    return case["rows"] * case["cols"] // 512 + case["cols"] // 16 if _counted(case) else math.inf


def _least(case: Case) -> int:
    """Bytes of dy, y and dz."""
    return int(3 * case["rows"] * case["cols"] * getattr(torch, case.get("dtype", "float32")).itemsize)


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a shape nobody chose",
        rows=rng.randrange(500, 800),
        cols=rng.randrange(20, 150),
        dy=rng.choice(["contiguous", "columns of a wider matrix"]),
        y=rng.choice(["contiguous", "every second row"]),
    )


def _filled(value: float) -> Callable[..., Gradients]:
    return lambda dy, y: (torch.full_like(dy, value), torch.full((dy.shape[1],), value, device=dy.device))


EXERCISE = Exercise(
    id="13.fix",
    title="A slow kernel, mended by its profile",
    parameters=("dy", "y"),
    kind="kernel",
    inputs=_inputs,
    reference=relu_gradients,
    tolerance=_tolerance,
    dtype=lambda inputs: {0: inputs["dy"].dtype, 1: torch.float32},
    parts=("dz", "db"),
    call=_call,
    judge=_judge,
    cases=(
        Case("whole tiles: everything is counted", rows=2048, cols=128),
        Case("an odd width in bfloat16, with sums that bfloat16 cannot hold", rows=1280, cols=77, dtype="bfloat16"),
        Case(
            "dy is a transpose, y is not; few columns, so programs come from rows", rows=700, cols=40, dy="transposed"
        ),
        Case(
            "dy is a part of a wider matrix, y is a transpose",
            rows=650,
            cols=65,
            dy="columns of a wider matrix",
            y="transposed",
        ),
        Case("a single row", rows=1, cols=5),
        Case("one column, and one row more than a block of 64", rows=65, cols=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "the input": lambda dy, y: (dy.clone(), dy[0].float()),
    },
    torch_may=(),
    limits=(
        Limit(
            "global_sectors_per_ideal",
            "The lanes of a load go down a column: each is in a sector of its own. Which axis of the tile has stride "
            "1 in memory? Lanes go along the last axis of a tile unless Triton can see a better one.",
            at_most=lambda case: 1.6 if _counted(case) else math.inf,
        ),
        Limit("launches", "Launch your own kernels: kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "Each launch costs the host some microseconds, whatever it does. One grid can have all blocks of rows and "
            "columns; a second launch may add up the parts.",
            at_most=lambda case: 2 if _counted(case) else 4,  # where nothing is counted it is called twice
        ),
        Limit(
            "blocks",
            "Too few programs: while they walk down all the rows, the rest of the chip is idle. A program adds up "
            f"{MOST} rows at most, and the others are another program's.",
            at_least=lambda case: -(-case["rows"] // MOST),
        ),
        Limit(
            "blocks",
            "These are more programs than there is work for: a program takes at least 16 rows of 32 columns, and one "
            "that adds up parts at least 16 columns.",
            at_most=_most_programs,
        ),
        Limit(
            "global_moved_bytes",
            "dy and y are read once, dz is written once, and parts of db are few. More means that something is read "
            "again, that a program adds up too few rows, or that a tile has fewer elements than the program has lanes: "
            "128 on sm_80, 256 on gfx942, with four waves.",
            at_most=lambda case: 1.15 * _least(case) if _counted(case) else math.inf,
        ),
        Limit(
            "scratch_bytes",
            "Registers are spilled: a program holds more than fits. Take a smaller tile, or more warps.",
            at_most=lambda case: 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "a_launch_for_each_block",
            answer(launch_each=True),
            "The kernel is good, and it is launched for each block of columns. Make the block of columns the second "
            "axis of one grid: tl.program_id(1).",
        ),
        Misconception(
            "lanes_down_a_column",
            answer("lanes down a column", tile=(64, 16)),
            "There are two launches at most now, and a load still touches a sector for each lane: the last axis of the "
            "tile are the rows. Turn the tile: rows[:, None], cols[None, :].",
        ),
        Misconception(
            "one_program_for_a_column",
            answer(rows_each=len),
            "One launch, whole sectors, and a handful of programs that walk down all the rows: most of the chip is "
            "idle. Share the rows out, and add up the parts in a second launch.",
        ),
        Misconception(
            "one_launch_with_atomics",
            answer("atomics"),
            "tl.atomic_add loses nothing, but programs add in the order in which they come, and a float sum rounds "
            "after each step: other bits in each run. Let each program store its sums in a row of its own, and add "
            "those rows up in a second launch.",
        ),
        Misconception(
            "atomics_on_new_memory",
            answer("atomics", new=torch.empty),
            "tl.atomic_add adds to what is there, and torch.empty leaves whatever was there before. (With zeros the "
            "bits still depend on the order of the programs: store parts, and add them up.)",
        ),
        Misconception(
            "adds_without_atomics",
            answer("memory"),
            "All programs load db, add their part and store it. Between the two another program stores its own part, "
            "which is then lost. Let each store its part in a row of its own.",
        ),
        Misconception(
            "zero_passes",
            answer(zero_passes=lambda dy: 1),
            "Where y is exactly 0 the gradient came through. After a ReLU that is where the input was negative: y > 0, "
            "not y >= 0.",
        ),
        Misconception(
            "dz_is_dy",
            answer(all_of_dz=lambda dy: 1),
            "db is right, and dz is dy as it came: store what the mask left.",
        ),
        Misconception(
            "db_of_dy",
            answer(all_of_db=lambda dy: 1),
            "dz is right, and db sums all of dy. The bias is added before the ReLU: sum what the mask left.",
        ),
        Misconception(
            "sums_in_the_type_of_dy",
            answer("narrow"),
            "The sums are kept in the type of dy: bfloat16 adds 1 to 256 and gets 256. Make them float32.",
        ),
        Misconception(
            "parts_in_the_type_of_dy",
            answer(keep=lambda dy: dy.dtype),
            "The parts are stored in the type of dy, which rounds them to 8 bits on the way. Keep them in float32.",
        ),
        Misconception(
            "db_in_the_type_of_dy",
            slips.changed(lambda dy: (dy.dtype, dy.dtype)),
            "db is float32, whatever the type of dy is.",
        ),
        Misconception(
            "dz_in_float32",
            slips.changed(lambda dy: (torch.float32, torch.float32)),
            "dz has the type of dy: the matrix products that follow expect it.",
        ),
        Misconception(
            "keeps_the_last_tile",
            answer("keeps the last"),
            "Each step replaces what the one before left: only the last tile of each program arrives in db. Add to it.",
        ),
        Misconception(
            "sums_of_the_rows",
            slips.sums_of_rows,
            "db is the sum over the rows, one number for each column: axis 0.",
        ),
        Misconception(
            "parts_not_added",
            answer(second="none"),
            "db holds the part of the first program. All parts have to be added up, in a second launch.",
        ),
        Misconception(
            "parts_overlap",
            answer(part_step=lambda dy: slips.BLOCK_N),
            "From one program's part to the next it is n_cols elements, not the width of a tile: parts lie over each "
            "other.",
        ),
        Misconception(
            "torch_does_a_part",
            slips.masked_by_torch,
            "torch masks dy, or adds up the parts. Here all of the work is your kernels': one that has dy and y in "
            "registers has dz and its sum, and parts are a matrix whose columns a second launch can sum.",
        ),
        Misconception(
            "dz_read_again",
            slips.dz_read_again,
            "One kernel writes dz, and another reads it again for db. The first has dz in registers: let it sum there.",
        ),
        Misconception(
            "with_torch",
            slips.with_torch,
            "The numbers are right, and torch computed them. Here it is your kernels' work.",
        ),
        Misconception(
            "strides_of_dy_for_y",
            answer(strides=lambda dy, y: (*dy.stride(), *dy.stride())),
            "y is read with the strides of dy. It has two of its own.",
        ),
        Misconception(
            "takes_inputs_for_contiguous",
            answer(strides=lambda dy, y: (dy.shape[1], 1, dy.shape[1], 1)),
            "dy and y are read as if they were contiguous. Pass their strides: dy.stride(), y.stride().",
        ),
        Misconception(
            "dz_has_the_strides_of_dy",
            answer(empty=torch.empty_like),
            "torch.empty_like(dy) has the strides of a transpose where dy is one, and the kernel stores rows of n_cols "
            "elements. torch.empty(dy.shape, ...) is contiguous.",
        ),
        Misconception(
            "no_mask_of_rows",
            answer(mask_rows=lambda dy: 1 << 30),
            "The last program reaches past the last row. A tile needs both masks, of rows and of columns.",
        ),
        Misconception(
            "no_mask_of_columns",
            answer(mask_cols=lambda dy: 1 << 30),
            "The last tile reaches past the last column, into the next row. Mask the columns, in the loads and in each "
            "store.",
        ),
        Misconception(
            "last_rows_missing",
            answer(programs=lambda rows, each: max(1, rows // each)),
            "The rows that fill no whole program are missing: round the number of programs up, with triton.cdiv.",
        ),
        Misconception(
            "rows_counted_again",
            answer(row_step=lambda dy: 0),
            "Every program takes the same first rows. Which row does program p begin with?",
        ),
        Misconception(
            "as_it_was",
            answer("lanes down a column", tile=(64, 8), warps=1, rows_each=len, launch_each=True),
            "This is the given kernel, or has all of its faults: a launch for every eight columns, lanes that go down "
            "a column, and in each launch one program of one wave that holds 4,096 elements of each matrix. Mend them "
            "one at a time, and look at the counter of each.",
        ),
        Misconception(
            "a_tile_that_spills",
            answer(tile=(128, 64), warps=1, rows_each=lambda dy: 128),
            "One wave holds a tile of dy, one of y and one of sums. More than its registers hold goes to memory and "
            "back. Count: elements of the tile / lanes of the program, for each of them.",
        ),
    ),
    hints=(
        "Read the table of the given kernel once more: how many launches, how many sectors a request, how many "
        "registers or spills, how many programs at a time? Each has one line of the kernel, or of its launcher, to "
        "blame.",
        "One grid of (blocks of rows, blocks of columns). A program walks over its rows in tiles like 16 x 64, with "
        "columns as the last axis and four warps, stores dz tile by tile, and adds dz up in float32. At its end it "
        "stores one row of parts; a second, small launch adds the parts up.",
        "cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N); in a loop over this program's rows: here = (rows < "
        "n_rows)[:, None] & (cols < n_cols)[None, :]; dz = tl.where(y > 0, dy, 0.0); tl.store(dz_ptr + rows[:, None] * "
        "n_cols + cols[None, :], dz, mask=here); total += dz. Then tl.store(parts_ptr + tl.program_id(0) * n_cols + "
        "cols, tl.sum(total, axis=0), mask=cols < n_cols).",
    ),
    seconds=30.0,  # a busy machine compiles the given kernel for ten
    explanation=(
        "The work is memory-bound: two matrices are read and one is written, and nothing else has to move. So lanes go "
        "along rows, where neighbours in memory are, and each element is touched once: dz is stored and summed from "
        "the same registers. The grid shares the rows out, so that the chip is full from a single launch. What "
        "programs share, the sum of a column, they hand on as parts, which a second launch adds in a fixed order: two "
        "launches, and the same bits in every run."
    ),
)
