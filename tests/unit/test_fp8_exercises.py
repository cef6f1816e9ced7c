"""Exercises whose numbers are in the FP8 of the chip that runs them."""

from __future__ import annotations

import math

import pytest
import torch

from gpu_utils import exercises, virtual_gpu
from gpu_utils.course.sources import load_solution
from gpu_utils.exercises.u08_fp8.gemm import gemm_reference
from gpu_utils.exercises.u08_fp8.shared import quantized, spread
from gpu_utils.formats import FORMATS
from gpu_utils.grading.check import check
from gpu_utils.grading.jobs import make_jobs

IN_FP8 = [exercise for exercise in exercises.of_unit("08") if exercise.fp8]
U = 2.0**-4
"""Half a step of E4M3, as a share of the value: three bits of mantissa."""


def test_four_kernels_are_in_fp8():
    assert {exercise.name for exercise in IN_FP8} == {"quantize_tile", "quantize_block", "gemm", "kv_cache_fp8"}


@pytest.mark.parametrize("exercise", IN_FP8, ids=lambda exercise: exercise.id)
def test_each_backend_has_the_format_of_its_chip(exercise):
    jobs = make_jobs(exercise, 1)
    names = {job.backend for job in jobs}
    by_backend = {name: {job.case["fp8"] for job in jobs if job.backend == name} for name in names}
    assert by_backend == {"virtual:sm_89": {"e4m3fn"}, "virtual:gfx942": {"e4m3fnuz"}}
    assert not any(job.skipped for job in jobs)


@pytest.mark.parametrize("target", ["gfx90a", "sm_80", "gfx1100"])
def test_a_target_without_fp8_is_skipped_and_named(target):
    report = check(exercises.find("08.quantize_tile"), lambda x, fp8: x, backends=[f"virtual:{target}"], seed=1)
    assert report.status == "not graded"
    assert any(outcome.detail.startswith(f"{target} has no FP8") for outcome in report.outcomes)


def test_the_interpreter_says_that_it_has_no_fp8():
    report = check(exercises.find("08.gemm"), lambda a, a_scales, b, b_scales: a, backends=["interpreter"], seed=1)
    assert any("interpreter" in outcome.detail and "FP8" in outcome.detail for outcome in report.outcomes)


@pytest.mark.parametrize("target", ["sm_89", "sm_90", "gfx942", "gfx950"])
def test_the_product_is_right_to_the_bound_that_the_formats_give(target):
    """Against the product of the matrices before they were quantised: |error| <= sum |a| |b| (2 u + u^2).

    u bounds the rounding of a number in FP8 that is not below the smallest normal one; what is smaller is off by half
    of the smallest number times its scale. At the end comes a rounding to bfloat16, and float32's along the sum.
    """
    fp8 = torch.float8_e4m3fnuz if target == "gfx942" else torch.float8_e4m3fn
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randn(shape, generator=generator) for shape in ((70, 300), (140, 300)))
    a[3, 7] = 400.0
    (a_codes, a_scales), (b_codes, b_scales) = quantized(a, 1, 128, fp8), quantized(b, 128, 128, fp8)
    with virtual_gpu(target) as gpu:
        got = load_solution("08.gemm")(a_codes, a_scales, b_codes, b_scales).double()
    assert gpu.counters.totals()["fp8_matrix_flops"] >= 2 * 70 * 140 * 300

    tiny = FORMATS[str(fp8).removeprefix("torch.float8_")].smallest / 2
    lost_a = a.double().abs() * U + tiny * spread(a_scales, 1, 128, a.shape)
    lost_b = b.double().abs() * U + tiny * spread(b_scales, 128, 128, b.shape)
    exact, size = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    bound = lost_a @ b.double().abs().T + a.double().abs() @ lost_b.T + lost_a @ lost_b.T
    rest = 2.0**-9 * exact.abs() + 2.0**-9 * bound + 300 * 2.0**-24 * 2 * size
    assert bool(((got - exact).abs() <= bound + rest).all())

    # of what the codes stand for only float32's and bfloat16's roundings are lost
    of_codes = gemm_reference(a_codes, a_scales, b_codes, b_scales)
    assert bool(((got - of_codes).abs() <= 2.0**-8 * of_codes.abs() + 300 * 2.0**-24 * 2 * size).all())
    assert float((got - of_codes).abs().max()) > 0
    assert math.isfinite(float(got.abs().max()))
