"""The interval of a mean of few values."""

import math

import numpy as np
import pytest

from gpu_utils.analytic.paired import mean_interval, t_quantile
from gpu_utils.errors import BadArgument


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_the_quantile_holds_that_share_of_the_density(degrees, confidence):
    t = t_quantile(confidence, degrees)
    at = np.linspace(0, t, 200_001)
    size = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    share = 2 * np.trapezoid(size * (1 + at**2 / degrees) ** (-(degrees + 1) / 2), at)
    assert share == pytest.approx(confidence, abs=1e-7)


def test_an_interval_holds_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(1.0, 2.0, size=(4000, 4))
    holds = [interval.low <= 1.0 <= interval.high for interval in map(mean_interval, draws.tolist())]
    assert np.mean(holds) == pytest.approx(0.95, abs=0.015)


def test_a_value_that_is_not_finite_leaves_nothing_to_say():
    assert math.isnan(mean_interval([1.0, math.nan]).high)


def test_one_value_and_an_impossible_confidence_are_refused():
    with pytest.raises(BadArgument, match="no spread"):
        mean_interval([1.0])
    with pytest.raises(BadArgument, match="between 0 and 1"):
        t_quantile(1.0, 3)
