"""04.transpose: wrong answers that somebody would write, as one kernel and one launcher with switches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 64

Answer = Callable[[Tensor], Tensor]


@triton.jit
def _kernel(
    x_ptr,
    out_ptr,
    load_rows,
    load_cols,
    store_rows,
    store_cols,
    stride_b,
    stride_m,
    stride_n,
    out_b,
    out_m,
    out_n,
    SLIP: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """The first four sizes are where masks end: n_rows and n_cols, where nothing is wrong."""
    batch = tl.program_id(2)
    rows = tl.program_id(1) * TILE_M + tl.arange(0, TILE_M)
    cols = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    here = (rows < load_rows)[:, None] & (cols < load_cols)[None, :]
    tile = tl.load(x_ptr + batch * stride_b + rows[:, None] * stride_m + cols[None, :] * stride_n, mask=here)
    if SLIP == "tiles stay":
        rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
        cols = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    there = (cols < store_cols)[:, None] & (rows < store_rows)[None, :]
    if SLIP == "mask not turned":
        there = here
    if SLIP != "elements not turned":
        tile = tl.trans(tile)
    tl.store(out_ptr + batch * out_b + cols[:, None] * out_m + rows[None, :] * out_n, tile, mask=there)


@triton.jit
def _row_kernel(x_ptr, out_ptr, n_rows, n_cols, stride_b, stride_m, stride_n, BLOCK: tl.constexpr):
    row, batch = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + batch * stride_b + row * stride_m + cols * stride_n, mask=cols < n_cols)
    tl.store(out_ptr + batch * n_rows * n_cols + cols * n_rows + row, x, mask=cols < n_cols)


def answer(
    slip: str = "",
    *,
    tile: int | tuple[int, int] = TILE,
    strides: Callable[[Tensor], tuple[int, ...]] = lambda x: x.stride(),
    out_row: Callable[[Tensor], int] = lambda x: x.shape[1],
    load_masks: bool = True,
    store_masks: bool = True,
    tiles: Callable[[int, int], int] = triton.cdiv,
    grid: Callable[[int, int, int], tuple[int, ...]] = lambda across, down, batch: (across, down, batch),
    dtype: Callable[[Tensor], torch.dtype] = lambda x: x.dtype,
) -> Answer:
    """The right answer, but for what is given."""
    tall, wide = tile if isinstance(tile, tuple) else (tile, tile)

    def transpose(x: Tensor) -> Tensor:
        batch, rows, cols = x.shape
        out = torch.empty(batch, cols, rows, dtype=dtype(x), device=x.device)
        ends = [end if masks else 1 << 30 for masks in (load_masks, store_masks) for end in (rows, cols)]
        sizes = (*ends, *strides(x), rows * cols, out_row(x), 1)
        programs = grid(tiles(cols, wide), tiles(rows, tall), batch)
        _kernel[programs](x, out, *sizes, SLIP=slip, TILE_M=tall, TILE_N=wide)
        return out

    return transpose


def _into(x: Tensor, out: Tensor) -> None:
    """x, copied to `out`, which has its transposed shape and any strides."""
    batch, rows, cols = x.shape
    programs = (triton.cdiv(cols, TILE), triton.cdiv(rows, TILE), batch)
    _kernel[programs](x, out, rows, cols, rows, cols, *x.stride(), *out.stride(), SLIP="", TILE_M=TILE, TILE_N=TILE)


def a_row_for_each_program(x: Tensor) -> Tensor:
    batch, rows, cols = x.shape
    out = torch.empty(batch, cols, rows, dtype=x.dtype, device=x.device)
    _row_kernel[(rows, batch)](x, out, rows, cols, *x.stride(), BLOCK=triton.next_power_of_2(cols))
    return out


def a_launch_for_each_matrix(x: Tensor) -> Tensor:
    out = torch.empty(x.mT.shape, dtype=x.dtype, device=x.device)
    for index in range(len(x)):
        _into(x[index : index + 1], out[index : index + 1])
    return out


def result_laid_out_like_x(x: Tensor) -> Tensor:
    out = torch.empty_like(x).mT
    _into(x, out)
    return out


def torch_transposes(x: Tensor) -> Tensor:
    return result_laid_out_like_x(x).clone(memory_format=torch.contiguous_format)


def of_a_copy(x: Tensor) -> Tensor:
    return answer()(x.contiguous())


def with_torch(x: Tensor) -> Tensor:
    return x.mT.contiguous()
