"""Every code of every format against torch and ml_dtypes; every rounding against the nearest by search."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from gpu_utils.formats import FORMATS
from gpu_utils.formats.narrow import FormatError

ML = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2": ml_dtypes.float8_e5m2,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
TORCH = {
    "e4m3fn": torch.float8_e4m3fn,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2": torch.float8_e5m2,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "e8m0": torch.float8_e8m0fnu,
}
NAMES = sorted(FORMATS)
WITHOUT_NAN = ("e3m2", "e2m3", "e2m1")


def same_bits(a, b):
    """Equal as numbers, zeros with their sign, NaN equal to NaN."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))


def probes(form):
    """float32 values: every number, every middle and what lies just beside it, both ends, signs."""
    finite = np.unique(np.abs(form.values[np.isfinite(form.values)]))
    steps = np.append(finite, 2 * finite[-1] - finite[-2] if form.signed else 2 * finite[-1])
    middles = ((steps[1:] + steps[:-1]) / 2).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        wide = (middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf)))
        drawn = np.random.default_rng(8).uniform(-1, 1, 5_000) * 1.2 * steps[-1]
        small = drawn * form.smallest_normal / steps[-1]
        all_sizes = np.concatenate([finite, *wide, drawn, small]).astype(np.float32)
    all_sizes = all_sizes[np.isfinite(all_sizes)]
    if form.signed:
        return np.concatenate([all_sizes, -all_sizes])
    # torch and ml_dtypes send what lies just above the smallest power to the next one; nearest is the smallest
    sizes = np.abs(all_sizes)
    return sizes[(sizes != 0) & ~((sizes > form.smallest) & (sizes < 1.5 * form.smallest))]


@pytest.mark.parametrize("name", NAMES)
def test_every_code_is_the_number_that_ml_dtypes_says(name):
    form = FORMATS[name]
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    assert same_bits(form.decode(codes), codes.view(ML[name]).astype(np.float64))


@pytest.mark.parametrize("name", sorted(TORCH))
def test_every_code_is_the_number_that_torch_says(name):
    codes = torch.arange(256, dtype=torch.uint8)
    assert same_bits(FORMATS[name].decode(codes.numpy()), codes.view(TORCH[name]).double().numpy())


@pytest.mark.parametrize("name", NAMES)
def test_values_become_the_codes_that_ml_dtypes_makes(name):
    form = FORMATS[name]
    given = probes(form)
    theirs = given.astype(ML[name])
    assert same_bits(form.rounded(given, saturate=False), theirs.astype(np.float64))
    ours = form.encode(given, saturate=False)
    numbers = ~np.isnan(form.values[ours])
    assert np.array_equal(ours[numbers], theirs.view(np.uint8)[numbers])


@pytest.mark.parametrize("name", sorted(TORCH))
def test_values_become_the_codes_that_torch_makes(name):
    """torch saturates in E4M3FN alone, where it has no other way to say that a number was too large than NaN."""
    given = probes(FORMATS[name])
    theirs = torch.from_numpy(given).to(TORCH[name]).double().numpy()
    assert same_bits(FORMATS[name].rounded(given, saturate=name == "e4m3fn"), theirs)


@pytest.mark.parametrize("name", NAMES)
def test_nearest_is_nearest_and_ties_go_to_the_even_code(name):
    form = FORMATS[name]
    for value in probes(form)[::7].astype(np.float64):
        got = form.rounded(value).item()
        below, above = (Fraction(n) for n in np.clip(form.neighbours(value), -form.largest, form.largest))
        to_below, to_above = Fraction(value) - below, above - Fraction(value)
        if abs(value) >= form.largest:
            assert abs(got) == form.largest
        elif to_below != to_above:
            assert Fraction(got) == (below if to_below < to_above else above)
        elif below != above:
            assert form.encode(value) % 2 == 0 if form.signed else Fraction(got) == above


@pytest.mark.parametrize("name", NAMES)
def test_what_is_too_large_saturates_or_says_so(name):
    form = FORMATS[name]
    huge = np.array([form.largest * 1.6, np.inf])
    assert form.rounded(huge).tolist() == [form.largest] * 2
    expected = {"ieee": np.inf, "finite": form.largest}.get(form.specials, np.nan)
    assert np.array_equal(form.rounded(huge, saturate=False), [expected] * 2, equal_nan=True)
    if form.signed:
        assert form.rounded(-huge).tolist() == [-form.largest] * 2


@pytest.mark.parametrize("name", NAMES)
def test_toward_zero_never_grows_and_keeps_what_is_there(name):
    form = FORMATS[name]
    given = probes(form).astype(np.float64)
    given = given[np.abs(given) >= form.smallest] if not form.signed else given
    got = form.rounded(given, "zero", saturate=False)
    assert (np.abs(got) <= np.abs(given)).all()
    lower = np.array([max((s for s in form.sizes if s <= abs(v)), default=0.0) for v in given[::97]])
    assert np.array_equal(np.abs(got[::97]), lower)
    finite = form.values[np.isfinite(form.values)]
    assert same_bits(form.rounded(finite, "zero"), finite)
    assert np.isfinite(form.rounded(form.largest * 1.6, "zero", saturate=False))


@pytest.mark.parametrize("name", NAMES)
def test_stochastic_goes_to_a_neighbour_and_is_right_on_average(name):
    form = FORMATS[name]
    generator = np.random.default_rng(3)
    sizes = form.sizes
    for low in (len(sizes) // 3, len(sizes) // 2, len(sizes) - 2):
        below, above = sizes[low], sizes[low + 1]
        for part in (0.0, 0.125, 0.7):
            value = below + part * (above - below)
            got = form.rounded(np.full(20_000, value), "stochastic", generator=generator)
            assert set(got.tolist()) <= ({below, above} if part else {below})
            # five standard deviations of a mean of 20,000 coin throws
            assert abs(got.mean() - value) <= 5 * 0.5 / 20_000**0.5 * (above - below)
    assert form.rounded(form.largest * 3, "stochastic").item() == form.largest


@pytest.mark.parametrize("name", [name for name in NAMES if name != "e8m0"])
def test_negative_zero_and_nan(name):
    form = FORMATS[name]
    zeros = form.rounded(np.array([0.0, -0.0, -form.smallest / 4]))
    assert zeros.tolist() == [0, 0, 0]
    assert np.signbit(zeros).tolist() == ([False] * 3 if form.specials == "fnuz" else [False, True, True])
    if name in WITHOUT_NAN:
        with pytest.raises(FormatError, match=f"{name} has no NaN, found 1"):
            form.encode([1.0, np.nan])
    else:
        assert np.isnan(form.rounded([np.nan, -np.nan])).all()


def test_a_scale_is_positive():
    with pytest.raises(FormatError, match=r"powers of two only, found -1\.0"):
        FORMATS["e8m0"].encode([-1.0])
    with pytest.raises(FormatError, match=r"found 0\.0"):
        FORMATS["e8m0"].encode([0.0], saturate=False)
    assert FORMATS["e8m0"].rounded([0.0, 2.0**-140]).tolist() == [2.0**-127] * 2


def test_a_code_with_too_many_bits_is_refused():
    with pytest.raises(FormatError, match="codes of e2m1 are 0 to 15, found 2 to 16"):
        FORMATS["e2m1"].decode([2, 16])


def test_the_ends_of_the_formats():
    ends = {name: (form.bits, form.largest, form.smallest_normal, form.smallest) for name, form in FORMATS.items()}
    assert ends == {
        "e4m3fn": (8, 448.0, 2.0**-6, 2.0**-9),
        "e4m3fnuz": (8, 240.0, 2.0**-7, 2.0**-10),
        "e5m2": (8, 57344.0, 2.0**-14, 2.0**-16),
        "e5m2fnuz": (8, 57344.0, 2.0**-15, 2.0**-17),
        "e3m2": (6, 28.0, 2.0**-2, 2.0**-4),
        "e2m3": (6, 7.5, 1.0, 2.0**-3),
        "e2m1": (4, 6.0, 1.0, 0.5),
        "e8m0": (8, 2.0**127, 2.0**-127, 2.0**-127),
    }


def test_fields_put_together_again_are_the_code():
    for form in FORMATS.values():
        for code in range(1 << form.bits):
            sign, exponent, mantissa = form.fields(code)
            whole = sign << (form.bits - 1) | exponent << form.mantissa_bits | mantissa
            assert whole == code


def test_neighbours_hold_the_value_between_them():
    form = FORMATS["e4m3fn"]
    assert form.neighbours(0.3) == (0.28125, 0.3125)
    assert form.neighbours(0.3125) == (0.3125, 0.3125)
    assert form.neighbours(-500.0) == (-np.inf, -448.0)
