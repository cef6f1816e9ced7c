"""The roofline from the registry, and its refusals where the registry has no figure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_utils.analytic.roofline import Point, Roofline, attainable, roofline
from gpu_utils.chips import CHIPS
from gpu_utils.errors import BadArgument, UnknownFigure, UnknownName


@pytest.mark.parametrize("chip", list(CHIPS))
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp8"])
def test_every_chip_has_a_roofline_with_sources_or_says_which_figure_is_missing(chip, dtype):
    row = CHIPS[chip]
    if row.peak(dtype) is None or row.bandwidth is None:
        with pytest.raises(UnknownFigure) as caught:
            roofline(chip, dtype)
        missing = f"a peak for {dtype}" if row.peak(dtype) is None else "a memory bandwidth"
        assert str(caught.value).startswith(f"the registry has no figure for {missing} of {row.name} (")
    else:
        found = roofline(row, dtype)
        assert found.ridge == pytest.approx(row.ridge(dtype))
        assert all(found.sources)


def test_left_of_the_ridge_bandwidth_decides_and_right_of_it_arithmetic():
    found = Roofline("toy", peak=100e12, bandwidth=2e12)
    assert found.ridge == 50
    assert [found.bound(i) for i in (0.1, 49.9, 50, 51)] == ["memory", "memory", "compute", "compute"]
    assert [found.attainable(i) for i in (10, 50, 1000)] == [20e12, 100e12, 100e12]


def test_a_point_knows_its_least_time_and_how_near_it_came():
    found = Roofline("toy", peak=100e12, bandwidth=2e12)
    copy, product = Point("copy", 0, 4e9, seconds=4e-3), Point("product", 2e14, 1e9)
    assert (copy.intensity, copy.achieved, product.achieved) == (0, 0, None)
    assert (found.seconds(copy), found.seconds(product)) == (2e-3, 2.0)
    assert (found.fraction(copy), found.fraction(product)) == (0.5, None)


@given(st.floats(0.01, 1e4), st.floats(1, 5000), st.floats(0.1, 10))
def test_the_attainable_rate_is_what_the_least_time_gives(intensity, peak, bandwidth):
    point = Point("any", intensity * 1e9, 1e9)
    assert attainable(intensity, peak, bandwidth) == pytest.approx(
        point.flops / Roofline("any", peak, bandwidth).seconds(point)
    )


def test_names_and_numbers_that_cannot_be_are_one_sentence():
    with pytest.raises(UnknownName, match="there is no chip 'H10O'"):
        roofline("H10O")
    with pytest.raises(UnknownName, match="there is no number format 'bf61'"):
        roofline("H100", "bf61")
    with pytest.raises(BadArgument, match="bytes above 0"):
        Point("empty", 1, 0)
    with pytest.raises(BadArgument, match="a peak of 0"):
        Roofline("none", 0, 1)
