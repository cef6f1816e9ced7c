"""Unit 09: bounds of sums hold, distances count neighbours, allowances have room on both sides."""

from __future__ import annotations

import math
import random

import pytest
import torch

from gpu_utils.analytic.summation import backward_error, condition, forward_error, gamma, likely
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u09_operator_alignment import recorded_sums, sums, tolerance, ulp
from gpu_utils.exercises.u09_operator_alignment.reduction_order_slips import slipped
from gpu_utils.grading.check import check
from gpu_utils.grading.exercise import Example
from gpu_utils.ui.ulp_figure import ulp_histogram, ulps_apart

ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


@pytest.mark.parametrize("one_sign", [True, False])
@pytest.mark.parametrize("dtype", ROUNDOFF)
@pytest.mark.parametrize("order", sums.SUMS)
def test_no_measured_sum_is_beyond_its_bound(order, dtype, one_sign):
    found = sums.sum_errors(order, [2, 3, 21, 150, 300], dtype, one_sign=one_sign, block=16)
    for k, error in found.items():
        assert error <= sums.sum_bound(order, k, ROUNDOFF[dtype], block=16)


def test_what_is_likely_holds_for_float32_and_is_never_above_the_bound():
    for order in sums.SUMS:
        for k, error in sums.sum_errors(order, [100, 3000], one_sign=True).items():
            assert error <= sums.sum_likely(order, k, 2.0**-24) <= sums.sum_bound(order, k, 2.0**-24)


def test_forward_error_is_condition_times_backward_error():
    terms = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    found = terms.sum(1)
    assert torch.allclose(forward_error(found, terms), condition(terms) * backward_error(found, terms))


def test_orders_and_numbers_that_nobody_knows_are_refused():
    with pytest.raises(BadArgument, match="sorted"):
        sums.sum_bound("sorted", 3, 0.1)
    with pytest.raises(BadArgument):
        sums.height("kahan", 3)
    with pytest.raises(BadArgument):
        gamma(-1, 0.1)
    with pytest.raises(BadArgument):
        likely(1, -0.1)


def test_a_fused_step_is_rounded_once():
    a = torch.tensor([1 + 2.0**-12], dtype=torch.float32)
    exact = (1 + 2.0**-12) ** 2
    assert sums._fused(a, a, -a * a).item() == exact - (a * a).item() != 0


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_a_distance_counts_neighbours_as_nextafter_does(dtype):
    starts = [0.0, -(2.0**-14), 1.0, -2.0, torch.finfo(dtype).smallest_normal]
    for start in starts:
        x = torch.tensor(start, dtype=dtype)
        y = x
        for _ in range(5):
            y = torch.nextafter(y, torch.tensor(math.inf, dtype=dtype))
        assert ulp.ulp_reference(x, y).item() == ulp.ulp_reference(y, x).item() == 5


def test_the_figure_and_the_exercise_count_alike():
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(-(2**15), 2**15, (2, 4000), generator=generator).to(torch.int16)
    a, b = codes.view(torch.float16)
    apart, found = ulp.ulp_reference(a, b), ulps_apart(a, b)
    far = apart == 2**63 - 1
    assert found.broken == far.sum()
    assert found.largest == apart[~far].max()
    assert found.counts[0] == (apart == 0).sum()
    assert found.counts[3] == ((apart >= 4) & (apart < 8)).sum()
    assert sum(found.counts) + found.broken == 4000


def test_a_histogram_says_in_words_what_it_shows():
    one = torch.ones(100)
    picture = ulp_histogram({"div": (one, one), "exp": (one, one.where(torch.arange(100) > 0, torch.nan))})
    assert picture.words == "div: 100% equal; largest 0 ulp. exp: 99% equal, 1% NaN in one of the two; largest 0 ulp."
    assert 'role="img"' in picture.html
    with pytest.raises(BadArgument, match="no pairs"):
        ulp_histogram({})
    with pytest.raises(BadArgument, match="one shape"):
        ulp_histogram({"a": (one, one.double())})


def test_no_sum_of_the_exercise_is_beyond_its_bound():
    x = torch.rand(50, 100, generator=torch.Generator().manual_seed(0)).half()
    found = slipped()(x, 8, dict.fromkeys(sums.SUMS, 1.0) | {"lanes": 2.0}, 1.0)
    for name, total in found["sums"].items():
        assert (forward_error(total, x) <= found["bounds"][name]).all()


def recipes() -> list[recorded_sums.Recipe]:
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    cases = [*tolerance.EXERCISE.cases, *(tolerance.EXERCISE.fresh(rng) for _ in range(12))]
    inputs = [
        case.inputs if isinstance(case, Example) else tolerance.EXERCISE.inputs(case, generator) for case in cases
    ]
    return [recorded_sums.Recipe(**given) for given in inputs]


@pytest.mark.parametrize("recipe", recipes(), ids=str)
def test_a_good_allowance_has_room_on_both_sides(recipe):
    recording, (rtol, atol) = recorded_sums.record(recipe), tolerance.tolerance_reference(**vars(recipe))
    for found in recording.honest.values():
        assert tolerance._excess(found, recording.exact, rtol, atol) < 0.85
    assert tolerance.planted(recipe)


@pytest.mark.parametrize("factor", [1.0, 1.5, 2.5])
def test_the_constants_of_an_allowance_are_free_within_a_factor(factor):
    def answer(**inputs):
        rtol, atol = tolerance.tolerance_reference(**inputs)
        return min(factor, 2) * rtol, factor * atol

    assert check(tolerance.EXERCISE, answer, seed=5).passed


@pytest.mark.parametrize(
    "bad", [None, 1.0, (1.0,), (1, 2, 3), "ab", (None, 1.0), (True, 1.0), (-1.0, 1.0), [1.0, math.inf]]
)
def test_what_is_no_pair_of_numbers_gets_a_sentence(bad):
    report = check(tolerance.EXERCISE, lambda **inputs: bad, seed=1)
    assert report.status == "failed"
    assert "expected two" in str(report)
    assert "Traceback" not in str(report)
