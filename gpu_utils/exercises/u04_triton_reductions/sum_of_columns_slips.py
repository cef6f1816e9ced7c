"""04.sum_of_columns: wrong answers that somebody would write, as one kernel and one launcher with switches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64
"""Rows of x that one program adds up."""
BLOCK_M, BLOCK_N = 16, 64

Answer = Callable[[Tensor, bool], Tensor]


@triton.jit(do_not_specialize=list(range(2, 4)) + list(range(6, 12)))  # most slips need no compilation of their own
def _kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    stride_m,
    stride_n,
    row_step,
    rows_each,
    col_step,
    part_step,
    mask_rows,
    mask_cols,
    ATOMIC: tl.constexpr,
    SLIP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Rows and columns are from program id times step on; masks end at n_rows or n_cols where nothing is wrong."""
    cols = tl.program_id(1) * col_step + tl.arange(0, BLOCK_N)
    first = tl.program_id(0) * row_step
    total = tl.zeros([BLOCK_M, BLOCK_N], x_ptr.dtype.element_ty if SLIP == "narrow" else tl.float32)
    for start in range(first, first + rows_each, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        here = (rows < mask_rows)[:, None] & (cols < mask_cols)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_m + cols[None, :] * stride_n, mask=here, other=0.0)
        if SLIP == "keeps the last":
            total = x.to(tl.float32)
        elif SLIP == "adds each to memory":
            tl.atomic_add(out_ptr + cols[None, :] + rows[:, None] * 0, x.to(tl.float32), mask=here)
        else:
            total += x
    sums = tl.sum(total, axis=0).to(tl.float32)
    if SLIP == "one number":
        sums = sums * 0 + tl.sum(sums, axis=0)
    mask = cols < mask_cols
    if not ATOMIC:
        tl.store(out_ptr + tl.program_id(0) * part_step + cols, sums, mask=mask)
    elif SLIP == "adds without atomics":
        tl.store(out_ptr + cols, tl.load(out_ptr + cols, mask=mask) + sums, mask=mask)
    elif SLIP != "adds each to memory":
        tl.atomic_add(out_ptr + cols, sums, mask=mask)


def _columns(x: Tensor) -> int:
    return triton.cdiv(x.shape[1], BLOCK_N)


def answer(
    slip: str = "",
    *,
    rows_each: int = ROWS,
    second: str = "",
    atomics: Callable[[bool], bool] = lambda deterministic: not deterministic,
    new: Callable[..., Tensor] = torch.zeros,
    programs: Callable[[Tensor, int], int] = lambda x, each: triton.cdiv(x.shape[0], each),
    columns: Callable[[Tensor], int] = _columns,
    strides: Callable[[Tensor], tuple[int, ...]] = lambda x: x.stride(),
    keep: Callable[[Tensor], torch.dtype] = lambda x: torch.float32,
    block_m: int = BLOCK_M,
    **places: Callable[[Tensor], int],
) -> Answer:
    """The right answer, but for what is given.

    slip, second: of the first kernel, and of the second pass. places: row_step, rows, col_step, part_step, mask_rows
    and mask_cols of the first kernel.
    """

    def sum_of_columns(x: Tensor, deterministic: bool) -> Tensor:
        n_rows, n_cols = x.shape
        right = {"row_step": rows_each, "rows": rows_each, "col_step": BLOCK_N, "part_step": n_cols}
        right |= {"mask_rows": n_rows, "mask_cols": n_cols}
        at = [places[name](x) if name in places else value for name, value in right.items()]
        tile = {"BLOCK_M": block_m, "BLOCK_N": BLOCK_N, "SLIP": slip}
        parts = programs(x, rows_each)
        grid = (parts, columns(x))
        if atomics(deterministic):
            out = new(n_cols, dtype=torch.float32, device=x.device)
            _kernel[grid](x, out, n_rows, n_cols, *strides(x), *at, ATOMIC=True, **tile)
            return out
        partial = torch.empty(parts, n_cols, dtype=keep(x), device=x.device)
        _kernel[grid](x, partial, n_rows, n_cols, *strides(x), *at, ATOMIC=False, **tile)
        if second == "none":
            return partial
        if second == "torch":
            return partial.sum(0)
        out = torch.empty(n_cols, dtype=torch.float32, device=x.device)
        each = BLOCK_M if second == "one step" else parts
        at = [0, each, BLOCK_N, 0, parts, n_cols]
        tile |= {"BLOCK_M": BLOCK_M, "SLIP": ""}
        _kernel[(1, columns(x))](partial, out, parts, n_cols, *partial.stride(), *at, ATOMIC=False, **tile)
        return out

    return sum_of_columns


def one_program(x: Tensor, deterministic: bool) -> Tensor:
    """A program for each block of columns, which walks down all of the rows."""
    n_rows, n_cols = x.shape
    out = torch.empty(n_cols, device=x.device)
    at = (0, n_rows, BLOCK_N, 0, n_rows, n_cols)
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}
    _kernel[(1, _columns(x))](x, out, n_rows, n_cols, *x.stride(), *at, ATOMIC=False, SLIP="", **tile)
    return out


def with_torch(x: Tensor, deterministic: bool) -> Tensor:
    return x.float().sum(0)


def in_the_type_of_x(x: Tensor, deterministic: bool) -> Tensor:
    return answer()(x, deterministic).to(x.dtype)


def of_a_copy(x: Tensor, deterministic: bool) -> Tensor:
    return answer()(x.contiguous(), deterministic)


def sums_of_rows(x: Tensor, deterministic: bool) -> Tensor:
    return answer()(x.T, deterministic)
