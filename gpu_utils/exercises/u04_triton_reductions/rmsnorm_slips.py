"""Wrong answers to 04.rmsnorm, as learners write them: kernels with a slip, and launchers.

The slip is a number that the kernel gets at run time: all of them share one compilation for each shape and dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.grading.exercise import Misconception

Both = tuple[Tensor, Tensor]

_SLIPS = (
    *("", "in 16 bits", "no program id", "no mask", "mean off", "adds after", "norm of x", "y of x", "h is x"),
    *("sizes", "sum", "mean of the block", "no eps", "eps outside", "eps of 1e-5", "no root"),
    *("weight of the row", "one more", "no weight", "reads h again", "no h"),
)
NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}
"""What a launcher gives to the kernel, by its name."""

_NO_PROGRAM_ID = NUMBERS["no program id"]
_NO_MASK = NUMBERS["no mask"]
_MEAN_OFF = NUMBERS["mean off"]
_ADDS_AFTER = NUMBERS["adds after"]
_NORM_OF_X = NUMBERS["norm of x"]
_Y_OF_X = NUMBERS["y of x"]
_H_IS_X = NUMBERS["h is x"]
_SIZES = NUMBERS["sizes"]
_SUM = NUMBERS["sum"]
_OF_THE_BLOCK = NUMBERS["mean of the block"]
_NO_EPS = NUMBERS["no eps"]
_EPS_OUTSIDE = NUMBERS["eps outside"]
_EPS_OF_ITS_OWN = NUMBERS["eps of 1e-5"]
_NO_ROOT = NUMBERS["no root"]
_WEIGHT_OF_ROW = NUMBERS["weight of the row"]
_ONE_MORE = NUMBERS["one more"]
_NO_WEIGHT = NUMBERS["no weight"]
_READS_AGAIN = NUMBERS["reads h again"]
_NO_H = NUMBERS["no h"]


@triton.jit(do_not_specialize=["slip"])
def kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, h_ptr, columns, x_stride, residual_stride, eps, slip,
    BLOCK: tl.constexpr, IN_16_BITS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    there = mask | (slip == _NO_MASK)
    from_row = tl.where(slip == _NO_PROGRAM_ID, 0, row)
    x = tl.load(x_ptr + from_row * x_stride + cols, mask=there, other=0.0)
    residual = tl.load(residual_ptr + from_row * residual_stride + cols, mask=there, other=0.0)
    if not IN_16_BITS:
        x, residual = x.to(tl.float32), residual.to(tl.float32)
    h = x + residual
    if slip == _MEAN_OFF:
        h = tl.where(mask, h - tl.sum(h, 0) / columns, 0.0).to(h.dtype)
    of = tl.where((slip == _ADDS_AFTER) | (slip == _NORM_OF_X), x, h)
    squares = tl.where(slip == _SIZES, tl.abs(of), of * of)
    count = tl.where(slip == _OF_THE_BLOCK, BLOCK, tl.where(slip == _SUM, 1, columns))
    mean = (tl.sum(squares, 0) / count).to(tl.float32)
    inside = tl.where((slip == _NO_EPS) | (slip == _EPS_OUTSIDE), 0.0, tl.where(slip == _EPS_OF_ITS_OWN, 1e-5, eps))
    size = tl.sqrt(mean + inside)
    size = tl.where(slip == _EPS_OUTSIDE, size + eps, tl.where(slip == _NO_ROOT, mean + eps, size))
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    if slip == _WEIGHT_OF_ROW:
        weight = tl.load(weight_ptr + row + 0 * cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.where(slip == _NO_WEIGHT, 1.0, tl.where(slip == _ONE_MORE, weight + 1, weight))
    y = tl.where((slip == _ADDS_AFTER) | (slip == _Y_OF_X), x, h) / size * weight
    y += tl.where(slip == _ADDS_AFTER, residual, 0.0)
    out = row * columns + cols
    tl.store(h_ptr + out, tl.where(slip == _H_IS_X, x, h), mask=there & (slip != _NO_H))
    if slip == _READS_AGAIN:
        y = tl.load(h_ptr + out, mask=mask, other=0.0).to(tl.float32) / size * weight
    tl.store(y_ptr + out, y, mask=there)


@triton.jit
def loop_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, h_ptr, columns, x_stride, residual_stride, eps, BLOCK: tl.constexpr
):
    """Right numbers, from two walks along the row."""
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        mask = cols < columns
        h = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        h += tl.load(residual_ptr + row * residual_stride + cols, mask=mask, other=0.0).to(tl.float32)
        total += h * h
    size = tl.sqrt(tl.sum(total, 0) / columns + eps)
    for first in range(0, columns, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        mask = cols < columns
        h = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        h += tl.load(residual_ptr + row * residual_stride + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(h_ptr + row * columns + cols, h, mask=mask)
        tl.store(y_ptr + row * columns + cols, h / size * weight, mask=mask)


@triton.jit
def add_kernel(x_ptr, residual_ptr, h_ptr, columns, x_stride, residual_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask).to(tl.float32)
    h = x + tl.load(residual_ptr + row * residual_stride + cols, mask=mask).to(tl.float32)
    tl.store(h_ptr + row * columns + cols, h, mask=mask)


def new(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def launch(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, h: Tensor | None = None, strides: Any = None,
    block: int = 0, dtype: torch.dtype | None = None, slip: str = "",
) -> Both:  # fmt: skip
    rows, columns = x.shape
    y, h = new(x, dtype), new(x) if h is None else h
    strides = strides or (x.stride(0), residual.stride(0))
    block = block or triton.next_power_of_2(columns)
    in_16_bits = slip == "in 16 bits" and x.dtype != torch.float32  # of float32 the sums are the same
    options = {"BLOCK": block, "IN_16_BITS": in_16_bits}
    kernel[(rows,)](x, residual, weight, y, h, columns, *strides, eps, NUMBERS[slip].value, **options)
    return y, h


def slipped(slip: str) -> Callable[..., Both]:
    """The right launcher with a slip of the kernel."""
    return lambda x, residual, weight, eps: launch(x, residual, weight, eps, slip=slip)


def stride_of_x_for_both(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    return launch(x, residual, weight, eps, strides=(x.stride(0), x.stride(0)))


def ignores_strides(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    return launch(x, residual, weight, eps, strides=(x.shape[1], x.shape[1]))


def block_of_1024(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    return launch(x, residual, weight, eps, block=1024)


def into_the_residual(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    if not residual.is_contiguous():
        return launch(x, residual, weight, eps)
    return launch(x, residual, weight, eps, h=residual)


def h_in_float32(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    return launch(x, residual, weight, eps, h=new(x, torch.float32))


def y_in_float32(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    return launch(x, residual, weight, eps, dtype=torch.float32)


def exchanged(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    return launch(x, residual, weight, eps)[::-1]


def only_y(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    return launch(x, residual, weight, eps)[0]


def torch_adds(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    h = (x + residual).contiguous()
    return launch(h, torch.zeros_like(h), weight, eps)[0], h


def two_passes(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    y, h = new(x), new(x)
    strides = x.stride(0), residual.stride(0)
    loop_kernel[(x.shape[0],)](x, residual, weight, y, h, x.shape[1], *strides, eps, BLOCK=512)
    return y, h


def two_launches(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Both:
    h, zero, (rows, columns) = new(x), torch.zeros_like(x[:1]), x.shape
    block = triton.next_power_of_2(columns)
    add_kernel[(rows,)](x, residual, h, columns, x.stride(0), residual.stride(0), BLOCK=block)
    return launch(h, zero, weight, eps, strides=(h.stride(0), 0))[0], h


MISCONCEPTIONS = (
    Misconception(
        "stride_of_x_for_both",
        stride_of_x_for_both,
        "It fails where x or the residual is part of a wider matrix and the other is not. Same shape does not mean "
        "same strides: residual.stride(0) must reach the kernel, too.",
    ),
    Misconception(
        "ignores_strides",
        ignores_strides,
        "Contiguous tensors work, views do not: row r of a view does not start at r * columns. x and residual have a "
        "row stride each.",
    ),
    Misconception(
        "block_of_1024",
        block_of_1024,
        "It fails where rows are longer than BLOCK: nobody reads or writes the rest of them. BLOCK must be a power of "
        "two that holds the row: triton.next_power_of_2(columns).",
    ),
    Misconception(
        "exchanged",
        exchanged,
        "The two results are there in the other order: y, the normalised row, comes first, then h.",
    ),
    Misconception("only_y", only_y, "Two tensors are asked for: return y, h. The next layer adds to h."),
    Misconception(
        "into_the_residual",
        into_the_residual,
        "h is written over the residual. Serving code does that on purpose; here the caller still needs it. Allocate "
        "a new tensor.",
    ),
    Misconception(
        "h_in_float32",
        h_in_float32,
        "y is right, and h has another type than x. It is written for the next layer: torch.empty(..., dtype=x.dtype).",
    ),
    Misconception(
        "y_in_float32",
        y_in_float32,
        "Computing in float32 is right; y itself has the type of x: torch.empty(..., dtype=x.dtype).",
    ),
    Misconception(
        "mean_taken_off",
        slipped("mean off"),
        "The mean of the row is taken off, as in a layer norm. An RMS norm leaves it in: only the size is made 1.",
    ),
    Misconception(
        "norm_of_x",
        slipped("norm of x"),
        "The mean of squares is that of x. It is h, the sum with the residual, that is normalised.",
    ),
    Misconception(
        "y_of_x",
        slipped("y of x"),
        "The size is right, and it divides x. It is h, the sum with the residual, that is normalised.",
    ),
    Misconception(
        "adds_after_the_norm",
        slipped("adds after"),
        "x is normalised alone, and the residual added to the result. Here it is added before: h = x + residual goes "
        "into the norm.",
    ),
    Misconception(
        "h_is_x",
        slipped("h is x"),
        "y is right, and in place of h there is x: the sum with the residual is asked for, the next layer adds to it.",
    ),
    Misconception(
        "h_never_stored",
        slipped("no h"),
        "y is right, and h was never written: new memory is filled with NaN during a check. Store the sum, too.",
    ),
    Misconception(
        "sum_of_squares",
        slipped("sum"),
        "The squares are added and never divided by their number: the longer a row, the smaller its y.",
    ),
    Misconception(
        "mean_over_the_block",
        slipped("mean of the block"),
        "It fails where columns are no power of two: the sum is divided by BLOCK, which counts the padding. The row "
        "has `columns` elements.",
    ),
    Misconception(
        "mean_of_sizes",
        slipped("sizes"),
        "The mean of |h| is taken, and the square root of it. The root belongs to the mean of h * h.",
    ),
    Misconception(
        "in_16_bits",
        slipped("in 16 bits"),
        "In float16 nothing is larger than 65,504, and 256 * 256 is: the squares overflow. Turn x and the residual "
        "into float32 before you add and square.",
    ),
    Misconception(
        "no_root",
        slipped("no root"),
        "h is divided by the mean of its squares; the square root is missing.",
    ),
    Misconception(
        "eps_outside_the_root",
        slipped("eps outside"),
        "It fails most where values are small: eps is added to the mean of squares, inside the root. Outside it counts "
        "far less: sqrt(eps) against eps.",
    ),
    Misconception(
        "no_eps",
        slipped("no eps"),
        "It fails most where values are small: eps is missing. It bounds what a row of near zeros is multiplied with.",
    ),
    Misconception(
        "eps_of_its_own",
        slipped("eps of 1e-5"),
        "eps is 1e-5 in your kernel, whatever the caller gives. Models differ in it: pass it on.",
    ),
    Misconception(
        "no_weight",
        slipped("no weight"),
        "The rows have the right size, and the weight is missing: each column of y is multiplied with its own.",
    ),
    Misconception(
        "weight_of_the_row",
        slipped("weight of the row"),
        "A whole row is multiplied with one weight, weight[row]. Each column has its own: weight_ptr + cols.",
    ),
    Misconception(
        "one_plus_weight",
        slipped("one more"),
        "y is multiplied with 1 + weight, as some models store it. Here it is the weight itself.",
    ),
    Misconception(
        "two_passes",
        two_passes,
        "The numbers are right, and x and the residual are loaded twice: for the squares and for y. A row of some "
        "thousand values fits into the registers of one program. Then one load is enough.",
    ),
    Misconception(
        "reads_h_again",
        slipped("reads h again"),
        "h is stored and loaded again for y. It is still in registers, and in float32, too.",
    ),
    Misconception(
        "two_launches",
        two_launches,
        "One kernel adds, another one normalises: h goes out to memory and comes in again. That way is what the fusion "
        "saves.",
    ),
    Misconception(
        "the_first_row_for_all",
        slipped("no program id"),
        "All rows of the results are those of row 0: the program id is missing where x and the residual are loaded.",
    ),
    Misconception(
        "no_mask",
        slipped("no mask"),
        "Where columns are no power of two the block is longer than its row: it takes the next row for a part of its "
        "own, and behind the last row it leaves the tensor. Mask loads and stores by cols < columns.",
    ),
    Misconception(
        "torch_adds",
        torch_adds,
        "torch has added x and the residual before your kernel ran. That is the traffic that is to be saved: load both "
        "in the kernel.",
    ),
)
