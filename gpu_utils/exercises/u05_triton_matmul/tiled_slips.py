"""Wrong answers to 05.tiled, as learners write them: launches of the kernel of `tile_slips`, and one of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u05_triton_matmul import tile_slips as tiles
from gpu_utils.exercises.u05_triton_matmul.tile_slips import FAR, Launch

Answer = Callable[[Tensor, Tensor], Tensor]


@triton.jit(do_not_specialize=["a_ptr", "b_ptr", "out_ptr", "M", "N", "K", "am", "ak", "bk", "bn"])
def outer_kernel(a_ptr, b_ptr, out_ptr, M, N, K, am, ak, bk, bn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A column of a times a row of b for each element of K: right, and no matrix instruction."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + rows * am + k * ak, mask=rows < M, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k * bk + cols * bn, mask=cols < N, other=0.0).to(tl.float32)
        acc += a[:, None] * b[None, :]
    out = out_ptr + rows[:, None] * N + cols[None, :]
    tl.store(out, acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


def launched(launch: Launch) -> Tensor:
    inputs = launch.a, launch.b, launch.out
    tiles.kernel[launch.grid](*inputs, *launch.numbers.values(), **launch.constants)
    return launch.out


def slipped(slip: str = "", how: str = "", blocks: tuple[int, int, int] = (64, 64, 32), **changed: Any) -> Answer:
    """The right launch with other numbers, each given or made from the launch."""

    def answer(a: Tensor, b: Tensor) -> Tensor:
        launch = Launch(a, b, tiles.new(a, b), blocks=blocks, slip=slip, how=how)
        made = {name: value(launch.numbers) if callable(value) else value for name, value in changed.items()}
        launch.numbers |= made
        return launched(launch)

    return answer


def on_grid(programs: Callable[[int, int], tuple[int, int]]) -> Answer:
    def answer(a: Tensor, b: Tensor) -> Tensor:
        launch = Launch(a, b, tiles.new(a, b))
        launch.grid = programs(a.shape[0], b.shape[1])
        return launched(launch)

    return answer


no_masks = slipped(limit_m=FAR, limit_n=FAR, limit_a=FAR, limit_b=FAR, store_m=FAR, store_n=FAR)
no_mask_along_k = slipped(limit_a=FAR, limit_b=FAR)
masks_along_k_only = slipped(limit_m=FAR, limit_n=FAR)
store_unmasked = slipped(store_m=FAR, store_n=FAR)
one_more_along_k = slipped(limit_a=lambda of: of["K"] + 1, limit_b=lambda of: of["K"] + 1)
last_block_lost = slipped(K=lambda of: of["K"] // tiles.STEP * tiles.STEP)
keeps_the_last_block = slipped(keep=0.0)
same_block_again = slipped(advance=0)
rows_of_the_tile = slipped(step_m=0)
columns_of_the_tile = slipped(step_n=0)
default_precision = slipped(how="default")
in_float16 = slipped("float16")
sums_rounded = slipped("each block")
small_tiles = slipped(blocks=(32, 32, 32))
rounded_down = on_grid(lambda m, n: (m // 64, n // 64))
exchanged = on_grid(lambda m, n: (triton.cdiv(n, 64), triton.cdiv(m, 64)))
as_if_contiguous = slipped(am=lambda of: of["K"], ak=1, bk=lambda of: of["N"], bn=1)
rows_strides_only = slipped(ak=1, bn=1)
other_way_of_b = slipped(bk=lambda of: of["bn"], bn=lambda of: of["bk"])


def outer_products(a: Tensor, b: Tensor) -> Tensor:
    (m, k), n, out = a.shape, b.shape[1], tiles.new(a, b)
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    outer_kernel[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), BLOCK_M=64, BLOCK_N=64)
    return out


def in_float32(a: Tensor, b: Tensor) -> Tensor:
    return launched(Launch(a, b, tiles.new(a, b, torch.float32)))


def copies_first(a: Tensor, b: Tensor) -> Tensor:
    return launched(Launch(a.contiguous(), b.contiguous(), tiles.new(a, b)))


def returns_nothing(a: Tensor, b: Tensor) -> None:
    launched(Launch(a, b, tiles.new(a, b)))
