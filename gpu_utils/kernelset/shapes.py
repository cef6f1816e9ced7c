"""Kernels that only move elements of a tile: transposes, joins, splits, permutations."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    x = tl.load(x_ptr + m[:, None] * cols + n[None, :], mask=(m[:, None] < rows) & (n[None, :] < cols), other=0)
    tl.store(out_ptr + n[:, None] * rows + m[None, :], tl.trans(x), mask=(n[:, None] < cols) & (m[None, :] < rows))


@case()
def transpose(run: Run) -> None:
    rows, cols = run.size(45, 300), run.size(77, 400)
    for dtype in (torch.float32, torch.float16, torch.int8, torch.int64):
        x = run.integers(-100, 100, rows, cols).to(dtype)
        out = torch.empty(cols, rows, dtype=dtype)
        run.launch(transpose_kernel, (triton.cdiv(rows, 32), triton.cdiv(cols, 64)), x, out, rows, cols, BM=32, BN=64)
        run.equal(str(dtype), out, x.t())


@triton.jit
def split_and_join_kernel(x_ptr, y_ptr, joined_ptr, even_ptr, odd_ptr, mixed_ptr, BLOCK: tl.constexpr):
    base = tl.program_id(0) * BLOCK
    i = base + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    pair = tl.arange(0, BLOCK)[:, None] * 2 + tl.arange(0, 2)[None, :]
    tl.store(joined_ptr + 2 * base + pair, tl.join(x, y))
    even, odd = tl.split(tl.reshape(x, (BLOCK // 2, 2)))
    half = base // 2 + tl.arange(0, BLOCK // 2)
    tl.store(even_ptr + half, even)
    tl.store(odd_ptr + half, odd)
    tl.store(mixed_ptr + 2 * base + tl.arange(0, 2 * BLOCK), tl.interleave(y, x))


@case()
def split_join_and_interleave(run: Run) -> None:
    programs, block = run.size(2, 60), 128
    n = programs * block
    x, y = run.normal(n, dtype=torch.float16), run.normal(n, dtype=torch.float16)
    joined, mixed = torch.empty(n, 2, dtype=torch.float16), torch.empty(2 * n, dtype=torch.float16)
    even, odd = torch.empty(n // 2, dtype=torch.float16), torch.empty(n // 2, dtype=torch.float16)
    run.launch(split_and_join_kernel, (programs,), x, y, joined, even, odd, mixed, BLOCK=block)
    run.equal("joined", joined, torch.stack([x, y], 1))
    run.equal("even", even, x[::2])
    run.equal("odd", odd, x[1::2])
    run.equal("interleaved", mixed, torch.stack([y, x], 1).flatten())


@triton.jit
def permute_kernel(x_ptr, out_ptr, flipped_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * A * B * C + tl.arange(0, A * B * C)
    x = tl.reshape(tl.load(x_ptr + i), (A, B, C))
    tl.store(out_ptr + i, tl.reshape(tl.permute(x, (2, 0, 1)), (A * B * C,)))
    tl.store(flipped_ptr + i, tl.reshape(tl.flip(x, 1), (A * B * C,)))


@case()
def permute_reshape_and_flip(run: Run) -> None:
    programs = run.size(2, 60)
    x = run.integers(-(2**31), 2**31, programs, 8, 4, 16)
    out, flipped = torch.empty(programs, 16, 8, 4, dtype=torch.int32), torch.empty_like(x)
    run.launch(permute_kernel, (programs,), x, out, flipped, A=8, B=4, C=16)
    run.equal("permuted", out, x.permute(0, 3, 1, 2))
    run.equal("flipped", flipped, x.flip(2))


@triton.jit
def cat_kernel(x_ptr, y_ptr, sorted_ptr, wide_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    both = tl.cat(tl.load(x_ptr + i), tl.load(y_ptr + i), can_reorder=True)
    tl.store(sorted_ptr + tl.arange(0, 2 * BLOCK), tl.sort(both))
    wide = tl.broadcast_to(tl.expand_dims(tl.load(x_ptr + i), 1), (BLOCK, 4))
    tl.store(wide_ptr + tl.arange(0, BLOCK)[:, None] * 4 + tl.arange(0, 4)[None, :], wide)


@case()
def concatenate_and_broadcast(run: Run) -> None:
    x, y = run.integers(-1000, 1000, 64), run.integers(-1000, 1000, 64)
    merged, wide = torch.empty(128, dtype=torch.int32), torch.empty(64, 4, dtype=torch.int32)
    run.launch(cat_kernel, (1,), x, y, merged, wide, BLOCK=64)
    run.equal("the same elements", merged, torch.cat([x, y]).sort().values)
    run.equal("broadcast", wide, x[:, None].expand(64, 4))


@triton.jit
def stencil_kernel(x_ptr, out_ptr, h, w, BH: tl.constexpr, BW: tl.constexpr):
    y = tl.program_id(0) * BH + tl.arange(0, BH)[:, None]
    x = tl.program_id(1) * BW + tl.arange(0, BW)[None, :]
    total = tl.zeros((BH, BW), tl.float32)
    for tap in tl.static_range(9):
        dy = tap // 3 - 1
        dx = tap % 3 - 1
        inside = (y + dy >= 0) & (y + dy < h) & (x + dx >= 0) & (x + dx < w)
        near = tl.load(x_ptr + (y + dy) * w + x + dx, mask=inside, other=0.0)
        total += near * (2 - dy * dy) * (2 - dx * dx)
    tl.store(out_ptr + y * w + x, total / 16, mask=(y < h) & (x < w))


@case()
def stencil_in_two_dimensions(run: Run) -> None:
    h, w = run.size(21, 64), run.size(50, 100)
    x, out = run.normal(h, w), torch.empty(h, w)
    run.launch(stencil_kernel, (triton.cdiv(h, 8), triton.cdiv(w, 32)), x, out, h, w, BH=8, BW=32)
    weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]], dtype=torch.float64) / 16
    expected = torch.nn.functional.conv2d(x.double()[None, None], weights[None, None], padding=1)[0, 0]
    run.close("out", out, expected, k=9)
