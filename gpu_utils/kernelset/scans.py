"""Kernels that move data between lanes: scans, sorts, histograms, gathers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case


@triton.jit
def scan_kernel(x_ptr, sum_ptr, product_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    at = tl.program_id(0) * ROWS * COLS + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(sum_ptr + at, tl.cumsum(x, axis=0))
    tl.store(product_ptr + at, tl.cumprod(x, axis=1))


@case()
def cumsum_and_cumprod(run: Run) -> None:
    programs = run.size(2, 40)
    x = 1 + 0.1 * run.normal(programs, 64, 16)
    sums, products = torch.empty_like(x), torch.empty_like(x)
    run.launch(scan_kernel, (programs,), x, sums, products, ROWS=64, COLS=16)
    run.close("sums", sums, x.double().cumsum(1), k=64, magnitude=8.0)
    run.close("products", products, x.double().cumprod(2), k=16)
    whole = run.integers(-1000, 1000, programs, 64, 16, dtype=torch.int64)
    sums, products = torch.empty_like(whole), torch.empty_like(whole)
    run.launch(scan_kernel, (programs,), whole, sums, products, ROWS=64, COLS=16)
    run.equal("integer sums", sums, whole.cumsum(1))
    run.equal("integer products wrap", products, whole.cumprod(2))


@triton.jit
def recurrence(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@triton.jit
def linear_recurrence_kernel(decay_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pair = (tl.load(decay_ptr + at), tl.load(x_ptr + at))
    _, h = tl.associative_scan(pair, 0, recurrence, reverse=REVERSE)
    tl.store(out_ptr + at, h)


@case()
def linear_recurrence_by_associative_scan(run: Run) -> None:
    programs, block = run.size(2, 40), 256
    decay, x = run.uniform(0.5, 1.0, programs, block), run.normal(programs, block)
    for reverse in (False, True):
        out = torch.empty_like(x)
        run.launch(linear_recurrence_kernel, (programs,), decay, x, out, BLOCK=block, REVERSE=reverse)
        h, expected = torch.zeros(programs, dtype=torch.float64), torch.empty(programs, block, dtype=torch.float64)
        for t in reversed(range(block)) if reverse else range(block):
            h = h * decay[:, t].double() + x[:, t].double()
            expected[:, t] = h
        run.close(f"h, reverse={reverse}", out, expected, k=16, magnitude=2.0)


@triton.jit
def sort_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.sort(tl.load(x_ptr + at), descending=DESCENDING))


@case()
def sort_both_ways(run: Run) -> None:
    programs, block = run.size(3, 6), 128
    x = run.normal(programs, block)
    out = torch.empty_like(x)
    run.launch(sort_kernel, (programs,), x, out, BLOCK=block, DESCENDING=False)
    run.equal("ascending", out, x.sort(1).values)
    whole = run.integers(-(2**31), 2**31, programs, block)
    out = torch.empty_like(whole)
    run.launch(sort_kernel, (programs,), whole, out, BLOCK=block, DESCENDING=True)
    run.equal("descending", out, whole.sort(1, descending=True).values)


@triton.jit
def top_k_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr, K: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0) * K + tl.arange(0, K), tl.topk(tl.load(x_ptr + at), K))


@case()
def top_k(run: Run) -> None:
    programs = run.size(3, 8)
    x = run.normal(programs, 128)
    out = torch.empty(programs, 8)
    run.launch(top_k_kernel, (programs,), x, out, BLOCK=128, K=8)
    run.equal("largest", out, x.topk(8, 1).values)


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x_ptr + at, mask=at < n, other=0), BINS, mask=at < n)
    tl.atomic_add(out_ptr + tl.arange(0, BINS), counts)


@case()
def histogram(run: Run) -> None:
    n, bins = run.size(700, 20_000), 32
    x = run.integers(0, bins, n)
    out = torch.zeros(bins, dtype=torch.int32)
    run.launch(histogram_kernel, (triton.cdiv(n, 512),), x, out, n, BLOCK=512, BINS=bins)
    run.equal("counts", out, torch.bincount(x, minlength=bins).int())


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, table_ptr, picked_ptr, width, ROWS: tl.constexpr, COLS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    index = tl.load(index_ptr + at)
    tl.store(out_ptr + at, tl.gather(tl.load(x_ptr + at), index, axis=0))
    row = tl.load(index_ptr + tl.program_id(0))
    c = tl.arange(0, 64)
    tl.store(
        picked_ptr + tl.program_id(0) * width + c, tl.load(table_ptr + row * width + c, mask=c < width), mask=c < width
    )


@case()
def gather_in_a_tile_and_from_a_table(run: Run) -> None:
    programs, width = run.size(5, 100), 50
    x, index = run.normal(32, 16), run.integers(0, 32, 32, 16)
    table, out, picked = run.normal(32, width), torch.empty(32, 16), torch.empty(programs, width)
    run.launch(gather_kernel, (programs,), x, index, out, table, picked, width, ROWS=32, COLS=16)
    run.equal("within the tile", out, x.gather(0, index.long()))
    run.equal("rows of the table", picked, table[index.flatten()[:programs].long()])


@triton.jit
def xor_merge(a, b):
    return a ^ b


@triton.jit
def reductions_kernel(x_ptr, out_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :])
    c = tl.arange(0, COLS)
    r = tl.arange(0, ROWS)
    tl.store(out_ptr + c, tl.sum(x, axis=0))
    tl.store(out_ptr + COLS + c, tl.max(x, axis=0))
    tl.store(out_ptr + 2 * COLS + c, tl.reduce(x, 0, xor_merge))
    tl.store(out_ptr + 3 * COLS + r, tl.min(x, axis=1))
    tl.store(out_ptr + 3 * COLS + ROWS + r, tl.xor_sum(x, axis=1))
    tl.store(out_ptr + 3 * COLS + 2 * ROWS, tl.sum(tl.sum(x, axis=1), axis=0))


@case()
def integer_reductions_along_both_axes(run: Run) -> None:
    for dtype in (torch.int32, torch.int64):
        info = torch.iinfo(torch.int32)
        x = run.integers(info.min, info.max, 32, 64, dtype=dtype)
        out = torch.zeros(3 * 64 + 2 * 32 + 1, dtype=dtype)
        run.launch(reductions_kernel, (1,), x, out, ROWS=32, COLS=64)

        def xor(values: torch.Tensor, axis: int) -> torch.Tensor:
            total = values.select(axis, 0)
            for i in range(1, values.shape[axis]):
                total = total ^ values.select(axis, i)
            return total

        parts = [x.sum(0), x.max(0).values, xor(x, 0), x.min(1).values, xor(x, 1), x.sum().reshape(1)]
        run.equal(str(dtype), out, torch.cat([part.to(dtype) for part in parts]))
