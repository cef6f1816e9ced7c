"""FP8 on the device: the lab's product and torch's own, and what a sum of 4,096 products loses."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.chips import TARGETS, probe
from gpu_utils.course.sources import load_solution
from gpu_utils.exercises.u08_fp8.gemm import gemm_reference
from gpu_utils.grading.fp8 import E4M3


@pytest.fixture
def fp8():
    """The device's E4M3."""
    target = probe().target
    flavour = TARGETS[target].fp8 if target in TARGETS else "none"
    if flavour not in E4M3:
        pytest.skip(f"{target} has no FP8")
    return getattr(torch, f"float8_{E4M3[flavour]}")


def drawn(rows, K, fp8, positive=False):
    x = torch.rand(rows, K, device="cuda") if positive else torch.randn(rows, K, device="cuda")
    return x.to(fp8)


@pytest.mark.parametrize(("M", "N", "K"), [(256, 384, 1024), (70, 130, 300)])
def test_the_product_with_promotion_is_that_of_its_codes(fp8, M, N, K):
    a, b = drawn(M, K, fp8), drawn(N, K, fp8)
    tiles = -(-K // 128)
    scales = torch.rand(M, tiles, device="cuda") + 0.5, torch.rand(-(-N // 128), tiles, device="cuda") + 0.5
    got = load_solution("08.gemm")(a, scales[0], b, scales[1]).double().cpu()
    given = [x.cpu() for x in (a, scales[0], b, scales[1])]
    exact = gemm_reference(*given)
    sizes = gemm_reference(given[0].float().abs(), given[1], given[2].float().abs(), given[3])
    # bfloat16 rounds once; within 128 places a sum may have as few as 13 fraction bits
    assert bool(((got - exact).abs() <= 2.0**-8 * exact.abs() + 2.0**-11 * sizes).all())


@pytest.mark.parametrize("fast", [True, False])
def test_the_product_of_torch_agrees(fp8, fast):
    K = 512
    a, b, one = drawn(256, K, fp8), drawn(256, K, fp8), torch.ones((), device="cuda")
    got = torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=fast)
    exact, sizes = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    assert bool(((got - exact).abs() <= 2.0**-9 * sizes).all())


def test_what_a_long_sum_loses_is_shown_and_promotion_keeps_it_small(fp8):
    """The accumulator experiment of lesson 08; the figures are printed with the device (pytest -s)."""
    K = 4096
    a, b, one = drawn(512, K, fp8, positive=True), drawn(512, K, fp8, positive=True), torch.ones((), device="cuda")
    exact = a.double() @ b.double().T
    tiles = K // 128
    promoted = load_solution("08.gemm")(
        a, torch.ones(512, tiles, device="cuda"), b, torch.ones(4, tiles, device="cuda")
    ).double()
    lost = {"promoted every 128, in bfloat16": float(((promoted - exact) / exact).abs().max())}
    for fast in (True, False):
        got = torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=fast)
        lost[f"torch._scaled_mm, fast={fast}"] = float(((got - exact) / exact).abs().max())
    print(probe(), lost, sep="\n")
    assert lost["promoted every 128, in bfloat16"] < 2.0**-8 + 2.0**-9
    assert lost["torch._scaled_mm, fast=False"] <= lost["torch._scaled_mm, fast=True"]
