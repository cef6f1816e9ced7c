"""Kernels without communication: copies of every type, strides, activations, dropout."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case

DTYPES = (
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@case()
def vector_add(run: Run) -> None:
    n = run.size(1003, 300_001)
    x, y = run.normal(n), run.normal(n)
    out = torch.full((n + 5,), -7.0)
    run.launch(vector_add_kernel, (triton.cdiv(n, 1024),), x, y, out, n, BLOCK=1024)
    run.equal("sum", out, torch.cat([(x + y), torch.full((5,), -7.0)]))


@triton.jit
def masked_copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets, mask=offsets < n, other=1)
    tl.store(out_ptr + offsets, value, mask=offsets < n + 3)


@case()
def masked_copy_of_every_type(run: Run) -> None:
    n = run.size(517, 20_003)
    for dtype in DTYPES:
        if dtype.is_floating_point:
            x = run.normal(n, dtype=dtype)
        else:
            x = run.integers(0, 2, n, dtype=dtype) if dtype == torch.bool else run.integers(-128, 128, n, dtype=dtype)
        out = torch.zeros(n + 8, dtype=dtype)
        run.launch(masked_copy_kernel, (triton.cdiv(n + 3, 512),), x, out, n, BLOCK=512, num_warps=2)
        expected = torch.cat([x, torch.ones(3, dtype=dtype), torch.zeros(5, dtype=dtype)])
        run.equal(str(dtype), out, expected)


@triton.jit
def strided_copy_kernel(
    x_ptr, out_ptr, rows, cols, stride_xm, stride_xn, stride_om, stride_on, BM: tl.constexpr, BN: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (m[:, None] < rows) & (n[None, :] < cols)
    x = tl.load(x_ptr + m[:, None] * stride_xm + n[None, :] * stride_xn, mask=mask, cache_modifier=".cg")
    tl.store(out_ptr + m[:, None] * stride_om + n[None, :] * stride_on, x, mask=mask, eviction_policy="evict_first")


@case()
def strided_copy(run: Run) -> None:
    rows, cols = run.size(37, 300), run.size(71, 517)
    x = run.normal(cols, 2 * rows, dtype=torch.float16).t()[::2]
    out = torch.zeros(rows, cols + 9, dtype=torch.float16)[:, 3 : cols + 3]
    grid = (triton.cdiv(rows, 32), triton.cdiv(cols, 64))
    run.launch(strided_copy_kernel, grid, x, out, rows, cols, *x.stride(), *out.stride(), BM=32, BN=64)
    run.equal("copy", out, x)


@triton.jit
def broadcast_kernel(x_ptr, row_ptr, col_ptr, out_ptr, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    mask = (m[:, None] < rows) & (n[None, :] < cols)
    x = tl.load(x_ptr + m[:, None] * cols + n[None, :], mask=mask, other=0.0)
    row = tl.load(row_ptr + n, mask=n < cols, other=0.0)
    col = tl.load(col_ptr + m, mask=m < rows, other=0.0)
    tl.store(out_ptr + m[:, None] * cols + n[None, :], x * row[None, :] + col[:, None], mask=mask)


@case()
def broadcast_scale_and_shift(run: Run) -> None:
    rows, cols = run.size(13, 700), 100
    x, row, col = run.normal(rows, cols), run.normal(cols), run.normal(rows)
    out = torch.empty_like(x)
    run.launch(broadcast_kernel, (triton.cdiv(rows, 16),), x, row, col, out, rows, cols, BM=16, BN=128)
    run.close("out", out, x.double() * row.double() + col.double()[:, None])


@triton.jit
def where_kernel(x_ptr, y_ptr, out_ptr, flag_ptr, n, low, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    y = tl.load(y_ptr + i, mask=mask, other=0.0)
    above = (x > y) & (x > low)
    odd = (i % 2 == 1) ^ (y == 0.0)
    tl.store(out_ptr + i, tl.where(above | odd, tl.maximum(x, y), -tl.abs(x)), mask=mask)
    tl.store(flag_ptr + i, above, mask=mask)


@case()
def where_and_logic(run: Run) -> None:
    n = run.size(777, 100_003)
    x, y = run.normal(n), run.normal(n).relu()
    x[:4] = torch.tensor([-0.0, math.inf, -math.inf, math.nan])
    out, flag = torch.empty_like(x), torch.empty(n, dtype=torch.bool)
    run.launch(where_kernel, (triton.cdiv(n, 256),), x, y, out, flag, n, 0.25, BLOCK=256)
    above = (x > y) & (x > 0.25)
    odd = (torch.arange(n) % 2 == 1) ^ (y == 0)
    run.equal("flag", flag, above)
    run.equal("out", out, torch.where(above | odd, torch.fmax(x, y), -x.abs()))


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + i, y.to(out_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def gelu_backward_kernel(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < n).to(tl.float32)
    phi = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    dx = dy * (phi + x * tl.exp(-0.5 * x * x) * 0.3989422804014327)
    tl.store(dx_ptr + i, dx.to(dx_ptr.dtype.element_ty), mask=i < n)


@case()
def gelu_forward_and_backward(run: Run) -> None:
    n = run.size(901, 60_001)
    for dtype in (torch.float32, torch.bfloat16):
        x, dy = run.normal(n, dtype=dtype), run.normal(n, dtype=dtype)
        out, dx = torch.empty_like(x), torch.empty_like(x)
        grid = (triton.cdiv(n, 512),)
        run.launch(gelu_kernel, grid, x, out, n, BLOCK=512)
        run.launch(gelu_backward_kernel, grid, x, dy, dx, n, BLOCK=512)
        wide = x.double().requires_grad_()
        expected = torch.nn.functional.gelu(wide)
        expected.backward(dy.double())
        run.close(f"gelu {dtype}", out, expected.detach(), k=4)
        run.close(f"gelu backward {dtype}", dx, wide.grad, k=16)


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=i < n)


@case()
def swiglu(run: Run) -> None:
    n = run.size(650, 80_001)
    gate, up = run.normal(n, dtype=torch.float16), run.normal(n, dtype=torch.float16)
    out = torch.empty_like(gate)
    run.launch(swiglu_kernel, (triton.cdiv(n, 512),), gate, up, out, n, BLOCK=512)
    run.close("out", out, torch.nn.functional.silu(gate.double()) * up.double(), k=4)


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    keep = tl.rand(seed, i) > p
    tl.store(out_ptr + i, tl.where(keep, x / (1 - p), 0.0), mask=i < n)


@triton.jit
def random_bits_kernel(out_ptr, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(out_ptr + 4 * i, a)
    tl.store(out_ptr + 4 * i + 1, b)
    tl.store(out_ptr + 4 * i + 2, c)
    tl.store(out_ptr + 4 * i + 3, d)


_ROUND, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def philox(seed: int, counters: torch.Tensor) -> torch.Tensor:
    """Philox 4x32-10 ("Parallel random numbers: as easy as 1, 2, 3", 2011).

    counters: (n,) int64 below 2**32. Returns (n, 4) int64 words below 2**32.
    """
    words = [counters, *(torch.zeros_like(counters) for _ in range(3))]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]

    def product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = a * (b & 0xFFFF), a * (b >> 16)
        total = (high & 0xFFFF) * 65536 + low
        return (high >> 16) + (total >> 32), total & 0xFFFFFFFF

    for _ in range(10):
        high0, low0 = product(_ROUND[0], words[0])
        high1, low1 = product(_ROUND[1], words[2])
        words = [high1 ^ words[1] ^ key[0], low1, high0 ^ words[3] ^ key[1], low0]
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, _WEYL, strict=True)]
    return torch.stack(words, 1)


@case()
def dropout_with_philox(run: Run) -> None:
    n, seed = run.size(900, 30_000), 0x1234567
    x = run.normal(n)
    out, mirrored = torch.empty_like(x), torch.empty_like(x)
    bits = torch.empty(1024, dtype=torch.int32)
    grid = (triton.cdiv(n, 512),)
    run.launch(random_bits_kernel, (1,), bits, seed, BLOCK=256)
    run.launch(dropout_kernel, grid, x, out, n, 0.25, seed, BLOCK=512)
    run.launch(dropout_kernel, grid, out, mirrored, n, 0.25, seed, BLOCK=512)
    run.equal("bits", bits.long() & 0xFFFFFFFF, philox(seed, torch.arange(256)).flatten())
    word = philox(seed, torch.arange(n))[:, 0]
    signed = torch.where(word >= 2**31, word - 2**32, word)
    uniform = torch.where(signed < 0, -signed - 1, signed).double() * 4.6566127342e-10
    keep = uniform > 0.25
    run.equal("kept", (out != 0), keep & (x != 0))
    run.close("out", out, torch.where(keep, x.double() / 0.75, 0.0))
    run.close(
        "the same mask again, as the backward pass needs it",
        mirrored,
        torch.where(keep, x.double() / 0.75**2, 0.0),
        k=2,
    )


@triton.jit
def normal_kernel(out_ptr, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.randn(seed, i))


@case()
def normal_random_numbers(run: Run) -> None:
    n, seed = run.size(512, 8192), 99
    out = torch.empty(n)
    run.launch(normal_kernel, (n // 256,), out, seed, BLOCK=256)
    words = philox(seed, torch.arange(n))[:, :2]
    signed = torch.where(words >= 2**31, words - 2**32, words)
    u1, u2 = (torch.where(signed < 0, -signed - 1, signed).double() * 4.6566127342e-10).unbind(1)
    expected = torch.sqrt(-2.0 * torch.log(u1.clamp_min(1e-7))) * torch.cos(2 * math.pi * u2)
    run.close("normal", out, expected, k=64, magnitude=4.0)
