"""13.fix: what a learner leaves in the given kernel, or breaks while mending it: one kernel, one launcher, switches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64
"""Rows that one program adds up."""
BLOCK_M, BLOCK_N = 16, 64

Gradients = tuple[Tensor, ...]


@triton.jit(do_not_specialize=list(range(4, 19)))  # most slips need no compilation of their own
def _kernel(
    dy_ptr,
    y_ptr,
    dz_ptr,
    db_ptr,
    dz_m,
    dy_m,
    dy_n,
    y_m,
    y_n,
    row_step,
    rows_each,
    first_col,
    col_step,
    part_step,
    mask_rows,
    mask_cols,
    zero_passes,
    all_of_dz,
    all_of_db,
    WAY: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Rows and columns are from program id times step on; masks end where the matrix does where nothing is wrong."""
    if WAY == "lanes down a column":  # the tile is turned: its last axis, along which lanes go, are the rows
        r, c = tl.arange(0, BLOCK_M)[None, :], tl.arange(0, BLOCK_N)[:, None]
        total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    else:
        r, c = tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N)[None, :]
        total = tl.zeros([BLOCK_M, BLOCK_N], dy_ptr.dtype.element_ty if WAY == "narrow" else tl.float32)
    cols = first_col + tl.program_id(1) * col_step + c
    first = tl.program_id(0) * row_step
    for start in range(first, first + rows_each, BLOCK_M):
        rows = start + r
        here = (rows < mask_rows) & (cols < mask_cols)
        dy = tl.load(dy_ptr + rows * dy_m + cols * dy_n, mask=here, other=0.0)
        y = tl.load(y_ptr + rows * y_m + cols * y_n, mask=here, other=0.0)
        on = (y > 0) | ((y == 0) & (zero_passes != 0))
        tl.store(dz_ptr + rows * dz_m + cols, tl.where(on | (all_of_dz != 0), dy, 0.0), mask=here)
        term = tl.where(on | (all_of_db != 0), dy, 0.0)
        if WAY == "keeps the last":
            total = term.to(tl.float32)
        else:
            total += term
    at = first_col + tl.program_id(1) * col_step + tl.arange(0, BLOCK_N)
    sums = tl.sum(total, axis=1 if WAY == "lanes down a column" else 0).to(tl.float32)
    if WAY == "atomics":
        tl.atomic_add(db_ptr + at, sums, mask=at < mask_cols)
    elif WAY == "memory":
        tl.store(db_ptr + at, tl.load(db_ptr + at, mask=at < mask_cols) + sums, mask=at < mask_cols)
    else:
        tl.store(db_ptr + tl.program_id(0) * part_step + at, sums, mask=at < mask_cols)


@triton.jit
def _add_kernel(parts_ptr, db_ptr, n_parts, n_cols, BLOCK: tl.constexpr):
    """One part after the other, always in this order."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(n_parts):
        total += tl.load(parts_ptr + part * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(db_ptr + cols, total, mask=cols < n_cols)


def answer(
    way: str = "",
    *,
    second: str = "",
    tile: tuple[int, int] = (BLOCK_M, BLOCK_N),
    warps: int = 4,
    rows_each: Callable[[Tensor], int] = lambda dy: ROWS,
    launch_each: bool = False,
    new: Callable[..., Tensor] = torch.zeros,
    programs: Callable[[int, int], int] = triton.cdiv,
    strides: Callable[[Tensor, Tensor], tuple[int, ...]] = lambda dy, y: (*dy.stride(), *y.stride()),
    keep: Callable[[Tensor], torch.dtype] = lambda dy: torch.float32,
    empty: Callable[[Tensor], Tensor] = lambda dy: torch.empty(dy.shape, dtype=dy.dtype, device=dy.device),
    **places: Callable[[Tensor], int],
) -> Callable[[Tensor, Tensor], Gradients]:
    """The right answer, but for what is given.

    way, second  of the kernel, and of how parts come together
    launch_each  a launch for each block of columns, not a row of the grid
    places       row_step, part_step, mask_rows, mask_cols, zero_passes, all_of_dz and all_of_db of the kernel
    """

    def fix(dy: Tensor, y: Tensor) -> Gradients:
        n_rows, n_cols = dy.shape
        m, n = tile
        each, parts = rows_each(dy), programs(n_rows, rows_each(dy))
        dz, db = empty(dy), new(n_cols, dtype=torch.float32, device=dy.device)
        shared = way in ("atomics", "memory")
        apart = not shared and parts > 1
        partial = torch.empty(parts, n_cols, dtype=keep(dy), device=dy.device) if apart else db
        steps = {"row_step": each, "rows_each": each, "first_col": 0, "col_step": n, "part_step": n_cols}
        steps |= {"mask_rows": n_rows, "mask_cols": n_cols, "zero_passes": 0, "all_of_dz": 0, "all_of_db": 0}
        steps |= {name: value(dy) for name, value in places.items()}
        blocks = triton.cdiv(n_cols, n)
        for block in range(blocks if launch_each else 1):
            at = steps | ({"first_col": block * n} if launch_each else {})
            _kernel[(parts, 1 if launch_each else blocks)](
                *(dy, y, dz, partial, n_cols, *strides(dy, y), *at.values()),
                **{"WAY": way, "BLOCK_M": m, "BLOCK_N": n, "num_warps": warps},
            )
        if apart and second == "none":
            return dz, partial[0]
        if apart:
            _add_kernel[(triton.cdiv(n_cols, BLOCK_N),)](partial, db, parts, n_cols, BLOCK=BLOCK_N, num_warps=1)
        return dz, db

    return fix


def changed(dtypes: Callable[[Tensor], tuple[torch.dtype, torch.dtype]]) -> Callable[[Tensor, Tensor], Gradients]:
    """The right answer with other dtypes of dz and db."""

    def fix(dy: Tensor, y: Tensor) -> Gradients:
        return tuple(part.to(dtype) for part, dtype in zip(answer()(dy, y), dtypes(dy), strict=True))

    return fix


def sums_of_rows(dy: Tensor, y: Tensor) -> Gradients:
    turned, sums = answer()(dy.T, y.T)
    return turned.T, sums


def masked_by_torch(dy: Tensor, y: Tensor) -> Gradients:
    """The mask is an operator of torch, and the kernel sums."""
    dz = dy * (y > 0)
    return dz, answer(all_of_db=lambda dy: 1)(dz, y)[1]


def dz_read_again(dy: Tensor, y: Tensor) -> Gradients:
    """One launch makes dz, and another one reads it again to sum it."""
    dz, _ = answer(second="none")(dy, y)
    db = torch.empty(dy.shape[1], device=dy.device)
    grid = (triton.cdiv(dy.shape[1], BLOCK_N),)
    _sum_kernel[grid](dz, db, *dy.shape, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    return dz, db


@triton.jit
def _sum_kernel(dz_ptr, db_ptr, n_rows, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, n_rows, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        here = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        total += tl.load(dz_ptr + rows[:, None] * n_cols + cols[None, :], mask=here, other=0.0)
    tl.store(db_ptr + cols, tl.sum(total, axis=0), mask=cols < n_cols)


def with_torch(dy: Tensor, y: Tensor) -> Gradients:
    dz = torch.where(y > 0, dy, torch.zeros_like(dy))
    return dz, dz.float().sum(0)
