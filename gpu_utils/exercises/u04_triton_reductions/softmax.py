"""04.softmax: the softmax of each row of a matrix of any strides, each element read once and written once."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u04_triton_reductions import softmax_slips as slips
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Limit, Misconception

LANES = 1000
"""Columns: from this many on every lane of a program has an element of its own, so none is asked for twice."""

_LAYOUTS: dict[str, Callable[[Callable[..., Tensor], int, int], Tensor]] = {
    "contiguous": lambda draw, rows, columns: draw(rows, columns),
    "columns of a wider matrix": lambda draw, rows, columns: draw(rows, columns + 8)[:, 3 : 3 + columns],
    "every third column": lambda draw, rows, columns: draw(rows, 3 * columns)[:, ::3],
    "transposed": lambda draw, rows, columns: draw(columns, rows).T,
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    def draw(rows: int, columns: int) -> Tensor:
        x = 3 * torch.randn(rows, columns, generator=generator)
        return x.to(getattr(torch, case["dtype"]))

    x = _LAYOUTS[case.get("layout", "contiguous")](draw, case["rows"], case["columns"])
    if "around" in case.params:
        x += case["around"] * (1 - 2 * (torch.arange(case["rows"])[:, None] % 2))
    if case.get("hidden"):
        hidden = torch.rand(x.shape, generator=generator) < case["hidden"]
        hidden[:, : case["columns"] // 2] = True
        hidden[:, -1] = False
        x[hidden] = -math.inf
    return {"x": x}


def softmax_reference(x: Tensor) -> Tensor:
    """Softmax of each row, in float64."""
    return torch.softmax(x.double(), 1)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # an exponent -d is off by d roundings, so e^-d by d e^-d of them: less than one. What rounds after it is relative
    return tolerance(inputs["x"].dtype)


def _bytes(case: Case) -> float:
    """Of x, where every lane has an element of its own; infinite elsewhere."""
    if isinstance(case, Example) or case["columns"] < LANES:
        return math.inf
    return float(case["rows"] * case["columns"] * getattr(torch, case["dtype"]).itemsize)


def _whole_transactions(case: Case) -> float:
    """Bytes of x where no row starts inside a transaction; infinite elsewhere."""
    bytes_of_x = _bytes(case)
    aligned = bytes_of_x < math.inf and bytes_of_x / case["rows"] % 128 == 0
    return bytes_of_x if aligned and "layout" not in case.params else math.inf


def _filled(value: float) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.full(x.shape, value, dtype=x.dtype, device=x.device)


def _fresh(rng: random.Random) -> Case:
    # odd, and between two powers of two: the compiler has met the like before
    chosen: dict[str, Any] = {"rows": rng.randrange(2, 7), "columns": 2 * rng.randrange(257, 511) + 1}
    layout = rng.choice(["contiguous", "columns of a wider matrix"])
    return Case("sizes nobody chose", **chosen, dtype="float32", layout=layout, around=rng.choice([0.0, 500.0]))


EXERCISE = Exercise(
    id="04.softmax",
    title="Softmax of each row, in one pass over memory",
    parameters=("x",),
    kind="kernel",
    inputs=_inputs,
    reference=softmax_reference,
    tolerance=_tolerance,
    cases=(
        Case("rows that fill their block: here every byte is counted", rows=4, columns=1024, dtype="float32"),
        Case(
            "rows around 10,000 and around -10,000: exp of either is of no use",
            rows=4,
            columns=1001,
            dtype="float32",
            around=10_000.0,
        ),
        Case(
            "x is part of a wider matrix",
            rows=5,
            columns=1001,
            dtype="float32",
            layout="columns of a wider matrix",
        ),
        Case("most of a row is -inf, as behind a causal mask", rows=3, columns=1001, dtype="float32", hidden=0.7),
        Case(
            "x is a transpose: its columns are contiguous",
            rows=9,
            columns=100,
            dtype="bfloat16",
            layout="transposed",
        ),
        Case(
            "neighbours in a row are 3 apart in memory",
            rows=7,
            columns=200,
            dtype="float16",
            layout="every third column",
        ),
        Case("long rows, one more than a power of two", rows=2, columns=2049, dtype="float16"),
        Case("rows of one element", rows=5, columns=1, dtype="float32"),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "x": lambda x: x},
    limits=(
        Limit("launches", "Launch your own kernel.", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: what a second one needs of the first has to go through memory.",
            at_most=lambda case: 1,
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills). More warps for "
            "a program, num_warps=8 at the launch, leave fewer to each lane.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_store_bytes",
            "Each element is to be stored once, when it is final; what is stored in between is paid for.",
            at_most=lambda case: 1.05 * _bytes(case),
        ),
        Limit(
            "global_load_bytes",
            "Each element of x is to be loaded once. A row that a program keeps in registers, in one block of BLOCK >= "
            "columns, is at hand for the maximum, the sum and the result.",
            at_most=lambda case: 1.05 * _bytes(case),
        ),
        Limit(
            "global_moved_bytes",
            "Loads or stores touch transactions of which they use a part only: let neighbouring lanes take neighbours "
            "in a row.",
            at_most=lambda case: 1.05 * 2 * _whole_transactions(case),
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "no_max",
            slips.slipped("no max"),
            "exp(89) is larger than any float32, and exp(-104) is 0: then inf / inf or 0 / 0 is NaN. Only differences "
            "of a row's values matter. Which one can be taken from all of them, so that no exponent is above 0?",
        ),
        Misconception(
            "padding_is_zero",
            slips.slipped("padding is 0"),
            "Masked lanes count: `other=0.0`, or none, gives them the value 0, so each adds exp(0 - max) to the sum. "
            "Which value would change neither the maximum nor the sum?",
        ),
        Misconception(
            "maximum_with_padding",
            slips.slipped("max with padding"),
            "The sum leaves masked lanes out, and the maximum does not: where all values are far below 0, the 0 of the "
            "padding is the largest, and every exp of the row is 0.",
        ),
        Misconception(
            "largest_by_size",
            slips.slipped("largest size"),
            "The largest absolute value is taken from the row. It is as large as the maximum only where that is not "
            "below 0; else every exp is far too small, or 0.",
        ),
        Misconception(
            "three_passes",
            slips.loops(online=False),
            "The numbers are right, and x is loaded three times: for the maximum, for the sum and for the result. A "
            "row of some thousand values fits into the registers of one program. Then one load is enough.",
        ),
        Misconception(
            "two_passes",
            slips.loops(online=True),
            "The numbers are right, and maximum and sum even come from one pass; the result needs x a second time. "
            "That is for rows that are too long to be kept. These are not: load a row once, in one block.",
        ),
        Misconception(
            "stores_and_reads_again",
            slips.slipped("read again"),
            "The exponentials go to memory, are read again and divided. They are still in registers: divide them "
            "there, and store once.",
        ),
        Misconception(
            "two_launches",
            slips.two_launches,
            "The first launch finds the maxima, the second one needs them, and x once more. A program that has its "
            "whole row can do both.",
        ),
        Misconception(
            "never_divided",
            slips.slipped("no sum"),
            "The rows do not add up to 1: exp(x - max) is stored, and nobody has divided by the sum.",
        ),
        Misconception(
            "logarithm",
            slips.slipped("log"),
            "This is the logarithm of the softmax, x - max - log(sum). Here the softmax itself is asked for.",
        ),
        Misconception(
            "powers_of_two",
            slips.slipped("powers of two"),
            "The rows add up to 1, and the large elements are too small: the powers are of 2, not of e. exp(v) is "
            "exp2(v * log2(e)).",
        ),
        Misconception(
            "down_the_columns",
            slips.down_the_columns,
            "Here the columns add up to 1. The softmax is over the last dimension: each row adds up to 1.",
        ),
        Misconception(
            "ignores_strides",
            slips.ignores_strides,
            "Contiguous tensors work, views do not: row r of a view does not start at r * columns. Pass x.stride(0) "
            "and x.stride(1) to the kernel.",
        ),
        Misconception(
            "ignores_column_stride",
            slips.ignores_column_stride,
            "The rows are found, and neighbours in a row are taken to be neighbours in memory. In a transpose or in "
            "x[:, ::3] they are not: the column has a stride of its own, x.stride(1).",
        ),
        Misconception(
            "laid_out_like_x",
            slips.laid_out_like_x,
            "It fails where x is a transpose: torch.empty_like keeps the strides of x, and the kernel writes row after "
            "row. Allocate by shape, torch.empty(x.shape, ...), or use the strides of the result, too.",
        ),
        Misconception(
            "copies_first",
            slips.copies_first,
            "A copy of a view reads and writes all of it once more, before your kernel runs. The kernel can read the "
            "view where it is, by its strides.",
        ),
        Misconception(
            "a_block_of_1024",
            slips.block_of_1024,
            "It fails where rows are longer than BLOCK: nobody writes the rest of them. BLOCK must be a power of two "
            "that holds the row: triton.next_power_of_2(columns).",
        ),
        Misconception(
            "no_mask",
            slips.slipped("no mask"),
            "Where columns are no power of two the block is longer than its row: it takes the next row for a part of "
            "its own, and behind the last row it leaves the tensor. Mask loads and stores by cols < columns.",
        ),
        Misconception(
            "unmasked_store",
            slips.slipped("store unmasked"),
            "The load is masked, the store is not: it writes zeros over the start of the next row, and behind the last "
            "row out of the result.",
        ),
        Misconception(
            "mask_one_long",
            slips.slipped("mask one long"),
            "`cols <= columns` lets one lane too many through: columns are numbered 0 to columns - 1.",
        ),
        Misconception(
            "the_first_row_for_all",
            slips.slipped("no program id"),
            "All rows of the result are the softmax of row 0: the program id is missing where x is loaded.",
        ),
        Misconception(
            "stores_in_the_first_row",
            slips.slipped("stores in row 0"),
            "Only row 0 of the result is written, by all programs: the program id is missing where the result is "
            "stored.",
        ),
        Misconception(
            "result_in_float32",
            slips.in_float32,
            "Computing in float32 is right; the result has the type of x: torch.empty(..., dtype=x.dtype). tl.store "
            "converts.",
        ),
        Misconception(
            "writes_into_x",
            slips.into_x,
            "The result is written over x. Allocate a new tensor; the caller still needs x.",
        ),
        Misconception(
            "torch_finds_the_largest",
            slips.torch_finds_the_largest,
            "torch has taken the maximum off before your kernel ran: that reads x twice and writes it once. A program "
            "that has its row in registers finds the maximum there: tl.max.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result: a launch returns nothing. End the launcher with return out.",
        ),
        Misconception(
            "computes_with_torch",
            lambda x: torch.softmax(x.float(), 1).to(x.dtype).contiguous(),
            "The numbers are right, but torch computed them. Here it is your kernel's work: one program for each row.",
        ),
    ),
    hints=(
        "One program takes one row, and keeps it: how long must its block be, if tl.arange wants a power of two? What "
        "has to stand in the lanes behind the end of the row, so that neither the maximum nor the sum sees them?",
        "Load with mask and other=float('-inf'), and turn x into float32 at once. exp(x - maximum) is at most 1, and 0 "
        "in the padding. Element (row, col) of a view lies at row * x.stride(0) + col * x.stride(1).",
        "x = tl.load(x_ptr + row * stride_row + cols * stride_column, mask=mask, other=float('-inf')).to(tl.float32); "
        "e = tl.exp(x - tl.max(x, 0)); store e / tl.sum(e, 0) at out_ptr + row * columns + cols. BLOCK is "
        "triton.next_power_of_2(columns), the grid (rows,).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "A softmax in three operations of a library reads its input three times and writes two intermediate results. "
        "Here a row is loaded once, stays in the registers of a program for the maximum, the sum and the quotient, and "
        "goes out once: 2 bytes moved for each byte of x, the least there can be. Taking the maximum off changes "
        "nothing in exact arithmetic and keeps every exponent at 0 or below, so nothing overflows. The padding has to "
        "be neutral for both reductions: -inf never wins the maximum, and its exp adds 0."
    ),
)
