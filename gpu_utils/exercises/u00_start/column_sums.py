"""00.column_sums: repair a kernel whose lanes walk down the columns of a row-major matrix."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

BLOCK = 128
"""Given to the learner, so that a wrong answer behaves like the misconception that explains it."""

MOST_SECTORS = 1.6
"""Global transactions over the least possible: near 1 when right, and at most 1.5 where a tensor starts inside a line.
Two for neighbours that are two elements apart."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"x": signed((case["rows"], case["cols"]), generator)}


def column_sums_reference(x: Tensor) -> Tensor:
    """The sum of each column, in float64."""
    return x.double().sum(0)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # terms are below 1.5 and of both signs: the partial sums grow with the root of their number
    return tolerance(torch.float32, k=case["rows"], magnitude=1.5 * math.sqrt(case["rows"]))


@triton.jit
def _down_the_columns_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr, MASK: tl.constexpr):
    """The broken kernel of the statement."""
    col = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n_rows, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + rows * n_cols + col, mask=rows < n_rows if MASK else None, other=0.0 if MASK else None)
    tl.store(out_ptr + col, tl.sum(total, axis=0))


@triton.jit
def _along_the_rows_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@triton.jit
def _kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr, SLIP: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if SLIP == "no program id":
        cols = tl.arange(0, BLOCK)
    if SLIP == "columns of neighbours":
        cols = tl.program_id(0) + tl.arange(0, BLOCK)
    mask = cols < n_cols
    if SLIP == "mask one long":
        mask = cols <= n_cols
    if SLIP == "mask of the rows":
        mask = cols < n_rows
    total = tl.zeros([BLOCK], tl.float32)
    steps = n_cols if SLIP == "a step for each column" else n_rows - 1 if SLIP == "without the last row" else n_rows
    for row in range(1 if SLIP == "from row 1" else 0, steps, BLOCK if SLIP == "steps of BLOCK" else 1):
        if SLIP == "a row is n_rows long":
            at = row * n_rows + cols
        elif SLIP == "row after column":
            at = row + cols * n_rows
        elif SLIP == "down the columns":
            at = row + cols * n_cols
        elif SLIP == "a row is a block long":
            at = row * BLOCK + cols
        elif SLIP == "one row":
            at = cols
        else:
            at = row * n_cols + cols
        x = tl.load(x_ptr + at, mask=mask if SLIP != "no mask" else None)
        if SLIP == "keeps the last row":
            total = x
        elif SLIP == "adds in memory":
            tl.atomic_add(out_ptr + cols, x, mask=mask)
        else:
            total += x
        if SLIP == "stores in every step":
            tl.store(out_ptr + cols, total, mask=mask)
    if SLIP == "sums at the end":
        tl.store(out_ptr + cols, total * 0 + tl.sum(tl.where(mask, total, 0.0), axis=0), mask=mask)
    elif SLIP == "a sum for each program":
        tl.store(out_ptr + tl.program_id(0), tl.sum(tl.where(mask, total, 0.0), axis=0))
    elif SLIP != "adds in memory":
        tl.store(out_ptr + cols, total, mask=mask if SLIP != "no mask" and SLIP != "store unmasked" else None)


def _programs(x: Tensor) -> int:
    return triton.cdiv(x.shape[1], BLOCK)


def _answer(
    slip: str = "", programs: Callable[[Tensor], int] = _programs, new: Callable[..., Tensor] = torch.empty
) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        out = new(x.shape[1], device=x.device)
        _kernel[(programs(x),)](x, out, *x.shape, BLOCK=BLOCK, SLIP=slip)
        return out

    return answer


def _down_the_columns(mask: bool = True, programs: Callable[[Tensor], int] | None = None) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        out = torch.empty(x.shape[1], device=x.device)
        grid = (programs(x) if programs else x.shape[1],)
        _down_the_columns_kernel[grid](x, out, *x.shape, BLOCK=BLOCK, MASK=mask)
        return out

    return answer


def _along_the_rows(x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], device=x.device)
    _along_the_rows_kernel[(x.shape[0],)](x, out, *x.shape, BLOCK=BLOCK)
    return out


def _of_a_copy(x: Tensor) -> Tensor:
    return _along_the_rows(x.T.contiguous())


def _a_sum_for_each_program(x: Tensor) -> Tensor:
    out = torch.empty(_programs(x), device=x.device)
    _kernel[(_programs(x),)](x, out, *x.shape, BLOCK=BLOCK, SLIP="a sum for each program")
    return out


def _grid_is_a_number(x: Tensor) -> Tensor:
    out = torch.empty(x.shape[1], device=x.device)
    _kernel[_programs(x)](x, out, *x.shape, BLOCK=BLOCK, SLIP="")
    return out


def _returns_nothing(x: Tensor) -> None:
    _answer()(x)


def _fresh(rng: random.Random) -> Case:
    return Case("a shape nobody chose", rows=rng.randrange(2, 300), cols=rng.randrange(2, 400))


EXERCISE = Exercise(
    id="00.column_sums",
    title="Repair a kernel whose lanes read far apart",
    parameters=("x",),
    kind="kernel",
    inputs=_inputs,
    reference=column_sums_reference,
    tolerance=_tolerance,
    cases=(
        Case("whole blocks of columns: here memory transactions and programs are counted", rows=130, cols=512),
        Case("a last block of five columns, and an odd number of rows", rows=37, cols=261),
        Case("fewer columns than lanes", rows=300, cols=7),
        Case("a single column", rows=129, cols=1),
        Case("a single row", rows=1, cols=130),
        Case("a single element", rows=1, cols=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x: torch.zeros(x.shape[1], device=x.device),
        "ones": lambda x: torch.ones(x.shape[1], device=x.device),
        "nan": lambda x: torch.full((x.shape[1],), float("nan"), device=x.device),
        "the input": lambda x: x[0].clone(),
    },
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "Launch your own kernel: column_sums_kernel[grid](...).",
            at_least=lambda case: 1,
        ),
        Limit(
            "global_sectors_per_ideal",
            "Look at one load instruction: which element does each of its lanes read, and how far apart are "
            "neighbouring lanes in memory?",
            at_most=lambda case: MOST_SECTORS if case["cols"] % BLOCK == 0 else math.inf,
        ),
        Limit(
            "global_store_bytes",
            "Each sum needs to be stored once: after the loop, not in every step.",
            at_most=lambda case: case["rows"] * case["cols"] if case["cols"] % BLOCK == 0 else math.inf,
        ),
        Limit(
            "global_atomics",
            "An atomic goes to memory each time. Add up in registers, and store each sum once.",
            at_most=lambda case: case["rows"] * case["cols"] // 4 if case["cols"] % BLOCK == 0 else math.inf,
        ),
        Limit(
            "blocks",
            "These are more programs than there is work for: how many columns does one own, and how many of the rows?",
            at_most=lambda case: case["cols"] // 2 if case["cols"] % BLOCK == 0 else math.inf,
        ),
    ),
    misconceptions=(
        Misconception(
            "down_the_columns",
            _down_the_columns(),
            "The sums are right, and the lanes are the broken kernel's: they share one column, so neighbouring lanes "
            "read elements that are a whole row apart. No other order of the steps helps. What else could a lane own?",
        ),
        Misconception(
            "down_the_columns_without_a_mask",
            _down_the_columns(mask=False),
            "The lanes walk past the last row, and neighbouring lanes still read elements that are a whole row apart. "
            "What could a lane own in place of a few rows of one column?",
        ),
        Misconception(
            "the_grid_alone_is_new",
            _down_the_columns(programs=_programs),
            "There are fewer programs now, and each still sums a single column. The kernel must change, too: what does "
            "a program own, and what each of its lanes?",
        ),
        Misconception(
            "sums_of_the_rows",
            _along_the_rows,
            "These are the sums of the rows. The lanes read side by side, but what they add up belongs to different "
            "columns: do not add it up across lanes.",
        ),
        Misconception(
            "sums_across_lanes",
            _answer("sums at the end"),
            "Every column of a block gets the sum of them all. Lanes own different columns now, so nothing is left to "
            "add up across lanes with tl.sum: add vectors to a vector, and store it as it is.",
        ),
        Misconception(
            "a_sum_for_each_program",
            _a_sum_for_each_program,
            "There is one number for each program, the sum over all of its columns. Each lane has the total of a "
            "column of its own: the result has one number for each column, so store the whole vector.",
        ),
        Misconception(
            "steps_of_a_block_of_rows",
            _answer("steps of BLOCK"),
            "Only every 128th row arrives in the sums: the loop still goes on by BLOCK rows, and a step now reads one.",
        ),
        Misconception(
            "from_row_1",
            _answer("from row 1"),
            "Row 0 is missing from every sum.",
        ),
        Misconception(
            "without_the_last_row",
            _answer("without the last row"),
            "The last row is missing from every sum: range(n) ends before n by itself.",
        ),
        Misconception(
            "a_step_for_each_column",
            _answer("a step for each column"),
            "The mask is right and the loop is not: it makes a step for each column, and a step reads a row. How many "
            "rows are there?",
        ),
        Misconception(
            "stores_in_every_step",
            _answer("stores in every step"),
            "The sums are right, but every step stores what it has so far, and the next one overwrites it: as many "
            "bytes again as were read. Store once, after the loop.",
        ),
        Misconception(
            "keeps_the_last_row",
            _answer("keeps the last row"),
            "Only the last row arrives in the sums: each step replaces what the one before left. Add the rows up in a "
            "vector, and store that once, after the loop.",
        ),
        Misconception(
            "adds_to_new_memory",
            _answer("adds in memory"),
            "tl.atomic_add adds to what is there, and torch.empty leaves whatever was there before. Add up in "
            "registers, and store once.",
        ),
        Misconception(
            "adds_every_element_to_memory",
            _answer("adds in memory", new=torch.zeros),
            "The sums are right, but each element is added to memory by an atomic of its own. Let a program own BLOCK "
            "columns, add them up in registers, row after row, and store each sum once.",
        ),
        Misconception(
            "forgets_the_row",
            _answer("one row"),
            "Every step reads row 0 again: the addresses do not depend on the row.",
        ),
        Misconception(
            "a_row_is_n_rows_long",
            _answer("a row is n_rows long"),
            "From one row to the next it is n_cols elements, not n_rows. For a square matrix these are the same.",
        ),
        Misconception(
            "a_row_is_a_block_long",
            _answer("a row is a block long"),
            "From one row to the next it is n_cols elements, of which a program reads BLOCK.",
        ),
        Misconception(
            "row_after_column",
            _answer("row after column"),
            "The matrix is read as if its columns lay one after the other. It is row-major: element [row, col] is at "
            "row * n_cols + col.",
        ),
        Misconception(
            "strides_exchanged",
            _answer("down the columns"),
            "Row and column are exchanged: element [row, col] is at row * n_cols + col, so the column, which differs "
            "from lane to lane, has stride 1.",
        ),
        Misconception(
            "no_mask",
            _answer("no mask"),
            "The last program reaches past the last column. In most rows that is the next row, in the last row it is "
            "outside of the matrix. Mask the loads and the store with cols < n_cols.",
        ),
        Misconception(
            "store_unmasked",
            _answer("store unmasked"),
            "The loads are masked and the store is not: it writes past the last column.",
        ),
        Misconception(
            "mask_one_long",
            _answer("mask one long"),
            "`cols <= n_cols` lets one lane too many through: columns are numbered 0 to n_cols - 1.",
        ),
        Misconception(
            "mask_of_the_rows",
            _answer("mask of the rows"),
            "The mask compares columns with the number of rows. Lanes own columns now: which of those exist?",
        ),
        Misconception(
            "no_program_id",
            _answer("no program id"),
            "Every program adds up the first 128 columns: the columns must depend on tl.program_id(0).",
        ),
        Misconception(
            "overlapping_programs",
            _answer("columns of neighbours"),
            "Program p begins at column p, one further than the last program, so most columns are never reached. A "
            "program owns BLOCK columns: where does the next one begin?",
        ),
        Misconception(
            "grid_rounds_down",
            _answer(programs=lambda x: x.shape[1] // BLOCK),
            "The last, incomplete block of columns is missing: round the number of programs up, with triton.cdiv.",
        ),
        Misconception(
            "a_program_for_each_column",
            _answer(programs=lambda x: x.shape[1]),
            "The sums are right, but the grid is the broken kernel's, a program for each column. A program owns BLOCK "
            "columns now, and nearly all programs find nothing to do.",
        ),
        Misconception(
            "programs_from_the_rows",
            _answer(programs=lambda x: triton.cdiv(x.shape[0], BLOCK)),
            "The grid follows the number of rows. Programs own columns, so it is the columns that are divided by "
            "BLOCK: x.shape[1].",
        ),
        Misconception(
            "grid_is_a_number",
            _grid_is_a_number,
            "A grid is a tuple, also with one dimension: (triton.cdiv(n_cols, BLOCK),) with its comma.",
        ),
        Misconception(
            "returns_nothing",
            _returns_nothing,
            "The kernel ran, and nobody gets its result: a launch returns nothing. End the launcher with return out.",
        ),
        Misconception(
            "copies_the_transpose",
            _of_a_copy,
            "The sums are right, and the kernel reads side by side, but torch moved the whole matrix for it: that "
            "reads and writes every byte once more. Read x where it is.",
        ),
        Misconception(
            "sums_with_torch",
            lambda x: x.sum(0),
            "The sums are right, but torch computed them. Here it is your kernel's work: launch it with "
            "column_sums_kernel[grid](...).",
        ),
    ),
    hints=(
        "Write down which elements lanes 0, 1, 2 and 3 of the broken kernel read in its first step, and where they lie "
        "in memory. Which four elements would lie side by side, and to which sums do those belong?",
        "Let a lane own a column: a program takes BLOCK neighbouring columns and goes through all the rows, one row a "
        "step. Then each lane adds up its own column, and no sum across lanes is left. The mask is about columns.",
        "cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), and mask = cols < n_cols. The loop is for row in "
        "range(n_rows), and total keeps a sum for each lane: where in memory are the elements [row, cols]? After the "
        "loop store total as it is. The grid is (triton.cdiv(n_cols, BLOCK),).",
    ),
    explanation=(
        "Lanes of a warp or wavefront read together, in one instruction, and the transactions of that instruction are "
        "counted. In a row-major matrix the neighbours are in one row, so lanes that share a column can never be "
        "neighbours, in whatever order they walk. The work had to be dealt out anew: a lane owns a column, a program a "
        "block of them. That changed the grid and the mask, and took the sum across lanes away. The order inside a sum "
        "changed as well, and with it the rounding, which the tolerance allows for. One thing was given up: where "
        "there are few columns there are few programs now, and most of a large chip is idle. Then several programs "
        "share a block of columns, each with some of the rows (unit 04)."
    ),
)
