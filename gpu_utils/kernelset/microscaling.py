"""Products of microscaled operands (MX): 8- and 4-bit floats with one power of two for each 32 elements along K."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case

BLOCK = 32
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
PLAIN = {"bf16": torch.bfloat16, "fp16": torch.float16}


@triton.jit
def scaled_matmul_kernel(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    c_ptr,
    M,
    N,
    K: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    A_PACK: tl.constexpr,
    B_PACK: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    a_k, b_k, block = tl.arange(0, BK // A_PACK), tl.arange(0, BK // B_PACK), tl.arange(0, BK // 32)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        a_at = m[:, None] * (K // A_PACK) + (start // A_PACK + a_k[None, :])
        b_at = (start // B_PACK + b_k[:, None]) * N + n[None, :]
        scales = start // 32 + block[None, :]
        a = tl.load(a_ptr + a_at, mask=m[:, None] < M, other=0)
        b = tl.load(b_ptr + b_at, mask=n[None, :] < N, other=0)
        if a_scale_ptr is None:
            a_scale = None
        else:
            a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + scales, mask=m[:, None] < M, other=127)
        if b_scale_ptr is None:
            b_scale = None
        else:
            b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + scales, mask=n[:, None] < N, other=127)
        acc = tl.dot_scaled(a, a_scale, A, b, b_scale, B, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def operand(run: Run, kind: str, rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """(codes (rows, k), scales (rows, k / 32) or None, values float64 (rows, k)); fp4 keeps two codes in a byte."""
    if kind in PLAIN:
        values = run.normal(rows, k, dtype=PLAIN[kind])
        return values, None, values.double()
    scales = run.integers(123, 131, rows, k // BLOCK, dtype=torch.uint8)
    power = torch.exp2(scales.double() - 127).repeat_interleave(BLOCK, dim=1)
    if kind == "e2m1":
        codes = run.integers(0, 16, rows, k, dtype=torch.uint8)
        values = FP4[(codes & 7).long()] * torch.where(codes > 7, -1.0, 1.0)
        return codes[:, ::2] | codes[:, 1::2] << 4, scales, values * power
    narrow = run.normal(rows, k).to(FP8[kind])
    return narrow.view(torch.uint8), scales, narrow.double() * power


def product(run: Run, first: str, second: str, tile: tuple[int, int, int]) -> None:
    """Launch `scaled_matmul_kernel` on A of one format and B of another, and state the product."""
    M, N, K = run.size(50, 128), run.size(41, 128), run.size(2, 4) * tile[2]
    a, a_scale, a_values = operand(run, first, M, K)
    b, b_scale, b_values = operand(run, second, N, K)
    c = torch.empty(M, N)
    run.launch(
        scaled_matmul_kernel,
        (triton.cdiv(M, tile[0]), triton.cdiv(N, tile[1])),
        a,
        a_scale,
        b.t().contiguous(),
        b_scale,
        c,
        M,
        N,
        K,
        A=first,
        B=second,
        A_PACK=K // a.shape[1],
        B_PACK=K // b.shape[1],
        BM=tile[0],
        BN=tile[1],
        BK=tile[2],
    )
    magnitude = (a_values.square().mean() * b_values.square().mean()).sqrt().item()
    run.close(f"{first} x {second}, tiles of {tile}", c, a_values @ b_values.t(), k=K, magnitude=magnitude)


TWO_SCALED = ("sm_90", "sm_100", "sm_120", "gfx950", "gfx1201")
WHY = (
    "gfx950, sm_100 and sm_120 have the instructions; sm_90 and gfx1201 stand for the targets "
    "whose operands Triton widens first; "
    "for gfx90a and gfx942 Triton 3.7.1 does not compile dot_scaled with two scaled operands"
)


@case(TWO_SCALED, WHY)
def matmul_mxfp8(run: Run) -> None:
    product(run, "e4m3", "e4m3", (32, 32, 64))
    product(run, "e5m2", "e4m3", (16, 16, 128))
    if "tcgen05" in run.matrix:
        product(run, "e4m3", "e5m2", (128, 64, 128))


@case(TWO_SCALED, WHY)
def matmul_mxfp4(run: Run) -> None:
    product(run, "e2m1", "e2m1", (32, 32, 128))
    product(run, "e2m1", "e2m1", (16, 16, 128))
    if "tcgen05" in run.matrix:
        product(run, "e2m1", "e2m1", (128, 64, 128))


@case(("gfx950",), "no other target has instructions that take operands of two widths")
def matmul_mxfp8_by_mxfp4(run: Run) -> None:
    product(run, "e4m3", "e2m1", (32, 32, 64))
    product(run, "e2m1", "e5m2", (16, 16, 128))


@case()
def matmul_weights_in_mxfp4(run: Run) -> None:
    product(run, "bf16", "e2m1", (32, 32, 64))


@case(("gfx942", "gfx950"), "the other targets widen FP8 by the instructions that the case above meets")
def matmul_weights_in_mxfp8(run: Run) -> None:
    product(run, "fp16", "e5m2", (32, 32, 64))
