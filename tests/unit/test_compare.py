"""The comparison names the first difference."""

from __future__ import annotations

import math

import pytest
import torch

from gpu_utils.analytic.tolerance import EXACT, Tolerance, tolerance
from gpu_utils.grading.compare import compare

LOOSE = Tolerance(1e-3, 1e-3, "test")


def test_the_first_wrong_index_is_named_with_both_values_and_the_count():
    expected = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    got = expected.float()
    got[1, 1:] = 9
    difference = compare(expected, got, LOOSE)
    assert difference.kind == "value"
    assert "[1, 1] = 9, expected 4; 2 of 6 elements differ" in difference.detail


@pytest.mark.parametrize("keys", [("y", "mean"), (0, 1)])
def test_parts_of_a_result_may_have_a_tolerance_and_a_dtype_each(keys):
    def parts(y, mean):
        return dict(zip(keys, (y, mean), strict=True)) if "y" in keys else (y, mean)

    expected = parts(torch.ones(3).double(), torch.ones(3).double())
    loose_and_exact = dict(zip(keys, (LOOSE, EXACT), strict=True))
    half_and_single = dict(zip(keys, (torch.float16, torch.float32), strict=True))
    near, wide = torch.full((3,), 1.001), torch.ones(3)
    assert compare(expected, parts(near.half(), wide), loose_and_exact, half_and_single) is None
    assert compare(expected, parts(wide.half(), near), loose_and_exact, half_and_single).kind == "value"
    assert compare(expected, parts(wide, wide), loose_and_exact, half_and_single).kind == "dtype"
    assert compare(expected, parts(wide.half(), wide.half()), loose_and_exact, half_and_single).kind == "dtype"


def test_a_nan_that_was_expected_is_no_difference():
    value = torch.tensor([1.0, float("nan")])
    assert compare(value.double(), value, LOOSE) is None
    assert compare({"loss": float("nan")}, {"loss": float("nan")}, LOOSE) is None


@pytest.mark.parametrize("wrong", [float("-inf"), float("nan"), 0.0])
def test_infinities_must_be_met_exactly(wrong):
    assert compare(torch.tensor([float("inf")]).double(), torch.tensor([wrong]), LOOSE) is not None


def test_an_expected_nan_that_is_a_number_differs():
    assert compare(torch.tensor([float("nan")]).double(), torch.tensor([0.0]), LOOSE).kind == "value"


@pytest.mark.parametrize(
    ("expected", "got", "kind"),
    [
        (3, 3.0, "value-free"),
        (3, 4, "value"),
        (3, "3", "type"),
        (3, True, "type"),
        (0.5, 0.5001, "value-free"),
        (0.5, float("nan"), "nan"),
        ("amd", "amd", "value-free"),
        ("amd", "nvidia", "value"),
        ("amd", None, "type"),
        ([1, 2], (1, 2), "value-free"),
        ([1, 2], [1], "shape"),
        ({"a": 1}, {"a": 1, "b": 2}, "type"),
        ({"a": 1}, {}, "type"),
        (True, 1, "type"),
    ],
)
def test_plain_values_compare_by_kind(expected, got, kind):
    difference = compare(expected, got, LOOSE)
    assert (difference.kind if difference else "value-free") == kind


def test_integers_compare_exactly():
    expected = torch.tensor([1, 2, 3])
    assert compare(expected, torch.tensor([1, 2, 3], dtype=torch.int32), EXACT) is None
    assert "element" in compare(expected, torch.tensor([1, 2, 4]), EXACT).detail


def test_a_tensor_subclass_is_not_a_tensor_here():
    class Lazy(torch.Tensor):
        pass

    value = torch.ones(3).as_subclass(Lazy)
    assert compare(torch.ones(3).double(), value, LOOSE).kind == "type"


def test_a_sum_in_half_precision_is_outside_the_tolerance_of_one_in_float32():
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(4096, generator=generator).half()
    exact = a.double().sum().reshape(1)
    good = a.float().sum().half().reshape(1)
    bad = torch.zeros(1, dtype=torch.float16)
    for value in a:
        bad = bad + value
    tol = tolerance(torch.float16, k=4096)
    assert compare(exact, good, tol) is None
    assert compare(exact, bad, tol) is not None


@pytest.mark.parametrize("k", [3, 75, 1000])
def test_an_honest_sum_one_after_another_is_within_the_tolerance(k):
    generator = torch.Generator().manual_seed(k)
    a, b = torch.randn(20_000, k, generator=generator), torch.randn(20_000, k, generator=generator)
    got = torch.zeros(20_000)
    for i in range(k):
        got = got + a[:, i] * b[:, i]
    exact = (a.double() * b.double()).sum(1)
    assert compare(exact, got, tolerance(torch.float32, k=k)) is None


def test_a_number_that_claims_to_equal_everything_is_taken_for_what_it_is():
    class Agreeable(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    class Close(float):
        def __sub__(self, other):
            return 0.0

    assert compare(7, Agreeable(3), EXACT).kind == "value"
    assert compare(7.0, Close(3.0), LOOSE).kind == "value"
    assert compare(7, Agreeable(7), EXACT) is None


@pytest.mark.parametrize("got", [{"warps"}, "warps"])
def test_a_list_that_is_none_is_told_what_was_expected(got):
    detail = compare(["warps"], got, EXACT).detail
    assert detail.endswith("expected a list or tuple of 1 value")


RIGHT = torch.randn(4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
RELATED = {
    "each expected element is 8 times yours": RIGHT / 8,
    "each element is 3 times the expected one": RIGHT * 3,
    "each expected element is 0.707 times yours": RIGHT * 2**0.5,
    "the sign of every element is turned": -RIGHT,
    "each expected element is yours plus 0.5": RIGHT - 0.5,
    "these are the expected elements in reverse order along axis 1": RIGHT.flip(1),
    "these are the expected elements moved up by one place along axis 0": RIGHT.roll(1, 0),
    "these are the expected numbers in another order": RIGHT.T.reshape(4, 5),
}


@pytest.mark.parametrize("relation", RELATED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_relation_that_holds_for_every_element_is_named(relation, dtype):
    difference = compare(RIGHT, RELATED[relation].to(dtype), tolerance(dtype, magnitude=3.0))
    if dtype == torch.float32 or ("order" not in relation and "plus" not in relation):
        assert f"elements differ; {relation} (tolerance" in difference.detail


def test_a_transposed_square_says_so():
    square = torch.arange(16.0, dtype=torch.float64).view(4, 4)
    assert "axes 0 and 1 exchanged" in compare(square, square.T, LOOSE).detail


@pytest.mark.parametrize(
    "wrong", [RIGHT * 2 + 1, RIGHT.abs(), RIGHT * (RIGHT > 0), torch.zeros(4, 5), RIGHT.roll(2, 1) * 3]
)
def test_what_is_in_no_relation_is_said_to_be_in_none(wrong):
    assert "elements differ (tolerance" in compare(RIGHT, wrong.double(), LOOSE).detail


def test_samples_of_one_distribution_are_not_the_same_numbers():
    drawn = [torch.randn(20_000, generator=torch.Generator().manual_seed(seed)).double() for seed in (1, 2)]
    assert "another order" not in compare(drawn[0], drawn[1], Tolerance(1e-2, 1e-2, "test")).detail


@pytest.mark.parametrize(
    ("expected", "got", "says"),
    [
        (1024, 512, "; expected is 2 times yours"),
        (0.25, 4.0, "; yours is 16 times the expected"),
        (1.0, 1.024**3, "; yours is 1.074 (1024/1000 to the power 3) times the expected"),
        (6.0, -6.0, "; the sign is turned"),
        (5, 4, "expected 5"),
        (2, 1, "expected 2"),
        (100, 37, "expected 100"),
        (0.0, 4.0, "expected 0"),
        (1 / 3, 1 / 3 + 1e-9, "is 0.333333334, expected 0.333333333"),
    ],
)
def test_the_ratio_of_two_numbers_is_named_where_it_is_simple(expected, got, says):
    assert compare(expected, got, EXACT).detail.endswith(says)


def test_a_list_of_numbers_says_its_relation_too():
    assert compare([2.0, 4.0, 7.0], [1.0, 2.0, 3.5], LOOSE).detail.endswith("expected is 2 times yours")
    assert "in reverse order along axis 0" in compare([2, 5, 7], [7, 5, 2], EXACT).detail
    assert "yours plus 1" in compare([2, 5, 7, 9], [1, 4, 6, 8], EXACT).detail


def test_a_factor_that_is_1_in_the_digits_said_is_no_relation():
    right = torch.linspace(1, 4, 50, dtype=torch.float64)
    found = compare(right, right * 1.0003, tolerance(torch.float32))
    assert found is not None
    assert "times" not in found.detail


def test_one_number_among_zeros_is_in_a_relation_only_if_it_is_a_simple_one():
    right = torch.zeros(6, dtype=torch.float64)
    right[2] = 240.0
    assert "is 2 times yours" in compare(right, right / 2, LOOSE).detail
    assert "times" not in compare(right, right * (448 / 240), LOOSE).detail
    assert "times" not in compare(right, right / 1.05, LOOSE).detail


def test_parts_of_a_tuple_have_the_names_of_the_statement_and_the_right_ones_are_named():
    right = (torch.ones(2, 2), torch.ones(2), torch.ones(2))
    tol = Tolerance(1e-6, 0.0, "one rounding")
    one = compare(right, (right[0], 2 * right[1], right[2]), tol, parts=("dx", "dw", "db"))
    assert one is not None
    assert one.detail.startswith("dw[0] = 2, expected 1")
    assert one.detail.endswith("; dx and db are right")
    two = compare(right, (right[0], 2 * right[1], 2 * right[2]), tol, parts=("dx", "dw", "db"))
    assert two is not None
    assert two.detail.endswith("; dx is right, db is not")
    every = compare(right, tuple(2 * part for part in right), tol, parts=("dx", "dw", "db"))
    assert every is not None
    assert "right" not in every.detail
    assert compare(right, right, tol, parts=("dx", "dw", "db")) is None


def test_parts_of_a_dict_have_names_in_its_order():
    right = {"result": torch.ones(2), "gradient": torch.ones(2)}
    tol = Tolerance(1e-6, 0.0, "one rounding")
    found = compare(right, {"gradient": 2 * right["gradient"], "result": right["result"]}, tol, parts=("y", "dx"))
    assert found is not None
    assert found.detail.startswith("dx[0] = 2, expected 1")
    assert found.detail.endswith("; y is right")
    assert compare(right, dict(right), tol, parts=("y", "dx")) is None


def test_of_a_named_part_the_size_of_the_difference_is_said():
    right = {"y": torch.tensor([3.0, 4.0]), "dx": torch.ones(2)}
    tol = Tolerance(1e-6, 0.0, "one rounding")

    def detail(*wrong: float) -> str:
        found = compare(right, right | {"y": torch.tensor(wrong)}, tol, parts=("y", "dx"))
        assert found is not None
        return found.detail

    assert detail(3.3, 4.4).endswith("; the difference is 10% of y (root mean square); dx is right")
    assert detail(3.0, 4.05).endswith("; the difference is 1% of y (root mean square); dx is right")
    assert "root mean square" not in detail(3e9, 4.0)
    assert "root mean square" not in detail(math.inf, 4.0)
    assert "root mean square" not in detail(math.nan, 4.0)
    alone = compare((torch.ones(2), 1.0), (torch.zeros(2), 1.0), tol)
    assert alone is not None
    assert "root mean square" not in alone.detail
