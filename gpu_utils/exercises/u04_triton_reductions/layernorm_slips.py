"""Wrong answers to 04.layernorm, as learners write them: kernels with a slip, and launchers.

The slip is a number that a kernel gets at run time: all that share a kernel are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.grading.exercise import Misconception

Three = tuple[Tensor, Tensor, Tensor]

BLOCK = 1024

_SLIPS = (
    *("", "in 16 bits", "squares", "padding in the variance", "no program id", "no mask"),
    *("three passes", "blocks of one size", "equal shares", "within only", "about zero", "one less", "sum"),
    *("no eps", "eps outside", "eps of 1e-5", "no root", "stores std", "stores the variance"),
    *("weight of the row", "mean stays", "bias first", "no weight", "no bias"),
)
NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}
"""What a launcher gives to the kernels, by its name."""

_SQUARES = NUMBERS["squares"]
_PADDING = NUMBERS["padding in the variance"]
_NO_PROGRAM_ID = NUMBERS["no program id"]
_NO_MASK = NUMBERS["no mask"]
_THREE_PASSES = NUMBERS["three passes"]
_ONE_SIZE = NUMBERS["blocks of one size"]
_EQUAL_SHARES = NUMBERS["equal shares"]
_WITHIN_ONLY = NUMBERS["within only"]
_ABOUT_ZERO = NUMBERS["about zero"]
_ONE_LESS = NUMBERS["one less"]
_SUM = NUMBERS["sum"]
_NO_EPS = NUMBERS["no eps"]
_EPS_OUTSIDE = NUMBERS["eps outside"]
_EPS_OF_ITS_OWN = NUMBERS["eps of 1e-5"]
_NO_ROOT = NUMBERS["no root"]
_STORES_STD = NUMBERS["stores std"]
_STORES_VARIANCE = NUMBERS["stores the variance"]
_WEIGHT_OF_ROW = NUMBERS["weight of the row"]
_MEAN_STAYS = NUMBERS["mean stays"]
_BIAS_FIRST = NUMBERS["bias first"]
_NO_WEIGHT = NUMBERS["no weight"]
_NO_BIAS = NUMBERS["no bias"]


@triton.jit
def kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, columns, stride, eps,
    BLOCK: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    """A row in one block. SLIP is a constant: what is spilled of a long row must be what a learner's kernel spills."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / (BLOCK if SLIP == "mean of the block" else columns)
    off = x - mean
    if SLIP != "padding in the variance":
        off = tl.where(mask, off, 0.0)
    variance = tl.sum(off * off, 0) / columns
    if SLIP == "squares":
        variance = tl.sum(x * x, 0) / columns - mean * mean
    rstd = 1 / tl.sqrt(variance + eps)
    weight = tl.load(weight_ptr + cols, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask).to(tl.float32)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * columns + cols, off * rstd * weight + bias, mask=mask)


@triton.jit(do_not_specialize=["columns", "stride", "slip"])
def loop_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, columns, stride, eps, slip,
    BLOCK: tl.constexpr, IN_16_BITS: tl.constexpr,
):  # fmt: skip
    """Block by block, merging the statistics, or with a walk for each of them. IN_16_BITS: sums in the type of x."""
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    start = x_ptr + tl.where(slip == _NO_PROGRAM_ID, 0, row) * stride
    end = tl.where(slip == _NO_MASK, (columns // BLOCK + 1) * BLOCK, columns)
    mean = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    squares = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    for first in range(0, columns, BLOCK):
        mask = first + lanes < end
        given = tl.load(start + first + lanes, mask=mask, other=0.0)
        x = given.to(tl.float32)
        count = tl.where(slip == _ONE_SIZE, BLOCK, tl.minimum(columns - first, BLOCK))
        total = tl.sum(x, 0)
        if IN_16_BITS:
            total = tl.sum(given, 0).to(x_ptr.dtype.element_ty).to(tl.float32)
        of_block = total / count
        off = x - tl.where((slip == _ABOUT_ZERO) | (slip == _SQUARES), 0.0, of_block)
        off = tl.where(mask | (slip == _PADDING), off, 0.0)
        squares += tl.sum(off * off, 0)
        moved = of_block - mean
        weight_of_block = tl.where(slip == _EQUAL_SHARES, BLOCK, count)
        share = weight_of_block / (first + weight_of_block)
        between = moved * moved * first * share
        squares += tl.where((slip == _WITHIN_ONLY) | (slip == _ABOUT_ZERO) | (slip == _SQUARES), 0.0, between)
        mean += tl.where(slip == _SQUARES, total / columns, moved * share)
    if slip == _THREE_PASSES:
        squares = 0.0
        for first in range(0, columns, BLOCK):
            mask = first + lanes < columns
            x = tl.load(start + first + lanes, mask=mask, other=0.0).to(tl.float32)
            off = tl.where(mask, x - mean, 0.0)
            squares += tl.sum(off * off, 0)
    divisor = tl.where(slip == _ONE_LESS, columns - 1, tl.where(slip == _SUM, 1, columns))
    variance = squares / divisor - tl.where(slip == _SQUARES, mean, 0.0) * mean
    inside = tl.where((slip == _NO_EPS) | (slip == _EPS_OUTSIDE), 0.0, tl.where(slip == _EPS_OF_ITS_OWN, 1e-5, eps))
    size = tl.sqrt(variance + inside)
    size = tl.where(slip == _EPS_OUTSIDE, size + eps, tl.where(slip == _NO_ROOT, variance + eps, size))
    rstd = 1 / size
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, tl.where(slip == _STORES_STD, size, tl.where(slip == _STORES_VARIANCE, variance, rstd)))
    for first in range(0, columns, BLOCK):
        cols = first + lanes
        mask = cols < end
        x = tl.load(start + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask).to(tl.float32)
        bias = tl.load(bias_ptr + cols, mask=mask).to(tl.float32)
        if slip == _WEIGHT_OF_ROW:
            weight = tl.load(weight_ptr + cols * 0 + row, mask=mask).to(tl.float32)
            bias = tl.load(bias_ptr + cols * 0 + row, mask=mask).to(tl.float32)
        y = (x - tl.where(slip == _MEAN_STAYS, 0.0, mean)) * rstd
        y += tl.where(slip == _BIAS_FIRST, bias, 0.0)
        y *= tl.where(slip == _NO_WEIGHT, 1.0, weight)
        y += tl.where((slip == _BIAS_FIRST) | (slip == _NO_BIAS), 0.0, bias)
        tl.store(y_ptr + row * columns + cols, y, mask=mask)


@triton.jit
def apply_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < columns
    x = tl.load(x_ptr + row * stride + cols, mask=mask).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask).to(tl.float32)
    y = (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row) * weight + bias
    tl.store(y_ptr + row * columns + cols, y, mask=mask)


def new(x: Tensor, statistics: torch.dtype = torch.float32, y: torch.dtype | None = None) -> Three:
    of_rows = [torch.empty(x.shape[0], dtype=statistics, device=x.device) for _ in range(2)]
    return torch.empty(x.shape, dtype=y or x.dtype, device=x.device), of_rows[0], of_rows[1]


def launch(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, out: Three, stride: int | None = None, slip: str = "",
) -> Three:  # fmt: skip
    """One launch of the kernel that walks in blocks."""
    rows, columns = x.shape
    stride = x.stride(0) if stride is None else stride
    in_16_bits = slip == "in 16 bits" and x.dtype != torch.float32  # of float32 the sums are the same
    loop_kernel[(rows,)](
        x, weight, bias, *out, columns, stride, eps, NUMBERS[slip].value, BLOCK=BLOCK, IN_16_BITS=in_16_bits
    )  # fmt: skip
    return out


def whole_row(slip: str, block: int = 0) -> Callable[..., Three]:
    """The right launcher with a slip of the kernel that takes a row in one block, or in one of that size."""

    def answer(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
        (rows, columns), out = x.shape, new(x)
        of_size = block or triton.next_power_of_2(columns)
        kernel[(rows,)](x, weight, bias, *out, columns, x.stride(0), eps, BLOCK=of_size, SLIP=slip)
        return out

    return answer


def looped(slip: str) -> Callable[..., Three]:
    """The right launcher with a slip of the kernel that walks in blocks."""
    return lambda x, weight, bias, eps: launch(x, weight, bias, eps, new(x), slip=slip)


def ignores_stride(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
    return launch(x, weight, bias, eps, new(x), stride=x.shape[1])


def statistics_like_x(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
    return launch(x, weight, bias, eps, new(x, statistics=x.dtype))


def y_in_float32(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
    return launch(x, weight, bias, eps, new(x, y=torch.float32))


def statistics_as_columns(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
    y, mean, rstd = launch(x, weight, bias, eps, new(x))
    return y, mean[:, None], rstd[:, None]


def only_y(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return launch(x, weight, bias, eps, new(x))[0]


def two_launches(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
    out, (rows, columns) = launch(x, weight, bias, eps, new(x)), x.shape
    grid = (rows, triton.cdiv(columns, BLOCK))
    apply_kernel[grid](x, weight, bias, *out, columns, x.stride(0), BLOCK=BLOCK)
    return out


def torch_finds_the_mean(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
    mean = x.float().mean(1)
    y, _, rstd = launch(x, weight, bias, eps, new(x))
    return y, mean, rstd


MISCONCEPTIONS = (
    Misconception(
        "mean_of_squares",
        looped("squares"),
        "It fails where the mean is large: E[x^2] - E[x]^2 subtracts two numbers near 10^8, and float32 has none "
        "between 10^8 and 10^8 + 8. Add up squares of differences to the mean, or to something near it.",
    ),
    Misconception(
        "mean_of_squares_of_a_whole_row",
        whole_row("squares"),
        "It fails where the mean is large: E[x^2] - E[x]^2 subtracts two numbers near 10^8, and float32 has none "
        "between 10^8 and 10^8 + 8. Add up squares of differences to the mean. And no block holds a row of 40,001.",
    ),
    Misconception(
        "one_block",
        whole_row(""),
        "The numbers are right, and one block holds the whole row: 40,001 elements do not fit into the registers of a "
        "program. Walk along the row in blocks. More warps do not help: they have fewer registers each.",
    ),
    Misconception(
        "three_passes",
        looped("three passes"),
        "The numbers are right, and x is loaded three times: for the mean, for the variance, for y. Let the first walk "
        "find both: mean and squared differences of a block can be merged with those of the blocks before.",
    ),
    Misconception(
        "first_block_only",
        whole_row("", BLOCK),
        "It fails where rows are longer than BLOCK: nobody reads or writes the rest of them. Walk along the row in a "
        "loop.",
    ),
    Misconception(
        "ignores_stride",
        ignores_stride,
        "Contiguous tensors work, views do not: row r of a view does not start at r * columns. Pass x.stride(0).",
    ),
    Misconception(
        "statistics_like_x",
        statistics_like_x,
        "mean and rstd are asked for in float32, whatever x is: the backward pass computes with them, and they are two "
        "numbers for each row.",
    ),
    Misconception(
        "y_in_float32",
        y_in_float32,
        "Computing in float32 is right; y itself has the type of x: torch.empty(..., dtype=x.dtype).",
    ),
    Misconception(
        "statistics_as_columns",
        statistics_as_columns,
        "mean and rstd have shape (rows,): one number for each row, and no second dimension.",
    ),
    Misconception("only_y", only_y, "Three tensors are asked for: return y, mean, rstd. The backward pass needs all."),
    Misconception(
        "padding_in_the_variance",
        looped("padding in the variance"),
        "The padding is 0 when it is loaded, and 0 - mean afterwards: in the last block its square goes into the "
        "variance. Switch it off behind the subtraction: tl.where.",
    ),
    Misconception(
        "padding_in_the_variance_of_a_whole_row",
        whole_row("padding in the variance"),
        "The padding is 0 when it is loaded, and 0 - mean afterwards, and its square goes into the variance. Switch it "
        "off again after the mean is subtracted: tl.where.",
    ),
    Misconception(
        "mean_over_the_block",
        whole_row("mean of the block"),
        "It fails where columns are no power of two: the sum is divided by BLOCK, which counts the padding. The row "
        "has `columns` elements.",
    ),
    Misconception(
        "about_zero",
        looped("about zero"),
        "The variance is the mean of x * x, as in an RMS norm. Here the mean is subtracted before squaring.",
    ),
    Misconception(
        "one_less",
        looped("one less"),
        "The variance is divided by columns - 1. That estimates the variance behind a sample; a layer norm divides by "
        "columns.",
    ),
    Misconception(
        "never_divided",
        looped("sum"),
        "The squared differences are added and never divided by their number: the longer a row, the smaller its y.",
    ),
    Misconception(
        "no_eps",
        looped("no eps"),
        "It fails where a row hardly varies: eps is missing, and a row of equal values divides by 0, or nearly.",
    ),
    Misconception(
        "eps_outside_the_root",
        looped("eps outside"),
        "It fails where a row hardly varies: eps is added to the variance, inside the root. Outside it counts far "
        "less.",
    ),
    Misconception(
        "eps_of_its_own",
        looped("eps of 1e-5"),
        "eps is 1e-5 in your kernel, whatever the caller gives. Models differ in it: pass it on.",
    ),
    Misconception(
        "no_root",
        looped("no root"),
        "The differences are divided by the variance; the square root is missing.",
    ),
    Misconception(
        "mean_stays",
        looped("mean stays"),
        "mean and rstd are right, and y is made of x, not of x - mean.",
    ),
    Misconception(
        "no_weight",
        looped("no weight"),
        "mean and rstd are right, and the weight is missing: each column of y is multiplied with its own.",
    ),
    Misconception(
        "no_bias",
        looped("no bias"),
        "mean and rstd are right, and the bias is missing: each column of y has its own added.",
    ),
    Misconception(
        "bias_before_weight",
        looped("bias first"),
        "The bias is added before the weight is multiplied, so it is multiplied, too. First the weight, then the bias.",
    ),
    Misconception(
        "weight_of_the_row",
        looped("weight of the row"),
        "A whole row has one weight and one bias, those of its own number. Each column has its own: weight_ptr + cols.",
    ),
    Misconception(
        "stores_std",
        looped("stores std"),
        "y and mean are right; in place of rstd there is its inverse, the standard deviation. rstd = 1 / sqrt(variance "
        "+ eps).",
    ),
    Misconception(
        "stores_the_variance",
        looped("stores the variance"),
        "y and mean are right; in place of rstd there is the variance. rstd = 1 / sqrt(variance + eps).",
    ),
    Misconception(
        "in_16_bits",
        looped("in 16 bits"),
        "In float16 there is nothing above 65,504, and even 512 values near 200 add up to more. Turn x into float32 "
        "before you add.",
    ),
    Misconception(
        "blocks_of_one_size",
        looped("blocks of one size"),
        "The last block of a row is shorter than BLOCK, and is divided by BLOCK all the same: its mean counts the "
        "padding.",
    ),
    Misconception(
        "equal_shares",
        looped("equal shares"),
        "The mean of a block is right, and a short last block counts as much as a full one when it is merged. Weigh "
        "each by its number of elements.",
    ),
    Misconception(
        "within_blocks_only",
        looped("within only"),
        "Each block's squared differences are to its own mean, and are simply added. Where the means of blocks differ "
        "that loses a part: how far they are from each other counts, too.",
    ),
    Misconception(
        "two_launches",
        two_launches,
        "One launch finds mean and rstd, another one makes y. A program that has been along its row knows both: go on "
        "in the same kernel.",
    ),
    Misconception(
        "the_first_row_for_all",
        looped("no program id"),
        "All rows are treated as row 0: the program id is missing where x is loaded.",
    ),
    Misconception(
        "no_mask",
        looped("no mask"),
        "Where columns are no power of two the last block is longer than its row: it takes the next row for a part of "
        "its own, and behind the last row it leaves the tensor. Mask loads and stores.",
    ),
    Misconception(
        "torch_finds_the_mean",
        torch_finds_the_mean,
        "torch has computed a part of it, and has read x for that. The kernel has the row at hand: let it do all.",
    ),
)
