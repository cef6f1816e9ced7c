"""Wrong answers to 04.cross_entropy: three kernels that make a slip when told to, and a launcher.

The slip is a number that the kernel gets at run time: all of them share one compilation for each dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, ROWS_BLOCK = 1024, 256

_SLIPS = (
    *("none", "no peak", "no rescaling", "own peaks", "last block alone", "unguarded", "from zero", "peak lost"),
    *("padding counts", "tail missing", "base two", "no own logit", "own logit of row 0", "ignored forgotten"),
    *("all rows divide", "first rows alone", "sum", "at least one", "row ends at n_cols"),
    *("no upstream", "not the mean's", "no one", "one unscaled", "unnormalised", "ignored rows learn", "zero times"),
    *("32 bits", "label unmasked"),
    *("rows of the logits", "store unmasked", "reads twice", "writes in forward"),
)
NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}
"""What a launcher gives to the kernels, by its name."""

_NO_PEAK = NUMBERS["no peak"]
_NO_RESCALING = NUMBERS["no rescaling"]
_OWN_PEAKS = NUMBERS["own peaks"]
_LAST_BLOCK = NUMBERS["last block alone"]
_UNGUARDED = NUMBERS["unguarded"]
_FROM_ZERO = NUMBERS["from zero"]
_PEAK_LOST = NUMBERS["peak lost"]
_PADDING = NUMBERS["padding counts"]
_NO_TAIL = NUMBERS["tail missing"]
_BASE_TWO = NUMBERS["base two"]
_NO_OWN = NUMBERS["no own logit"]
_OWN_OF_ROW_0 = NUMBERS["own logit of row 0"]
_IGNORED = NUMBERS["ignored forgotten"]
_ALL_ROWS = NUMBERS["all rows divide"]
_FIRST_ROWS = NUMBERS["first rows alone"]
_SUM = NUMBERS["sum"]
_AT_LEAST_ONE = NUMBERS["at least one"]
_CONTIGUOUS = NUMBERS["row ends at n_cols"]
_NO_UPSTREAM = NUMBERS["no upstream"]
_NOT_THE_MEANS = NUMBERS["not the mean's"]
_NO_ONE = NUMBERS["no one"]
_ONE_UNSCALED = NUMBERS["one unscaled"]
_UNNORMALISED = NUMBERS["unnormalised"]
_IGNORED_LEARN = NUMBERS["ignored rows learn"]
_ZERO_TIMES = NUMBERS["zero times"]
_ROWS_OF_LOGITS = NUMBERS["rows of the logits"]
_STORE_UNMASKED = NUMBERS["store unmasked"]
_NARROW = NUMBERS["32 bits"]
_LABEL_UNMASKED = NUMBERS["label unmasked"]
_TWICE = NUMBERS["reads twice"]
_WRITES = NUMBERS["writes in forward"]


@triton.jit(do_not_specialize=["slip"])
def losses_kernel(
    logits_ptr, targets_ptr, losses_ptr, lse_ptr, all_ptr, n_cols, stride, ignore_index, slip, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    offset = row.to(tl.int64) * tl.where(slip == _CONTIGUOUS, n_cols, stride)
    row_ptr = logits_ptr + tl.where(slip == _NARROW, row * stride, offset)
    peak = tl.where(slip == _FROM_ZERO, 0.0, -float("inf"))
    total = 0.0
    for first in range(0, tl.where(slip == _NO_TAIL, n_cols // BLOCK * BLOCK, n_cols), BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        x = tl.where((slip == _PADDING) & (cols >= n_cols), 0.0, x)
        own_peak = tl.max(x, axis=0)
        higher = tl.maximum(peak, own_peak)
        base = tl.where((higher == -float("inf")) & (slip != _UNGUARDED), 0.0, higher)
        base = tl.where(slip == _OWN_PEAKS, own_peak, tl.where(slip == _NO_PEAK, 0.0, base))
        shrinks = tl.exp(peak - base)
        if (slip == _NO_PEAK) | (slip == _OWN_PEAKS) | (slip == _NO_RESCALING):
            shrinks = 1.0
        if slip == _LAST_BLOCK:
            shrinks = 0.0
        away = (x - base) * tl.where(slip == _BASE_TWO, 0.6931471805599453, 1.0)
        total = total * shrinks + tl.sum(tl.exp(away), axis=0)
        peak = higher
    if slip >= _TWICE:
        total = 0.0
        for first in range(0, n_cols, BLOCK):
            cols = first + tl.arange(0, BLOCK)
            x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            total += tl.sum(tl.exp(x - peak), axis=0)
            tl.store(all_ptr + row * n_cols + cols, tl.exp(x - peak), mask=(cols < n_cols) & (slip == _WRITES))
    lse = tl.where((slip == _PEAK_LOST) | (slip == _NO_PEAK), 0.0, peak) + tl.log(total)
    target = tl.load(targets_ptr + row)
    counts = (target != ignore_index) | (slip == _IGNORED)
    own = tl.load(
        tl.where(slip == _OWN_OF_ROW_0, logits_ptr, row_ptr) + target,
        mask=counts | (slip == _LABEL_UNMASKED),
        other=0.0,
    )
    loss = lse - tl.where(slip == _NO_OWN, 0.0, own.to(tl.float32))
    tl.store(losses_ptr + row, tl.where(counts, loss, 0.0))
    tl.store(lse_ptr + row, tl.where(slip == _UNNORMALISED, peak, lse))


@triton.jit(do_not_specialize=["slip"])
def mean_kernel(losses_ptr, targets_ptr, loss_ptr, count_ptr, n_rows, ignore_index, slip, ROWS_BLOCK: tl.constexpr):
    total = tl.zeros([ROWS_BLOCK], tl.float32)
    count = tl.zeros([ROWS_BLOCK], tl.float32)
    for first in range(0, tl.where(slip == _FIRST_ROWS, ROWS_BLOCK, n_rows), ROWS_BLOCK):
        rows = first + tl.arange(0, ROWS_BLOCK)
        total += tl.load(losses_ptr + rows, mask=rows < n_rows, other=0.0).to(tl.float32)
        target = tl.load(targets_ptr + rows, mask=rows < n_rows, other=ignore_index)
        count += tl.where(target != ignore_index, 1.0, 0.0)
    counted = tl.sum(count, axis=0)
    if (slip == _ALL_ROWS) | (slip == _IGNORED):
        counted = n_rows.to(tl.float32)
    if slip == _AT_LEAST_ONE:
        counted = tl.maximum(counted, 1.0)
    tl.store(count_ptr, tl.where(slip == _SUM, 1.0, counted))
    tl.store(loss_ptr, tl.sum(total, axis=0) / tl.where(slip == _SUM, 1.0, counted))


@triton.jit(do_not_specialize=["slip"])
def gradient_kernel(
    dloss_ptr,
    logits_ptr,
    targets_ptr,
    lse_ptr,
    count_ptr,
    dlogits_ptr,
    n_cols,
    stride,
    ignore_index,
    slip,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    offset = row.to(tl.int64) * tl.where(slip == _CONTIGUOUS, n_cols, stride)
    logits_ptr += tl.where(slip == _NARROW, row * stride, offset)
    dlogits_ptr += row.to(tl.int64) * tl.where(slip == _ROWS_OF_LOGITS, stride, n_cols)
    target = tl.load(targets_ptr + row)
    lse = tl.load(lse_ptr + row).to(tl.float32)
    upstream = tl.where(slip == _NO_UPSTREAM, 1.0, tl.load(dloss_ptr))
    scale = upstream / tl.where(slip == _NOT_THE_MEANS, 1.0, tl.load(count_ptr))
    counts = (target != ignore_index) | (slip == _IGNORED_LEARN) | (slip == _IGNORED)
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        mask = cols < n_cols
        p = tl.exp(tl.load(logits_ptr + cols, mask=mask, other=0.0).to(tl.float32) - lse)
        one = tl.where((cols == target) & (slip != _NO_ONE), 1.0, 0.0)
        dx = (p - one) * scale
        if slip == _ONE_UNSCALED:
            dx = p * scale - one
        if slip == _ZERO_TIMES:
            dx = dx * tl.where(counts, 1.0, 0.0)
        dx = tl.where(counts | (slip == _ZERO_TIMES), dx, 0.0)
        tl.store(dlogits_ptr + cols, dx, mask=mask | (slip == _STORE_UNMASKED))


@dataclass(frozen=True)
class How:
    """How a wrong launcher differs from a right one."""

    slip: int = 0
    ignore: int | None = None
    rows_dtype: Callable[[Tensor], torch.dtype] = lambda logits: torch.float32
    loss_dtype: Callable[[Tensor], torch.dtype] = lambda logits: torch.float32
    gradient_dtype: torch.dtype | None = None
    in_place: bool = False
    each_row: bool = False
    torch_scales: bool = False


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, ignore_index: int, how: How) -> Tensor:
        rows, cols = logits.shape
        losses, lse = torch.empty(2, rows, dtype=how.rows_dtype(logits), device=logits.device)
        loss = torch.empty((), dtype=how.loss_dtype(logits), device=logits.device)
        count = torch.empty((), device=logits.device)
        writes = how.slip == NUMBERS["writes in forward"].value
        everything = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device) if writes else losses
        ignored = ignore_index if how.ignore is None else how.ignore
        shape = cols, logits.stride(0), ignored, how.slip
        losses_kernel[(rows,)](logits, targets, losses, lse, everything, *shape, BLOCK=BLOCK)
        mean_kernel[(1,)](losses, targets, loss, count, rows, ignored, how.slip, ROWS_BLOCK=ROWS_BLOCK)
        ctx.save_for_backward(logits, targets, lse, count)
        ctx.shape, ctx.how = shape, how
        return losses if how.each_row else loss

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, lse, count = ctx.saved_tensors
        dlogits = torch.empty(logits.shape, dtype=ctx.how.gradient_dtype or logits.dtype, device=logits.device)
        if ctx.how.in_place:
            dlogits = logits
        grid = (logits.shape[0],)
        gradient_kernel[grid](dloss, logits, targets, lse, count, dlogits, *ctx.shape, BLOCK=BLOCK)
        return dlogits * 1.0 if ctx.how.torch_scales else dlogits, None, None, None


def answer(slip: str = "none", detached: bool = False, copied: bool = False, **choices: Any) -> Callable[..., Tensor]:
    """A wrong answer; without arguments a right one."""
    how = How(NUMBERS[slip].value, **choices)

    def cross_entropy(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
        given = logits.contiguous() if copied else logits
        loss = _CrossEntropy.apply(given, targets, ignore_index, how)
        return loss.detach() if detached else loss

    return cross_entropy


def of_torch(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """The mean loss by torch."""
    return torch.nn.functional.cross_entropy(logits.float(), targets, ignore_index=ignore_index)
