"""Typed index expressions: the same as Python where Python is safe, one sentence everywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_utils.analytic.expression import addresses, indices, truths
from gpu_utils.errors import BadArgument

CONDITIONS = ("lane < 3", "lane % 2", "not lane % 2", "lane < 8 and not lane == 5", "not (lane < 2 or lane > 5)")

numbers = st.one_of(st.just("lane"), st.integers(0, 300).map(str))
expressions = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^"]), inner).map(
            lambda t: "({} {} {})".format(*t)
        ),
        st.tuples(inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner).map(
            lambda t: "({} {} {})".format(*t)
        ),
        st.tuples(inner, inner, inner).map(lambda t: "({} if {} else {})".format(*t)),
        st.tuples(st.sampled_from("+-~"), inner).map(lambda t: "({}{})".format(*t)),
    ),
    max_leaves=8,
)


@given(expressions)
def test_what_is_accepted_is_what_python_computes(expression):
    if len(expression) > 200:
        return
    try:
        found = indices(expression, 64)
    except BadArgument as refused:
        found, why = None, str(refused)
    if found is None:
        assert any(reason in why for reason in ("by zero", "an index is 0 or more", "reaches"))
        return
    assert found == tuple(int(eval(expression, {"__builtins__": {}}, {"lane": lane})) for lane in range(64))


def test_addresses_are_indices_times_the_element_size():
    assert addresses("lane * 33 % 64", 3, element_bytes=4, base=256) == (256, 388, 264)
    assert addresses("lane if lane % 2 else None", 3) == (None, 4, None)
    assert indices("lane << 2 | lane >> 1", 4) == (0, 4, 9, 13)
    assert indices("1 if 0 < lane < 3 and lane != 2 else 0", 4) == (0, 1, 0, 0)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "there is no expression"),
        ("lane / 2", "use // for whole numbers"),
        ("lane ** 2", "write a product"),
        ("tid * 2", "names tid; the only name is lane"),
        ("lane * 1.5", "has `1.5`, which is not known here"),
        ("lane - 5", "gives lane 0 the index -5"),
        ("8 // (lane - 3)", "divides by zero for lane 3"),
        ("1 << 40", "shifts by 40"),
        ("9" * 60, "expected numbers up to"),
        ("lane *", "is no expression"),
        ("(" * 100, "is no expression"),
        ("lane" + " + 1" * 60, "has 244 characters"),
        ("None + 1", "computes with None"),
        ("True", "has `True`"),
        ("lane in (1, 2)", "has `lane in (1, 2)`"),
        ("__import__('os').getcwd()", "which is not known here"),
        ("lane.__class__", "which is not known here"),
        ("(lambda: 1)()", "which is not known here"),
        ("[lane for lane in range(3)][0]", "which is not known here"),
        ("'a' * 9", "which is not known here"),
    ],
)
def test_everything_else_is_refused_with_one_sentence(expression, message):
    with pytest.raises(BadArgument) as caught:
        indices(expression)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_holds_where_python_says_so(condition):
    expected = tuple(bool(eval(condition, {"__builtins__": {}}, {"lane": lane})) for lane in range(64))
    assert truths(condition, 64) == expected
    assert indices(f"1 if {condition} else 0", 64) == tuple(map(int, expected))
