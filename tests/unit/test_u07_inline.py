"""Unit 07's listings and inline assembly: the reading agrees with the library's, the kernels run on all they say."""

from __future__ import annotations

import random

import pytest
import torch

from gpu_utils import virtual_gpu
from gpu_utils.compiler.assembly import ASYNC_COPY, GLOBAL_LOAD, MATRIX, instructions
from gpu_utils.exercises.u07_ptx_and_amdgcn import amdgcn_perm, ptx_cvt_fp8, ptx_ex2
from gpu_utils.exercises.u07_ptx_and_amdgcn import amdgcn_perm_slips as perms
from gpu_utils.exercises.u07_ptx_and_amdgcn import ptx_cvt_fp8_slips as conversions
from gpu_utils.exercises.u07_ptx_and_amdgcn import ptx_ex2_slips as powers
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, NVIDIA
from gpu_utils.exercises.u07_ptx_and_amdgcn.inline import FOUND
from gpu_utils.exercises.u07_ptx_and_amdgcn.read_listing_slips import right
from gpu_utils.exercises.u07_ptx_and_amdgcn.read_listing_texts import FOLDER, stored, written
from gpu_utils.grading.check import check

STORED = sorted(path.stem for path in FOLDER.glob("*.txt"))


def by_the_library(text, vendor):
    found = list(instructions(text, vendor))
    meets = ("bar.sync", "barrier.sync", "barrier.cta.sync", "s_barrier_wait")
    return {
        "vendor": vendor,
        "loads": sum(one.kind == GLOBAL_LOAD for one in found),
        "bits": max((one.bits or 0 for one in found if one.kind == GLOBAL_LOAD), default=0),
        "copies": sum(one.kind == ASYNC_COPY for one in found),
        "matrix": sum(one.kind == MATRIX for one in found),
        "barriers": sum(one.mnemonic.startswith(meets) or one.mnemonic == "s_barrier" for one in found),
    }


@pytest.mark.parametrize("name", STORED)
def test_a_stored_listing_is_read_as_the_library_reads_it(name):
    text = stored(name)
    assert right({name: text})["counts"][name] == by_the_library(text, "nvidia" if ".sm_" in name else "amd")


def test_stored_listings_are_of_both_vendors_and_hold_no_path():
    assert {name.split(".")[1] for name in STORED} >= {"sm_80", "sm_90", "gfx942", "gfx1100", "gfx1201"}
    assert not any("/tmp" in stored(name) or "/home" in stored(name) for name in STORED)


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_text_has_something_of_every_kind_and_is_another_one_each_time(seed):
    for vendor in ("nvidia", "amd"):
        text = written(random.Random(seed), vendor, 2)
        counts = right({"text": text})["counts"]["text"]
        assert counts["vendor"] == vendor
        assert all(counts[kind] for kind in ("loads", "bits", "copies", "matrix", "barriers"))
        assert text != written(random.Random(seed + 1), vendor, 2)


def on(target, answer, **inputs):
    with virtual_gpu(target, strict=True, sanitize=("racecheck", "waitcheck")):
        return answer(**inputs)


@pytest.mark.parametrize("target", NVIDIA)
def test_the_power_is_right_on_all_targets_of_its_vendor(target):
    x = torch.linspace(-20, 20, 1000)
    torch.testing.assert_close(on(target, powers.right, x=x), x.double().exp().float(), rtol=20 * 2.0**-22, atol=0)


@pytest.mark.parametrize("target", [target for target in NVIDIA if target != "sm_80"])
def test_the_conversion_is_right_on_all_targets_that_have_it(target):
    x = torch.cat([torch.tensor(ptx_cvt_fp8.EDGES), torch.randn(600, generator=torch.Generator().manual_seed(1)) * 9])
    assert on(target, conversions.right, x=x).equal(ptx_cvt_fp8.reference(x)["codes"])


@pytest.mark.parametrize("target", AMD)
def test_the_transposition_is_right_on_all_targets_of_its_vendor(target):
    rows = torch.randint(-(2**31), 2**31, (4, 300), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    assert on(target, perms.right, rows=rows).equal(amdgcn_perm.reference(rows)["columns"])


@pytest.mark.parametrize("target", AMD)
def test_without_an_early_clobber_the_machine_code_says_why_it_is_wrong(target):
    case = amdgcn_perm.EXERCISE.cases[0]
    inputs = amdgcn_perm.EXERCISE.inputs(case, torch.Generator().manual_seed(1))
    value = on(target, lambda **inputs: amdgcn_perm.EXERCISE.call(perms.no_early_clobber, inputs), **inputs)
    assert value[FOUND].endswith(amdgcn_perm.SHARED)
    problem = amdgcn_perm.EXERCISE.judge(case, inputs, value)
    assert problem is not None
    assert problem.kind == "value"
    assert "a result in the register of an argument" in problem.detail


def test_the_error_of_an_exponent_is_what_the_tolerance_says():
    """2^t of a rounded t is off by |x| 2^-23 at most: here it is, in float64, with an exact power."""
    x = torch.linspace(-80, 80, 100_001)
    t = x * torch.tensor(powers.LOG2_E)
    off = ((t.double() * torch.log(torch.tensor(2.0, dtype=torch.float64)) - x.double()).exp() - 1).abs()
    assert 0.5 < float((off / (x.abs().double() * 2.0**-23 + 1e-30)).max()) < 1
    case, inputs = ptx_ex2.EXERCISE.cases[0], {"x": x}
    assert float(off.max()) < ptx_ex2.EXERCISE.tolerance(case, inputs)["y"].rtol


@pytest.mark.parametrize(
    ("exercise", "names"),
    [
        (ptx_ex2.EXERCISE, ("operands_of_cuda", "no_semicolon", "no_approx", "short_factor")),
        (ptx_cvt_fp8.EXERCISE, ("no_satfinite", "towards_zero", "wide_result")),
    ],
)
def test_what_ptxas_refuses_gets_its_hint_in_a_check(exercise, names):
    wanted = {one.name: one for one in exercise.misconceptions if one.name in names}
    assert {check(exercise, one.answer, seed=1).misconception for one in wanted.values()} == set(names)


def test_an_instruction_in_a_comment_is_none():
    text = "// ex2.approx.f32 $0, $1;\nmov.f32 $0, $1; /* ex2.approx.f32 */"
    report = check(ptx_ex2.EXERCISE, powers.exponential(text))
    assert (report.status, report.misconception) == ("failed", "")
    assert "inline assembly is right" not in report.headline
