"""04.layernorm_backward: dx belongs to a row, dw and db to all rows: sums that many programs share, without races."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u04_triton_reductions import layernorm_backward_slips as slips
from gpu_utils.exercises.u04_triton_reductions.layernorm_backward_slips import Gradients, answer
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

FEWEST, MOST = 8, 32
"""Rows that one program takes."""

_LAYOUTS: dict[str, Callable[[Callable[..., Tensor], int, int], Tensor]] = {
    "contiguous": lambda draw, rows, cols: draw(rows, cols),
    "columns of a wider matrix": lambda draw, rows, cols: draw(rows, cols + 9)[:, 5 : 5 + cols],
    "one row repeated": lambda draw, rows, cols: draw(1, cols).expand(rows, cols),
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype = getattr(torch, case.get("dtype", "float32"))

    def of_x(*shape: int) -> Tensor:
        return (case.get("size", 2.0) * torch.randn(shape, generator=generator) + case.get("offset", 0.5)).to(dtype)

    def of_dy(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) + 0.5).to(dtype)  # not around 0: its mean must count

    x = _LAYOUTS[case.get("x", "contiguous")](of_x, case["rows"], case["cols"])
    dy = _LAYOUTS[case.get("dy", "contiguous")](of_dy, case["rows"], case["cols"])
    weight = (1.5 + 0.5 * torch.randn(case["cols"], generator=generator)).to(dtype)
    wide = x.double()
    mean, rstd = wide.mean(1).float(), (wide.var(1, unbiased=False) + 1e-5).rsqrt().float()
    return {"dy": dy, "x": x, "weight": weight, "mean": mean, "rstd": rstd}


def layernorm_gradients(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> Gradients:
    """The gradients of x, weight and bias, in float64, with the mean and rstd that are given."""
    g, xhat = dy.double(), (x.double() - mean.double()[:, None]) * rstd.double()[:, None]
    wdy = g * weight.double()
    c1, c2 = (wdy * xhat).mean(1, keepdim=True), wdy.mean(1, keepdim=True)
    return (wdy - xhat * c1 - c2) * rstd.double()[:, None], (g * xhat).sum(0), g.sum(0)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # dw and db sum a term of each row; dx is what three terms leave, each as large as its factors
    wdy = inputs["dy"].abs().amax() * inputs["weight"].abs().amax() * max(1.0, float(inputs["rstd"].amax()))
    return tolerance(inputs["x"].dtype, k=case["rows"] + 8, magnitude=float(wdy))


def _counted(case: Case) -> bool:
    return case["cols"] % 1024 == 0


def _least(case: Case) -> int:
    """Bytes of x, dy and dx."""
    return int(3 * case["rows"] * case["cols"] * (4 if case.get("dtype", "float32") == "float32" else 2))


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a shape nobody chose",
        rows=rng.randrange(20, 50),
        cols=rng.randrange(20, 64),
        x=rng.choice(["contiguous", "columns of a wider matrix"]),
    )


def _filled(value: float) -> Callable[..., list[Tensor]]:
    return lambda dy, x, weight, mean, rstd: [torch.full_like(like, value) for like in (x, weight, weight)]


EXERCISE = Exercise(
    id="04.layernorm_backward",
    title="LayerNorm backward, each byte read once",
    parameters=("dy", "x", "weight", "mean", "rstd"),
    kind="kernel",
    inputs=_inputs,
    reference=layernorm_gradients,
    tolerance=_tolerance,
    parts=("dx", "dw", "db"),
    cases=(
        Case("many rows: everything is counted", rows=128, cols=1024),
        Case("odd sizes in bfloat16, with long sums", rows=1003, cols=37, dtype="bfloat16"),
        Case("a single row, of one column more than a block of 256", rows=1, cols=257),
        Case(
            "x is a part of a wider matrix, and far from 0: its mean must go first",
            rows=11,
            cols=64,
            x="columns of a wider matrix",
            offset=50.0,
            size=0.5,
        ),
        Case("dy is one row, repeated with stride 0", rows=19, cols=40, dy="one row repeated"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "the input": lambda dy, x, weight, mean, rstd: (dy.clone(), weight.clone(), weight.clone()),
    },
    torch_may=(),
    limits=(
        Limit("launches", "Launch your own kernel: layernorm_backward_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch for dx and the parts of dw and db, and at most two that add the parts up.",
            at_most=lambda case: 3,
        ),
        Limit(
            "blocks",
            f"Too few programs for so many rows: one takes {FEWEST} to {MOST} of them. (blocks counts the programs of "
            "all launches, so those that add parts up are among them.)",
            at_least=lambda case: -(-case["rows"] // MOST),
        ),
        Limit(
            "blocks",
            "These are more programs than there is work for: where parts are added up, a program takes a block of "
            "columns, at least 16 of them.",
            at_most=lambda case: case["rows"] // FEWEST + 2 * case["cols"] // 16 if _counted(case) else math.inf,
        ),
        Limit(
            "global_moved_bytes",
            "x and dy are read once and dx is written once; weight is read once for each program, and parts of dw and "
            "db are few. More means that x or dy is read again, in a loop or by another kernel, that weight is read "
            "for each row, or that a program takes too few rows.",
            at_most=lambda case: 1.4 * _least(case) if _counted(case) else math.inf,
        ),
        Limit(
            "global_atomics",
            f"An atomic goes to memory each time. A program adds up at least {FEWEST} rows in registers, and then adds "
            "each column to dw and db once.",
            at_most=lambda case: 2 * case["cols"] * -(-case["rows"] // FEWEST),
        ),
        Limit("scratch_bytes", "Registers are spilled: take more warps.", at_most=lambda case: 0),
    ),
    misconceptions=(
        Misconception(
            "adds_without_atomics",
            answer("memory"),
            "All programs load dw, add their part and store it. Between the two another program stores its own part, "
            "which is then lost. Use tl.atomic_add, or let each program store its part in a row of its own.",
        ),
        Misconception(
            "too_few_programs",
            answer(rows_each=100_000),
            f"The numbers are right, and few programs leave most of a chip idle. Give each {MOST} rows at most.",
        ),
        Misconception(
            "a_part_for_each_row",
            answer(rows_each=1),
            "Each row has a program of its own: so weight is read for each row, and there are as many parts of dw and "
            "db as rows, each written and read again. Let a program add up several rows in registers.",
        ),
        Misconception(
            "an_atomic_for_each_element",
            answer("atomics", rows_each=1),
            "Each row has a program of its own, so each element is added to memory by an atomic of its own, twice, and "
            "weight is read for each row. Let a program add up several rows in registers first.",
        ),
        Misconception(
            "two_kernels_read_x",
            answer("apart"),
            "One kernel makes dx, and another reads x and dy again for dw and db. Where dx is made both are in "
            "registers: add dw and db up there.",
        ),
        Misconception(
            "weight_for_each_row",
            answer(slip="weight in each row"),
            "weight is the same for every row, and is loaded again for each. Load it before the loop.",
        ),
        Misconception(
            "adds_to_new_memory",
            answer("atomics", new=torch.empty),
            "tl.atomic_add adds to what is there, and torch.empty leaves whatever was there before. Begin with zeros.",
        ),
        Misconception(
            "parts_not_added",
            answer(second="none"),
            "dw and db hold the part of the first program. All parts have to be added up, in a second launch.",
        ),
        Misconception(
            "four_parts_added",
            answer(second="four"),
            "Only the first four parts are added up. How many programs were there?",
        ),
        Misconception(
            "torch_adds_the_parts",
            answer(second="torch"),
            "The parts are right, and torch adds them up. That is a kernel's work here, too.",
        ),
        Misconception(
            "adds_up_in_the_type_of_x",
            answer(slip="narrow"),
            "dw and db are summed in the type of x: in bfloat16 a long sum stops growing. Make the sums float32.",
        ),
        Misconception(
            "dw_in_float32",
            answer(dtype=lambda x: torch.float32),
            "dw and db are summed in float32, and returned in the type of weight.",
        ),
        Misconception(
            "keeps_the_last_row",
            answer(slip="keeps the last"),
            "In each step dw and db are replaced: only the last row of each program arrives. Add to them.",
        ),
        Misconception(
            "dx_without_the_weight",
            answer(use_weight=lambda x, dy: 0.0),
            "dx is made from dy. What comes back to xhat is dy times the weight.",
        ),
        Misconception(
            "dx_without_both_means",
            answer(use_c1=lambda x, dy: 0.0, use_c2=lambda x, dy: 0.0),
            "dx treats mean and rstd as constants. They depend on every element of the row, and each way back takes a "
            "mean away: c1 and c2 of the statement.",
        ),
        Misconception(
            "dx_without_c1",
            answer(use_c1=lambda x, dy: 0.0),
            "dx lacks the way back through rstd: xhat times the mean of xhat * wdy.",
        ),
        Misconception(
            "dx_without_c2",
            answer(use_c2=lambda x, dy: 0.0),
            "dx lacks the way back through the mean: the mean of wdy.",
        ),
        Misconception(
            "dx_without_rstd",
            answer(use_rstd=lambda x, dy: 0.0),
            "xhat changes by rstd when x changes by one: dx lacks that factor.",
        ),
        Misconception(
            "sums_for_means",
            answer(divisor=lambda x, dy: 1.0),
            "c1 and c2 are means over the row, not sums: divide by the number of columns.",
        ),
        Misconception(
            "means_over_the_block",
            answer(divisor=lambda x, dy: float(1 << (x.shape[1] - 1).bit_length())),
            "c1 and c2 are divided by BLOCK. Masked lanes are no columns: divide by the number of columns.",
        ),
        Misconception(
            "c1_over_the_block",
            answer(use_c1=lambda x, dy: x.shape[1] / (1 << (x.shape[1] - 1).bit_length())),
            "dw and db are right, and dx is not where columns are no power of two: c1 is divided by BLOCK. Masked "
            "lanes are no columns: divide by the number of columns.",
        ),
        Misconception(
            "dw_like_db",
            answer(dw_of_xhat=lambda x, dy: 0.0, dw_of_one=lambda x, dy: 1.0),
            "dw is summed without xhat, which makes it db. y = weight * xhat + bias: what is its derivative by weight?",
        ),
        Misconception(
            "dw_with_x",
            answer(dw_of_xhat=lambda x, dy: 0.0, dw_of_x=lambda x, dy: 1.0),
            "dw is the sum of dy * x. The weight is multiplied by xhat, not by x.",
        ),
        Misconception(
            "dw_with_the_weight",
            answer(slip="weighted"),
            "dx and db are right, and dw is summed from w * dy * xhat. dw is a derivative by w: w itself does not "
            "stand in it.",
        ),
        Misconception(
            "xhat_without_rstd",
            answer(slip="no rstd"),
            "db is right, and dx and dw are not: xhat is (x - mean) times rstd, and rstd is missing in it.",
        ),
        Misconception(
            "dw_and_db_exchanged",
            answer(order=lambda dx, dw, db: (dx, db, dw)),
            "dw and db are exchanged: the result is (dx, dw, db).",
        ),
        Misconception(
            "statistics_of_the_first_row",
            answer(statistics_step=lambda x, dy: 0),
            "Every row uses mean and rstd of row 0: they are one number for each row.",
        ),
        Misconception(
            "stride_of_x_for_dy",
            answer(stride_dy=lambda x, dy: x.stride(0)),
            "dy is read with the row stride of x. It has one of its own, which may also be 0.",
        ),
        Misconception(
            "takes_inputs_for_contiguous",
            answer(stride_dy=lambda x, dy: x.shape[1], stride_x=lambda x, dy: x.shape[1]),
            "From one row to the next it is x.stride(0) elements in x, and dy.stride(0) in dy.",
        ),
        Misconception(
            "rows_without_the_program_id",
            answer(row_step=lambda x, dy: 0),
            "Every program takes the same first rows. Which row does program p begin with?",
        ),
        Misconception(
            "last_rows_missing",
            answer(programs=lambda rows, each: rows // each),
            "The rows that fill no whole program are missing: round the number of programs up, with triton.cdiv.",
        ),
        Misconception(
            "with_torch",
            slips.with_torch,
            "The numbers are right, and torch computed them. Here it is your kernels' work.",
        ),
    ),
    hints=(
        "dx of a row needs that row alone; dw and db need all rows. Let a program take, say, 16 rows: it makes dx row "
        "by row, and keeps sums of dy * xhat and of dy for all columns in registers as it goes.",
        "When a program has done its rows it holds a part of dw and a part of db. Store them in row program_id of two "
        "float32 matrices, and add those up in a second kernel, one program for each block of columns; or "
        "tl.atomic_add them to zeros of float32.",
        "In the loop: xhat = (x - mean) * rstd; wdy = weight * dy; c1 = tl.sum(xhat * wdy, axis=0) / n_cols; c2 = "
        "tl.sum(wdy, axis=0) / n_cols; dx = (wdy - xhat * c1 - c2) * rstd; dw += dy * xhat; db += dy. Load dy with "
        "other=0.0: then what xhat is in masked lanes does not matter.",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    failures=2,
    explanation=(
        "A row stays in registers from its load to dx, so the two means cost no second read. dw and db sum over rows, "
        "which programs share: each adds up its rows in registers and hands on one part, to memory of its own or by "
        "atomics. A plain load, add and store to shared memory of all programs would lose parts. With 16 rows to a "
        "program the parts are 1/16 of a read of x in float32, and weight is read once for 16 rows; with one row to a "
        "program both would be as large as x itself."
    ),
)
