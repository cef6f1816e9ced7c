"""Barriers and waits struck out of the text that Triton compiled: a launch of the rest raises, one of it all does not.

All of a pattern are struck out at once, and what is left goes through `gpu.launch`, as a reader would try it.
"""

import re

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import BarrierDeadlock, LateData, Race
from gpu_utils.virtual import virtual_gpu

NVIDIA = {"bar.sync": r"bar\.sync[^;]*;", "wait_group": r"cp\.async\.wait_group[^;]*;"}
HOPPER = {
    "bar.sync": r"bar\.sync[^;]*;",
    "wgmma.wait_group": r"wgmma\.wait_group[^;]*;",
    "wgmma.fence": r"wgmma\.fence[^;]*;",
}
AMD = {"s_barrier": r"^\s*s_barrier.*$", "s_waitcnt": r"^\s*s_waitcnt.*$"}
GFX12 = {"s_barrier": r"^\s*s_barrier.*$", "s_wait": r"^\s*s_wait_(?!alu).*$"}
PATTERNS = {
    "sm_80": {**NVIDIA, "commit_group": r"cp\.async\.commit_group[^;]*;"},
    "sm_90": {**HOPPER, "wait_group": r"cp\.async\.wait_group[^;]*;"},
    "sm_100": NVIDIA,
    "gfx942": AMD,
    "gfx1100": AMD,
    "gfx1201": GFX12,
}
"""Target -> what is struck out, by name."""


@triton.jit
def product_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (i + k)[None])
        acc = tl.dot(left, tl.load(b + (i + k)[:, None] * BN + n[None]), acc)
    tl.store(c + m[:, None] * BN + n[None], acc)


@triton.jit
def row_sum_kernel(x, o, N: tl.constexpr):
    tl.store(o + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * N + tl.arange(0, N)), 0))


def row_sum():
    x, out = torch.randn(8, 1024), torch.empty(8)
    row_sum_kernel[(8,)](x, out, N=1024)
    return x.sum(1), out, [("x", "*fp32", x), ("o", "*fp32", out)]


def product():
    k = 128
    a, b, out = torch.randn(128, k).half(), torch.randn(k, 64).half(), torch.empty(128, 64)
    product_kernel[(1,)](a, b, out, k, BM=128, BN=64, BK=32)
    values = [("a", "*fp16", a), ("b", "*fp16", b), ("c", "*fp32", out), ("K", "i32", k)]
    return a.float() @ b.float(), out, values


@pytest.mark.parametrize("target", PATTERNS)
@pytest.mark.parametrize("kernel", [row_sum, product])
def test_what_is_struck_out_is_missed(kernel, target):
    torch.manual_seed(0)
    with virtual_gpu(target, sanitize=True) as gpu:
        expected, out, values = kernel()
        torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)
        launch = gpu.last

        def again(text):
            metadata = launch.metadata
            gpu.launch(text, launch.name, launch.grid, launch.block, values, metadata.shared, metadata)

        again(launch.text)
        struck = 0
        for pattern in PATTERNS[target].values():
            text, count = re.subn(pattern, "", launch.text, flags=re.MULTILINE)
            if count:
                struck += 1
                with pytest.raises((Race, LateData, BarrierDeadlock)):
                    again(text)
        assert struck
