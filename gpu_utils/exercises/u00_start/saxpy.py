"""00.saxpy: a x + y on views: every tensor has its own strides."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.errors import InputCopied
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception
from gpu_utils.grading.watch import Watch

BLOCK = 128
"""Given to the learner, so that a wrong answer behaves like the misconception that explains it."""

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
    """Refuses copies of tensors inside the block: contiguous(), clone(), reshape() of a view that needs one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.clone, torch.ops.aten._to_copy) and args[0].numel() > 1:
            shape = tuple(args[0].shape)
            raise InputCopied(
                f"a tensor of shape {shape} was copied (contiguous, clone and reshape can do that), expected the "
                "kernel to read x and y where they are; pass it their strides instead"
            )
        return func(*args, **(kwargs or {}))


def _call(answer: Callable[..., Tensor], inputs: Inputs) -> Tensor:
    with _NoCopies():
        return answer(**inputs)


# Without this, each of these kernels would be compiled anew for strides of 1, multiples of 16, and others.
_jit = triton.jit(
    do_not_specialize=["n", "n_cols", "n_rows", "stride_xm", "stride_xn", "stride_ym", "stride_yn", "stride_om"]
)


@_jit
def _strided_kernel(
    a, x_ptr, y_ptr, out_ptr, n_cols, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn, mask=mask)
    tl.store(out_ptr + row * stride_om + cols, a * x + y, mask=mask)


@_jit
def _flat_kernel(a, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, a * tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)


@_jit
def _down_the_rows_kernel(
    a, x_ptr, y_ptr, out_ptr, n_rows, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    col = tl.program_id(0)
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = rows < n_rows
    x = tl.load(x_ptr + rows * stride_xm + col * stride_xn, mask=mask)
    y = tl.load(y_ptr + rows * stride_ym + col * stride_yn, mask=mask)
    tl.store(out_ptr + rows * stride_om + col, a * x + y, mask=mask)


@_jit
def _unmasked_kernel(
    a, x_ptr, y_ptr, out_ptr, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn)
    tl.store(out_ptr + row * stride_om + cols, a * x + y)


def _launch(a: float, x: Tensor, y: Tensor, out: Tensor, x_strides: Any, y_strides: Any) -> Tensor:
    rows, cols = x.shape
    grid = (rows, triton.cdiv(cols, BLOCK))
    _strided_kernel[grid](a, x, y, out, cols, *x_strides, *y_strides, cols, BLOCK=BLOCK)
    return out


def _new(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _ignores_strides(a: float, x: Tensor, y: Tensor) -> Tensor:
    out = _new(x)
    _flat_kernel[(triton.cdiv(x.numel(), BLOCK),)](a, x, y, out, x.numel(), BLOCK=BLOCK)
    return out


def _strides_of_x_for_y(a: float, x: Tensor, y: Tensor) -> Tensor:
    return _launch(a, x, y, _new(x), x.stride(), x.stride())


def _ignores_column_strides(a: float, x: Tensor, y: Tensor) -> Tensor:
    return _launch(a, x, y, _new(x), (x.stride(0), 1), (y.stride(0), 1))


def _flattens_with_view(a: float, x: Tensor, y: Tensor) -> Tensor:
    out = _new(x)
    _flat_kernel[(triton.cdiv(x.numel(), BLOCK),)](a, x.view(-1), y.view(-1), out, x.numel(), BLOCK=BLOCK)
    return out


def _copies_first(a: float, x: Tensor, y: Tensor) -> Tensor:
    return _ignores_strides(a, x.contiguous(), y.contiguous())


def _result_laid_out_like_x(a: float, x: Tensor, y: Tensor) -> Tensor:
    return _launch(a, x, y, torch.empty_like(x), x.stride(), y.stride())


def _no_mask(a: float, x: Tensor, y: Tensor) -> Tensor:
    rows, cols = x.shape
    out = _new(x)
    grid = (rows, triton.cdiv(cols, BLOCK))
    _unmasked_kernel[grid](a, x, y, out, *x.stride(), *y.stride(), cols, BLOCK=BLOCK)
    return out


def _one_program_per_row(a: float, x: Tensor, y: Tensor) -> Tensor:
    rows, cols = x.shape
    out = _new(x)
    _strided_kernel[(rows, 1)](a, x, y, out, cols, *x.stride(), *y.stride(), cols, BLOCK=BLOCK)
    return out


def _lanes_down_the_rows(a: float, x: Tensor, y: Tensor) -> Tensor:
    rows, cols = x.shape
    out = _new(x)
    grid = (cols, triton.cdiv(rows, BLOCK))
    _down_the_rows_kernel[grid](a, x, y, out, rows, *x.stride(), *y.stride(), cols, BLOCK=BLOCK)
    return out


def _most_sectors(case: Case) -> float:
    """Bounded where rows are contiguous and no row starts inside a transaction."""
    contiguous = all(case.get(name, "contiguous") == "contiguous" for name in ("x", "y"))
    return 2.0 if contiguous and case["cols"] % BLOCK == 0 else math.inf


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
            at_most=_most_sectors,
        ),
    ),
    misconceptions=(
        Misconception(
            "ignores_strides",
            _ignores_strides,
            "Contiguous tensors work, views do not: element i of a view is not at x_ptr + i. Find an element by its "
            "row and its column, each times its own stride.",
        ),
        Misconception(
            "strides_of_x_for_y",
            _strides_of_x_for_y,
            "It fails where x and y are laid out differently. Same shape does not mean same strides: "
            "y.stride() must reach the kernel too.",
        ),
        Misconception(
            "ignores_column_strides",
            _ignores_column_strides,
            "Row strides are honoured, but neighbours in a row are taken to be neighbours in memory. In a transpose or "
            "in x[:, ::3] they are not: the column needs a stride of its own.",
        ),
        Misconception(
            "flattens_with_view",
            _flattens_with_view,
            "view(-1) refuses tensors with gaps, and rightly: they have no flat order in memory. "
            "Keep two dimensions, and give the kernel both strides.",
        ),
        Misconception(
            "copies_first",
            _copies_first,
            "contiguous() and reshape() copy the view before your kernel runs: each copied tensor is read and written "
            "once more, just to be read again. The kernel can read it in place, by its strides.",
        ),
        Misconception(
            "result_laid_out_like_x",
            _result_laid_out_like_x,
            "It fails when x is a transpose: torch.empty_like keeps the strides of x, so your result is transposed in "
            "memory too. Either ask for a contiguous result by its shape, or store with out.stride().",
        ),
        Misconception(
            "no_mask",
            _no_mask,
            "The last block of a row reaches past its end, into the next row or out of the tensor. "
            "Columns that do not exist need a mask.",
        ),
        Misconception(
            "one_block_per_row",
            _one_program_per_row,
            "Only the first block of each row is written. Rows longer than BLOCK need more programs along the second "
            "axis of the grid (or a loop in the kernel).",
        ),
        Misconception(
            "lanes_down_the_rows",
            _lanes_down_the_rows,
            "The numbers are right, but tl.arange counts rows here: neighbouring lanes are a whole row apart, and each "
            "transaction brings mostly bytes that nobody in the warp or wavefront asked for. "
            "Let tl.arange count columns.",
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
