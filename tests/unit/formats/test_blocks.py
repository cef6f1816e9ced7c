"""The block formats against their rules, written out in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from gpu_utils.formats import BLOCK_FORMATS

MX = ("MXFP8", "MXFP4")
ELEMENTS = {"MXFP8": ml_dtypes.float8_e4m3fn, "MXFP4": ml_dtypes.float4_e2m1fn, "NVFP4": ml_dtypes.float4_e2m1fn}
EMAX = {"MXFP8": 8, "MXFP4": 2}


def drawn(rows, k, seed=0):
    """Values over many powers of two, with zeros among them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k)) * 2.0 ** rng.integers(-20, 20, (rows, 1))
    x[rng.random((rows, k)) < 0.05] = 0
    return x


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("k", [32, 33, 100])
def test_an_mx_block_follows_the_specification(name, k):
    form, x = BLOCK_FORMATS[name], drawn(7, k)
    blocks = form.encode(x)
    for row in range(7):
        for block in range(-(-k // 32)):
            part = x[row, 32 * block : 32 * block + 32]
            exponent = math.floor(math.log2(max(abs(part)))) - EMAX[name]
            assert int(blocks.scales[row, block]) == exponent + 127
            largest = form.element.largest
            clipped = np.clip(part / 2.0**exponent, -largest, largest)
            expected = clipped.astype(ELEMENTS[name]).astype(np.float64) * 2.0**exponent
            assert np.array_equal(form.decode(blocks)[row, 32 * block : 32 * block + 32], expected)


def test_floor_log2_is_exact_at_and_just_below_a_power():
    form = BLOCK_FORMATS["MXFP8"]
    just_below = np.nextafter(8.0, 0)
    assert form.encode([[8.0], [just_below], [2.0**-120]]).scales.ravel().tolist() == [122, 121, 0]


def test_the_scale_that_the_specification_names_lets_an_amax_saturate():
    form = BLOCK_FORMATS["MXFP8"]
    assert form.rounded([[448.0, 500.0, 1.0]]).tolist() == [[448.0, 448.0, 1.0]]


@pytest.mark.parametrize("name", MX)
def test_a_block_of_zeros_is_zeros_and_one_with_nan_is_nan(name):
    form = BLOCK_FORMATS[name]
    x = np.zeros((3, 64))
    x[1, 5], x[2, 40] = np.nan, np.inf
    got = form.rounded(x)
    assert (got[0] == 0).all()
    assert np.isnan(got[1, :32]).all()
    assert (got[1, 32:] == 0).all()
    assert np.isnan(got[2, 32:]).all()
    assert form.encode(x).scales[1, 0] == 255


def test_nvfp4_has_a_scale_in_e4m3_and_one_for_the_tensor():
    form, x = BLOCK_FORMATS["NVFP4"], drawn(6, 50, seed=4)
    blocks = form.encode(x)
    assert blocks.tensor_scale == float(np.float32(np.abs(x).max() / (6 * 448)))
    assert blocks.scales.shape == (6, 4)
    scales = blocks.scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    for row in range(6):
        for block in range(4):
            part = x[row, 16 * block : 16 * block + 16]
            wanted = np.float64(max(abs(part)) / 6 / blocks.tensor_scale).astype(ml_dtypes.float8_e4m3fn)
            assert scales[row, block] == float(wanted)
            step = scales[row, block] * blocks.tensor_scale
            if not step:
                continue
            for value, got in zip(part, form.decode(blocks)[row, 16 * block :], strict=False):
                nearest = min(abs(Fraction(abs(value) / step) - Fraction(s)) for s in form.element.sizes)
                off = abs(Fraction(min(abs(value) / step, 6.0)) - Fraction(abs(got) / step))
                assert off <= nearest + Fraction(1, 10**9)


def test_a_tensor_of_zeros_in_nvfp4_is_zeros():
    assert (BLOCK_FORMATS["NVFP4"].rounded(np.zeros((2, 16))) == 0).all()


def test_bits_per_value_count_the_scales():
    assert {name: form.bits_per_value for name, form in BLOCK_FORMATS.items()} == {
        "MXFP8": 8.25,
        "MXFP4": 4.25,
        "NVFP4": 4.5,
    }
