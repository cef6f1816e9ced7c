"""A layer of experts by the solutions of unit 10: right to float64, and the same bits in any order of programs."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from torch.nn.functional import silu

from gpu_utils import virtual_gpu
from gpu_utils.course.sources import load_solution


@triton.jit
def _gather_kernel(y_ptr, position_ptr, weights_ptr, out_ptr, k, D: tl.constexpr):
    """The way back: a program for each token adds up its k rows, in the order of its choices."""
    token, d = tl.program_id(0), tl.arange(0, D)
    total = tl.zeros([D], tl.float32)
    for j in range(0, k):
        y = tl.load(y_ptr + tl.load(position_ptr + token * k + j) * D + d)
        total += tl.load(weights_ptr + token * k + j) * y.to(tl.float32)
    tl.store(out_ptr + token * D + d, total)


def by_own_kernels(x, experts, weights, up, down):
    rows, _, offsets, position = load_solution("10.permute")(x, experts, len(up), 64)
    product = load_solution("10.grouped_gemm")
    y = product(silu(product(rows, up, offsets, 7)), down, offsets, 7)
    out = torch.empty(x.shape, dtype=torch.float32)
    _gather_kernel[(len(x),)](y, position, weights, out, experts.shape[1], D=x.shape[1])
    return out


def expert_by_expert(x, experts, weights, up, down):
    out = torch.zeros(x.shape, dtype=torch.float64)
    for e, (rise, fall) in enumerate(zip(up.double(), down.double(), strict=True)):
        token, choice = (experts == e).nonzero(as_tuple=True)
        y = silu(x[token].double() @ rise.T) @ fall.T
        out.index_add_(0, token, y * weights[token, choice, None].double())
    return out


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_layer_of_experts_by_own_kernels_is_the_loop_over_experts_and_has_the_same_bits_in_any_order(target):
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(45, 64, generator=drawn).half()
    up = torch.randn(6, 128, 64, generator=drawn).half() / 8
    down = torch.randn(6, 64, 128, generator=drawn).half() / 128**0.5
    scores = torch.rand(45, 6, generator=drawn)
    scores[:, 2] = 0  # an expert that nobody chose
    weights, experts = scores.topk(3)  # of two terms, any order gives the same sum
    found = []
    for order in ({}, {"order": "shuffled", "seed": 1}, {"order": "shuffled", "seed": 2}):
        with virtual_gpu(target, **order):
            found.append(by_own_kernels(x, experts, weights, up, down))
    exact = expert_by_expert(x, experts, weights, up, down)
    assert (found[0] - exact).abs().max() < 2e-3 * exact.abs().max()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
