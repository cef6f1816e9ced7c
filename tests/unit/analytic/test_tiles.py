"""Tile traffic against the bytes that the virtual GPU counts for a tiled product compiled by Triton."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from gpu_utils.analytic.tiles import tile_traffic
from gpu_utils.errors import BadArgument
from gpu_utils.virtual import virtual_gpu


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + m * N + n, total, mask=(m < M) & (n < N))


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1100"])
@pytest.mark.parametrize(
    ("M", "N", "K", "BM", "BN", "BK"),
    [(64, 128, 32, 64, 32, 16), (70, 50, 90, 32, 16, 32)],
)
def test_bytes_are_those_that_a_compiled_kernel_moves(target, M, N, K, BM, BN, BK):
    """num_warps=1: with more lanes than elements of a tile, several lanes would load the same element."""
    a, b, c = torch.randn(M, K).half(), torch.randn(K, N).half(), torch.zeros(M, N)
    ours = tile_traffic(M, N, K, BM, BN, BK, dtype_bytes=2, out_bytes=4)
    with virtual_gpu(target) as gpu:
        product_kernel[(-(-M // BM), -(-N // BN))](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, num_warps=1)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=2e-2, rtol=1e-2)
    totals = gpu.counters.totals()
    assert totals["blocks"] == ours.tiles
    assert totals["global_load_bytes"] == ours.read_a + ours.read_b
    assert totals["global_store_bytes"] == ours.written
    assert totals["matrix_flops"] >= ours.tile_flops or target == "gfx1100"


def test_a_cube_by_hand():
    found = tile_traffic(1024, 1024, 1024, 128, 128, dtype_bytes=2)
    assert (found.tiles, found.read_a, found.read_b, found.written) == (64, 8 * 2**21, 8 * 2**21, 2**21)
    assert found.flops == found.tile_flops == 2**31
    assert found.rereads == 17 / 3
    assert found.intensity == 2**31 / (17 * 2**21)


sizes = st.integers(1, 500)
blocks = st.sampled_from([16, 32, 64, 128])


@given(sizes, sizes, sizes, blocks, blocks, blocks)
def test_bytes_are_counted_tile_by_tile(M, N, K, BM, BN, BK):
    """The same count made the long way: every tile, its own rows and columns, nothing outside of the matrices."""
    read_a = sum(min(BM, M - m) * K for m in range(0, M, BM) for _ in range(0, N, BN))
    read_b = sum(min(BN, N - n) * K for n in range(0, N, BN) for _ in range(0, M, BM))
    found = tile_traffic(M, N, K, BM, BN, BK, dtype_bytes=1, out_bytes=4)
    assert (found.read_a, found.read_b, found.written) == (read_a, read_b, 4 * M * N)
    assert found.bytes >= found.least
    assert found.tile_flops >= found.flops
    assert found.bytes == tile_traffic(M, N, K, BM, BN, 2 * BK, 1, 4).bytes


def test_a_tile_as_large_as_the_matrix_reads_everything_once():
    assert tile_traffic(300, 200, 100, 512, 256).rereads == 1.0


def test_sizes_below_one_are_refused():
    with pytest.raises(BadArgument, match="block_n is 0; expected 1 or more"):
        tile_traffic(16, 16, 16, 16, 0)
