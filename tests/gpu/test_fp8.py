"""FP8 on the device: the lab's product and torch's own, what a long sum loses, and how the device makes it.

What is measured is written to benchmarks/results/fp8_<target>.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.analytic.narrow_sums import HOPPER, narrow_sums
from gpu_utils.chips import TARGETS, probe
from gpu_utils.course.sources import load_solution
from gpu_utils.exercises.u08_fp8.gemm import gemm_reference
from gpu_utils.grading.fp8 import E4M3
from gpu_utils.timing import Ratio, bench
from tests.conftest import needs_a_gpu
from tests.gpu.conftest import results

LENGTHS = (128, 256, 512, 1024, 2048, 4096)


@pytest.fixture(scope="module")
def fp8():
    """The device's E4M3."""
    needs_a_gpu()
    target = probe().target
    flavour = TARGETS[target].fp8 if target in TARGETS else "none"
    if flavour not in E4M3:
        pytest.skip(f"{target} has no FP8")
    return getattr(torch, f"float8_{E4M3[flavour]}")


@pytest.fixture(scope="module")
def report(fp8) -> Iterator[dict[str, Any]]:
    with results("fp8", format=str(fp8)) as written:
        yield written


def drawn(rows, K, fp8, positive=False):
    x = torch.rand(rows, K, device="cuda") if positive else torch.randn(rows, K, device="cuda")
    return x.to(fp8)


def scaled_operands(M, N, K, fp8):
    """Codes and scales as 08.gemm takes them: 1 x 128 of a, 128 x 128 of b."""
    tiles = -(-K // 128)
    scales = torch.rand(M, tiles, device="cuda") + 0.5, torch.rand(-(-N // 128), tiles, device="cuda") + 0.5
    return drawn(M, K, fp8), scales[0], drawn(N, K, fp8), scales[1]


def product_of_torch(a, a_scales, b, b_scales):
    """torch's product with the same scales; those of a lie column by column, as it wants them."""
    return torch._scaled_mm(a, b.T, a_scales.T.contiguous().T, b_scales.T, out_dtype=torch.bfloat16)


@pytest.mark.parametrize(("M", "N", "K"), [(256, 384, 1024), (70, 130, 300)])
def test_the_product_with_promotion_is_that_of_its_codes(fp8, M, N, K):
    operands = scaled_operands(M, N, K, fp8)
    got = load_solution("08.gemm")(*operands).double().cpu()
    a, a_scales, b, b_scales = (x.cpu() for x in operands)
    exact = gemm_reference(a, a_scales, b, b_scales)
    sizes = gemm_reference(a.float().abs(), a_scales, b.float().abs(), b_scales)
    # bfloat16 rounds once; within 128 places a sum may have as few as 13 fraction bits
    assert bool(((got - exact).abs() <= 2.0**-8 * exact.abs() + 2.0**-11 * sizes).all())


@pytest.mark.parametrize("fast", [True, False])
def test_the_product_of_torch_agrees(fp8, fast):
    K = 512
    a, b, one = drawn(256, K, fp8), drawn(256, K, fp8), torch.ones((), device="cuda")
    got = torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=fast)
    exact, sizes = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    assert bool(((got - exact).abs() <= 2.0**-9 * sizes).all())


def test_the_product_beside_torchs_with_the_same_scales(fp8, report):
    """The lab's kernel is timed beside torch's, which takes scales of 1 x 128 and 128 x 128 too."""
    ours, rows = load_solution("08.gemm"), {}
    for n in (1024, 4096):
        operands = scaled_operands(n, n, n, fp8)
        try:
            theirs = product_of_torch(*operands)
        except (RuntimeError, ValueError) as why:
            report["scaled_mm with the same scales"] = f"refused: {str(why).splitlines()[0][:200]}"
            pytest.skip(f"this torch has no such product here: {str(why).splitlines()[0]}")
        own = ours(*operands)
        sizes = theirs.float().abs().max()
        assert float((own.float() - theirs.float()).abs().max() / sizes) < 2.0**-7
        raced = bench(partial(ours, *operands), against=partial(product_of_torch, *operands), seconds=0.5)
        assert isinstance(raced, Ratio)
        rows[f"{n} x {n} x {n}"] = {
            "solution (us)": round(raced.fn.median * 1e6, 1),
            "torch._scaled_mm (us)": round(raced.against.median * 1e6, 1),
            "x torch": round(raced.ratio, 3),
            "quartiles of the ratio": [round(raced.low, 3), round(raced.high, 3)],
            "solution (TFLOP/s)": round(2 * n**3 / raced.fn.median / 1e12, 1),
            "torch._scaled_mm (TFLOP/s)": round(2 * n**3 / raced.against.median / 1e12, 1),
        }
    report["scaled_mm with the same scales"] = rows


def largest_error(got, exact):
    """In percent of the sum's root mean square, as in lesson 08."""
    return round(float(100 * (got.double() - exact).abs().max() / exact.square().mean().sqrt()), 4)


def test_what_a_long_sum_loses_and_promotion_keeps_it_small(fp8, report):
    """The accumulator experiment of lesson 08, with factors from 0 to 1 and of a bell curve."""
    one = torch.ones((), device="cuda")
    found: dict[str, dict[str, float]] = {}
    for kind, positive in {"0 to 1": True, "bell curve": False}.items():
        for K in LENGTHS:
            a, b = drawn(512, K, fp8, positive), drawn(512, K, fp8, positive)
            exact, tiles = a.double() @ b.double().T, K // 128
            scales = torch.ones(512, tiles, device="cuda"), torch.ones(4, tiles, device="cuda")
            ways = {
                f"torch._scaled_mm, fast={fast}": torch._scaled_mm(
                    a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=fast
                )
                for fast in (True, False)
            }
            ways["08.gemm, promoted every 128, bfloat16"] = load_solution("08.gemm")(a, scales[0], b, scales[1])
            for way, got in ways.items():
                found.setdefault(f"{kind}: {way}", {})[f"K = {K}"] = largest_error(got, exact)
    print(probe(), *found.items(), sep="\n")
    report["largest error, % of the typical sum"] = found
    promoted = found["0 to 1: 08.gemm, promoted every 128, bfloat16"]
    assert max(promoted.values()) < 100 * (2.0**-8 + 2.0**-9)
    exactest, fastest = (found[f"0 to 1: torch._scaled_mm, fast={fast}"]["K = 4096"] for fast in (False, True))
    assert exactest <= fastest


@triton.jit
def sums_kernel(a_ptr, b_ptr, c_ptr, K: tl.constexpr, EVERY: tl.constexpr):
    """One program: c (64, 64) = a (64, K) b (64, K).T, its sums left to the matrix unit for EVERY places or all."""
    i, j = tl.arange(0, 64), tl.arange(0, 64)
    total = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, 128):
        k = start + tl.arange(0, 128)
        a = tl.load(a_ptr + i[:, None] * K + k[None, :])
        b = tl.load(b_ptr + j[None, :] * K + k[:, None])
        total = tl.dot(a, b, total, max_num_imprecise_acc=EVERY)
    tl.store(c_ptr + i[:, None] * 64 + j[None, :], total)


@pytest.mark.parametrize("promoted_every", [None, 128])
@pytest.mark.parametrize("positive", [True, False])
def test_the_sums_of_hopper_are_those_of_the_model_bit_for_bit(fp8, report, positive, promoted_every):
    """The model of `gpu_utils.analytic.narrow_sums`, which lesson 08 computes with, against wgmma."""
    if probe().target != "sm_90":
        pytest.skip("the model is that of Hopper's FP8 instructions")
    K = 2048
    a, b = drawn(64, K, fp8, positive), drawn(64, K, fp8, positive)
    c = torch.empty(64, 64, device="cuda")
    compiled = sums_kernel[(1,)](a, b, c, K=K, EVERY=promoted_every)
    assert "wgmma" in compiled.asm["ptx"]
    left = np.repeat(a.double().cpu().numpy(), 64, axis=0)
    right = np.tile(b.double().cpu().numpy(), (64, 1))
    got = c.double().cpu().numpy().flatten()
    same = {}
    for digits in (HOPPER - 1, HOPPER, HOPPER + 1, 23):
        *_, (_, sums) = narrow_sums(left, right, digits=digits, promoted_every=promoted_every)
        same[digits] = int((sums.astype(np.float32) == got.astype(np.float32)).sum())
    name = f"{'0 to 1' if positive else 'bell curve'}, K = {K}, promoted every {promoted_every}"
    report.setdefault("sums equal to the model's bits, of 4096, by digits", {})[name] = same
    print(name, same)
    assert same[HOPPER] == got.size
