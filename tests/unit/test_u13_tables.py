"""The tables of unit 13: what a judge says of a wrong one, and rows of a profile for 13.regression."""

from __future__ import annotations

import random

import pytest

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises import find
from gpu_utils.exercises.u13_profiling import regression_slips as slips
from gpu_utils.exercises.u13_profiling.drawn_profiles import CAUSES, HARMLESS, drawn_profiles
from gpu_utils.exercises.u13_profiling.judging import rows_problem
from gpu_utils.exercises.u13_profiling.own_regression import launch_rows
from gpu_utils.exercises.u13_profiling.regression_cases import NAMES, WRITTEN
from gpu_utils.grading.check import check
from gpu_utils.profiling.profile import Device, Event, Profile

EXPECTED = [{"name": "gelu", "bytes": 2048, "by": ["waves", "blocks"]}, {"name": "gemm", "bytes": None, "by": []}]
RIGHT = [{"name": "gemm", "bytes": None, "by": []}, {"name": "gelu", "bytes": 2048.0, "by": ["blocks", "waves"]}]


def said(value):
    found = rows_problem(EXPECTED, value, Tolerance(1e-9, 0.0, ""))
    return found and found.detail


def test_kernels_and_names_in_a_field_may_come_in_any_order():
    assert said(RIGHT) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"),
        ([], "0 values"),
        ([1.0, 2.0], "expected a dict"),
        ([{"bytes": 1}], "has no 'name'"),
        (RIGHT[:1], "has no kernel gelu; it has gemm"),
        ([*RIGHT, {"name": "loss"}], "has a kernel 'loss'"),
        ([*RIGHT, RIGHT[0]], "has gemm 2 times"),
        ([RIGHT[0], {**RIGHT[1], "bytes": 2000}], "'bytes' of gelu is 2000, expected 2048; expected is 1.024"),
        ([{**RIGHT[0], "bytes": 0}, RIGHT[1]], "'bytes' of gemm is 0, expected None"),
        ([{**RIGHT[0], "bytes": 0}, {**RIGHT[1], "bytes": 1}], "'bytes' of 2 of 2 kernels is wrong"),
        ([RIGHT[0], {**RIGHT[1], "by": ["waves"]}], "'by' of gelu is waves, expected waves, blocks"),
        ([RIGHT[0], {**RIGHT[1], "by": "waves"}], "expected a list"),
        ([RIGHT[0], {"name": "gelu", "by": []}], "gelu has no 'bytes'; its keys are name, by"),
        ([RIGHT[0], RIGHT[1] | {"flop": 1}], "gelu has 'flop', which was not asked for"),
        ([*RIGHT, {"name": "x" * 3_000_000}], f"has a kernel '{'x' * 57}...'; the profile"),
        ([{"x" * 3_000_000: 1}], f"its keys are {'x' * 57}..."),
    ],
)
def test_a_wrong_table_is_told_by_kernel_and_field(value, words):
    assert words in said(value)


def test_the_kernel_that_was_named_is_told_with_what_it_lost():
    def largest(before, after):
        return slips.answer()(before, after) | {"kernel": "gemm"}

    detail = check(find("13.regression"), largest, seed=1).first_failure.detail
    assert "'kernel' is 'gemm', expected 'softmax'; gemm lost 20,000 ns; 'cause' and 'lost' are right" in detail


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("swish", "; swish is in neither profile; 'cause' and 'lost' are right"),
        ("none", "; none is in neither profile"),
        ("x" * 3_000_000, f"; {'x' * 57}... is in neither profile"),
        ("softmax_2", "; the base name of softmax_2 is softmax"),
    ],
    ids=lambda text: text[:20],
)
def test_a_name_that_is_not_there_is_told(kernel, words):
    def invented(before, after):
        return slips.answer()(before, after) | {"kernel": kernel}

    detail = check(find("13.regression"), invented, seed=1).first_failure.detail
    assert words in detail
    assert len(detail) < 400


def test_a_word_for_none_is_told():
    def word(before, after):
        found = slips.answer()(before, after)
        return found | {"kernel": found["kernel"] or "none"}

    assert "asked is None itself" in check(find("13.regression"), word, seed=1).first_failure.detail


@pytest.mark.parametrize("example", WRITTEN, ids=lambda example: example.why)
def test_the_largest_loss_of_a_written_pair_is_that_of_one_alone(example):
    before, after = example.inputs["before"], example.inputs["after"]
    old, new = slips.grouped(before, slips.base), slips.grouped(after, slips.base)
    losses = [slips.time(new[name]) - slips.time(old[name]) for name in old if name in new]
    assert len(losses) > 1
    losses.append(slips.idle(after) - slips.idle(before))
    assert losses.count(max(losses)) == 1


def test_written_names_are_of_nine_kernels():
    assert len({slips.answer()(**example.inputs)["kernel"] for example in NAMES}) == len(NAMES) == 9


@pytest.mark.parametrize("cause", [*CAUSES, "idle", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_what_was_drawn_is_what_the_rows_say(cause, seed):
    profiles = drawn_profiles(random.Random(seed), cause, list(HARMLESS))
    assert slips.answer()(**profiles)["cause"] == cause.split(",")[0]


def event(**figures):
    found = Event("kernel", "copy", start=100, end=350, device="GPU")
    for name, value in {"grid": (4, 2, 1), "registers": 16, "shared_bytes": 0, **figures}.items():
        found.note(name, value, "a test")
    return found


def rows(device, **figures):
    return launch_rows(Profile([event(**figures)], devices={"GPU": device}))[0]


def test_rows_of_a_profile_take_what_is_known():
    row = rows(Device("GPU", "nvidia", "sm_80"), memory_bytes=4096, occupancy=70.0, occupancy_limit=100.0)
    assert row == {
        **{"name": "copy", "start": 100, "duration": 250, "grid": 8, "memory_bytes": 4096},
        **{"registers": 16, "shared_bytes": 0, "occupancy": 70.0},
    }


def test_rows_of_a_profile_fall_back_on_sectors_lines_and_limits():
    nvidia = rows(Device("GPU", "nvidia", "sm_80"), load_sectors=3, store_sectors=1, occupancy_limit=50.0)
    assert (nvidia["memory_bytes"], nvidia["occupancy"]) == (128, 50.0)
    assert rows(Device("GPU", "amd", "gfx942"), cache_lines=3)["memory_bytes"] == 384
    assert rows(Device("GPU", "amd", "gfx942"))["memory_bytes"] is None
    assert rows(Device("GPU", "amd"), cache_lines=3)["memory_bytes"] is None
