"""Triton kernels that the compiler makes asynchronous: pipelined products, TMA, warps with parts of their own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.virtual import virtual_gpu


@triton.jit
def pipelined_matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None])
        acc = tl.dot(left, tl.load(b + (start + k)[:, None] * BN + n[None]), acc)
    tl.store(c + m[:, None] * BN + n[None], acc)


@triton.jit
def scaled_pipelined_matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The left side goes through registers, so that wgmma takes it from there."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None]) * 2
        acc = tl.dot(left, tl.load(b + (start + k)[:, None] * BN + n[None]), acc)
    tl.store(c + m[:, None] * BN + n[None], acc)


@triton.jit
def tma_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIAL: tl.constexpr):
    """Persistent over the tiles of the product."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=SPECIAL):
        row, column = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            acc = tl.dot(left.load([row, start]), right.load([start, column]), acc)
        out.store([row, column], acc.to(tl.float16))


@triton.jit
def tma_copy(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Tiles of x through shared memory to y, loads three ahead."""
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    for at in tl.range(0, N, BN, num_stages=3):
        target.store([tl.program_id(0) * BM, at], source.load([tl.program_id(0) * BM, at]) + 1)


def matmul(target, kernel=pipelined_matmul, stages=3, tile=(128, 64, 32), sanitize=True, warps=4):
    """Run a product; returns (result, float32 reference, launch)."""
    BM, BN, BK = tile
    M, N, K = 2 * BM, BN, 4 * BK
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    c = torch.empty(M, N)
    with virtual_gpu(target, sanitize=sanitize) as gpu:
        kernel[(2,)](a, b, c, K, BM=BM, BN=BN, BK=BK, num_stages=stages, num_warps=warps)
        return c, a.float() @ b.float() * (2 if kernel is scaled_pipelined_matmul else 1), gpu.last


def tma_product(target, stages=3, special=False, tile=(128, 64, 64), sanitize=True, warps=4, sizes=(256, 128, 256)):
    """The same of `tma_matmul` by two programs."""
    M, N, K = sizes
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    c = torch.empty(M, N, dtype=torch.float16)
    with virtual_gpu(target, sanitize=sanitize) as gpu:
        BM, BN, BK = tile
        tma_matmul[(2,)](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, SPECIAL=special, num_stages=stages, num_warps=warps)
        return c, a.float() @ b.float(), gpu.last


def copy(target, sanitize=True):
    """`tma_copy` of 32 x 256 numbers."""
    x = torch.randn(64, 256)
    y = torch.empty_like(x)
    with virtual_gpu(target, sanitize=sanitize) as gpu:
        tma_copy[(2,)](x, y, 64, 256, BM=32, BN=32, num_stages=3)
        return y, x + 1, gpu.last
