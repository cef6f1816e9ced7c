"""Matrix products: every input type of a target, and the ways programs share the work."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ACC: tl.constexpr,
    PRECISION: tl.constexpr = None,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b_at = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, K, BK):
        a = tl.load(a_at, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        b = tl.load(b_at, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACC)
        a_at += BK * stride_ak
        b_at += BK * stride_bk
    c_at = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def product(
    run: Run,
    name: str,
    dtype: torch.dtype,
    out: torch.dtype,
    acc: tl.dtype,
    tile: tuple[int, int, int],
    precision: str | None = None,
    transposed: bool = False,
    accumulator: torch.dtype | None = None,
    magnitude: float = 1.0,
    warps: int = 4,
) -> None:
    """Launch `matmul_kernel` on odd sizes and state the product."""
    M, N, K = run.size(67, 130), run.size(50, 200), run.size(75, 150)
    if dtype == torch.int8:
        a, b = run.integers(-128, 128, M, K, dtype=dtype), run.integers(-128, 128, K, N, dtype=dtype)
    else:
        a, b = run.normal(M, K).to(dtype), run.normal(K, N).to(dtype)
    if transposed:
        b = b.t().contiguous().t()
    c = torch.empty(M, N, dtype=out)
    grid = (triton.cdiv(M, tile[0]), triton.cdiv(N, tile[1]))
    args = (a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    meta = {"BM": tile[0], "BN": tile[1], "BK": tile[2], "ACC": acc, "PRECISION": precision, "num_warps": warps}
    run.launch(matmul_kernel, grid, *args, **meta)
    if dtype == torch.int8:
        run.equal(name, c, (a.long() @ b.long()).to(out))
    else:
        run.close(name, c, a.double() @ b.double(), k=K, magnitude=magnitude, accumulator=accumulator)


@case()
def matmul_fp16(run: Run) -> None:
    product(run, "fp16", torch.float16, torch.float16, tl.float32, (32, 64, 32))
    product(run, "fp16, b transposed", torch.float16, torch.float32, tl.float32, (64, 32, 32), transposed=True)


@case()
def matmul_bf16(run: Run) -> None:
    product(run, "bf16", torch.bfloat16, torch.float32, tl.float32, (64, 64, 32))
    if "tcgen05" in run.matrix:
        product(run, "128 x 64 tiles, 8 warps", torch.bfloat16, torch.float32, tl.float32, (128, 64, 32), warps=8)


@case()
def matmul_fp32_default_precision(run: Run) -> None:
    # by default `tl.dot` rounds float32 to 11 significant bits where the target has such a format (tf32, xf32)
    rounded = not {"tf32", "xf32"}.isdisjoint(run.inputs)
    accumulator = torch.float16 if rounded else None
    product(
        run, "default", torch.float32, torch.float32, tl.float32, (32, 32, 32), accumulator=accumulator, magnitude=4.0
    )


@case()
def matmul_fp32_ieee(run: Run) -> None:
    product(run, "ieee", torch.float32, torch.float32, tl.float32, (32, 32, 16), "ieee", magnitude=4.0)


@case()
def matmul_fp16_accumulator(run: Run) -> None:
    product(
        run,
        "fp16 sums",
        torch.float16,
        torch.float16,
        tl.float16,
        (32, 32, 32),
        transposed=True,
        accumulator=torch.float16,
    )


@case()
def matmul_int8(run: Run) -> None:
    product(run, "int8", torch.int8, torch.int32, tl.int32, (32, 64, 64))


@case()
def matmul_fp8(run: Run) -> None:
    for dtype in run.fp8:
        product(run, str(dtype), dtype, torch.float32, tl.float32, (32, 64, 64), magnitude=2.0)
    if "tcgen05" in run.matrix:
        product(run, "fp8, 128 x 64", run.fp8[0], torch.float32, tl.float32, (128, 64, 64), magnitude=2.0)


@case()
def matmul_one_warp(run: Run) -> None:
    product(run, "16 x 16 tiles", torch.float16, torch.float32, tl.float32, (16, 16, 32), warps=1)


@triton.jit
def grouped_matmul_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    width = GROUP * tiles_n
    first = pid // width * GROUP
    height = min(tiles_m - first, GROUP)
    m = (first + pid % width % height) * BM + tl.arange(0, BM)
    n = (pid % width // height) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] % M * K + start + k[None, :], mask=start + k[None, :] < K, other=0.0)
        b = tl.load(b_ptr + (start + k[:, None]) * N + n[None, :] % N, mask=start + k[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc)
    acc += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    acc = tl.where(acc > 0, acc, 0.01 * acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@case()
def matmul_grouped_order_with_epilogue(run: Run) -> None:
    M, N, K = run.size(100, 256), run.size(72, 256), run.size(40, 128)
    a, b = run.normal(M, K, dtype=torch.float16), run.normal(K, N, dtype=torch.float16)
    bias, c = run.normal(N), torch.empty(M, N, dtype=torch.float16)
    grid = (triton.cdiv(M, 32) * triton.cdiv(N, 32),)
    run.launch(grouped_matmul_kernel, grid, a, b, bias, c, M, N, K, BM=32, BN=32, BK=32, GROUP=3, num_stages=3)
    expected = torch.nn.functional.leaky_relu(a.double() @ b.double() + bias.double(), 0.01)
    run.close("c", c, expected, k=K)


@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK * SPLIT):
        a = tl.load(
            a_ptr + m[:, None] * K + start + k[None, :], mask=(m[:, None] < M) & (start + k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + (start + k[:, None]) * N + n[None, :], mask=(start + k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc = tl.dot(a, b, acc)
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N), sem="relaxed")


@case()
def matmul_split_k_with_atomics(run: Run) -> None:
    M, N, K = run.size(30, 128), run.size(45, 128), run.size(200, 512)
    a, b = run.normal(M, K, dtype=torch.bfloat16), run.normal(K, N, dtype=torch.bfloat16)
    c = torch.zeros(M, N)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32), 4)
    run.launch(split_k_kernel, grid, a, b, c, M, N, K, BM=32, BN=32, BK=32, SPLIT=4)
    run.close("c", c, a.double() @ b.double(), k=K)


@triton.jit
def persistent_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
        m = tile // tiles_n * BM + tl.arange(0, BM)
        n = tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@case()
def matmul_persistent(run: Run) -> None:
    M, N, K = run.size(90, 256), run.size(70, 256), run.size(50, 64)
    a, b = run.normal(M, K, dtype=torch.float16), run.normal(K, N, dtype=torch.float16)
    c = torch.empty(M, N, dtype=torch.float16)
    run.launch(persistent_kernel, (run.size(4, 16),), a, b, c, M, N, K, BM=32, BN=32, BK=32)
    run.close("c", c, a.double() @ b.double(), k=K)


@triton.jit
def batched_kernel(a_ptr, b_ptr, c_ptr, B: tl.constexpr, S: tl.constexpr):
    at = tl.program_id(0) * B * S * S
    at += tl.arange(0, B)[:, None, None] * S * S + tl.arange(0, S)[None, :, None] * S + tl.arange(0, S)[None, None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@case()
def matmul_batched_in_three_dimensions(run: Run) -> None:
    groups = run.size(2, 20)
    a, b = run.normal(groups * 2, 32, 32, dtype=torch.float16), run.normal(groups * 2, 32, 32, dtype=torch.float16)
    c = torch.empty(groups * 2, 32, 32)
    run.launch(batched_kernel, (groups,), a, b, c, B=2, S=32)
    run.close("c", c, a.double() @ b.double(), k=32, magnitude=2.0)


@triton.jit
def dequantise_kernel(a_ptr, q_ptr, scale_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        packed = tl.load(q_ptr + (k[:, None] // 2) * N + n[None, :])
        nibble = (packed >> (4 * (k[:, None] % 2))) & 15
        acc = tl.dot(a, (nibble.to(tl.float16) - 8.0).to(tl.float16), acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc * tl.load(scale_ptr + n)[None, :])


@case()
def matmul_with_weights_of_four_bits(run: Run) -> None:
    K, N = run.size(64, 256), run.size(64, 512)
    a, q = run.normal(16, K, dtype=torch.float16), run.integers(0, 256, K // 2, N, dtype=torch.uint8)
    scale, c = run.uniform(0.5, 2.0, N), torch.empty(16, N)
    run.launch(dequantise_kernel, (N // 32,), a, q, scale, c, N, K, BM=16, BN=32, BK=32)
    weights = torch.stack([q & 15, q >> 4], 1).reshape(K, N).double() - 8
    run.close("c", c, a.double() @ weights * scale.double(), k=K, magnitude=16.0)
