"""Comparing what an answer returned with what was expected; the first difference, in one sentence.

What the answer returned is plain data by now (`gpu_utils.grading.plain`). A wrong number that has a simple relation to
the right one says so (`gpu_utils.grading.relations`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.grading import relations
from gpu_utils.grading.plain import NotPlain


@dataclass(frozen=True)
class Difference:
    """kind is stable ("type", "shape", "dtype", "nan", "value"); detail is for the learner."""

    kind: str
    detail: str


Tolerances = Tolerance | Mapping[Any, Tolerance]
Dtypes = torch.dtype | None | Mapping[Any, torch.dtype | None]
"""One for the whole result, or by the keys of a dict or the places in a list: {"loss": float32, "dlogits": float16}."""


def compare(
    expected: Any,
    got: Any,
    tol: Tolerances,
    dtype: Dtypes = None,
    where: str = "the result",
    parts: Sequence[str] = (),
) -> Difference | None:
    """The first difference between two trees of tensors, numbers and strings; None when they agree.

    Floating-point tensors are compared in float64 against `tol`; everything else must be equal. `dtype`, when given,
    is the type that floating-point tensors must have. Both may differ from one part of the result to the next. `parts`
    are the names of a tuple's, or a dict's in its order: then those that are right are named beside the first that is
    not.
    """
    if isinstance(expected, dict):
        return _compare_dicts(expected, got, tol, dtype, where, parts)
    if isinstance(expected, (list, tuple)):
        return _compare_sequences(expected, got, tol, dtype, where, parts)
    assert isinstance(tol, Tolerance), f"{where} has no parts, and its tolerance has"
    assert not isinstance(dtype, Mapping), f"{where} has no parts, and its dtype has"
    if isinstance(expected, torch.Tensor):
        return _compare_tensors(expected, got, tol, dtype, where)
    return _compare_scalars(expected, got, tol, where)


def of_part(whole: Any, key: Any) -> Any:
    """What a part of the result has of a tolerance or dtype: its own, where they differ."""
    return whole[key] if isinstance(whole, Mapping) else whole


def _name(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, NotPlain):
        return value.found
    if value is None:
        return "None (is a return missing?)"
    if isinstance(value, (list, tuple)):
        return f"a list or tuple of {_values(len(value))}"
    if isinstance(value, dict):
        return f"a dict with keys {_keys(value)}"
    return f"{type(value).__name__} {_short(value)}"


def _keys(value: dict) -> str:
    """Its keys as the learner wrote them; the first eight of many."""
    shown = [key[:60] if isinstance(key, str) else _short(key) for key in list(value)[:8]]
    return ", ".join([*shown, *(["..."] if len(value) > 8 else [])]) or "none"


def _values(number: int) -> str:
    return f"{number} value{'s' * (number != 1)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _compare_dicts(
    expected: dict, got: Any, tol: Tolerances, dtype: Dtypes, where: str, parts: Sequence[str]
) -> Difference | None:
    if not isinstance(got, dict):
        return Difference("type", f"{where} is {_name(got)}, expected a dict with keys {_keys(expected)}")
    missing = [key for key in expected if key not in got]
    if missing:
        return Difference("type", f"{where} has no key {missing[0]!r}; its keys are {_keys(got)}")
    extra = [key for key in got if key not in expected]
    if extra:
        return Difference("type", f"{where} has a key {_short(extra[0])} that was not asked for")
    names = dict(zip(expected, parts or [f"{where}[{key!r}]" for key in expected], strict=True))

    def part(key: Any) -> Difference | None:
        found = compare(expected[key], got[key], of_part(tol, key), of_part(dtype, key), names[key])
        return _with_size(found, expected[key], got[key], names[key]) if parts else found

    return _first_of(names, parts, part)


def _compare_sequences(
    expected: list | tuple, got: Any, tol: Tolerances, dtype: Dtypes, where: str, parts: Sequence[str]
) -> Difference | None:
    if isinstance(got, torch.Tensor) and got.ndim == 1:
        got = got.tolist()
    if not isinstance(got, (list, tuple)):
        return Difference("type", f"{where} is {_name(got)}, expected a list or tuple of {_values(len(expected))}")
    if len(got) != len(expected):
        return Difference("shape", f"{where} has {_values(len(got))}, expected {len(expected)}")
    names = parts or [f"{where}[{index}]" for index in range(len(expected))]

    def part(index: int) -> Difference | None:
        found = compare(expected[index], got[index], of_part(tol, index), of_part(dtype, index), names[index])
        if parts:
            return _with_size(found, expected[index], got[index], names[index])
        return found and _with_relation(found, _relation_of_lists(expected, got, of_part(tol, index)))

    return _first_of(dict(enumerate(names)), parts, part)


def _first_of(
    names: Mapping[Any, str], told: Sequence[str], part: Callable[[Any], Difference | None]
) -> Difference | None:
    """The difference of the first part that has one. told: whether to name the parts that are right."""
    for key in names:
        if difference := part(key):
            others = {name: part(at) is None for at, name in names.items() if told and at != key}
            return _with_other_parts(difference, others)
    return None


def _with_size(difference: Difference | None, expected: Any, got: Any, name: str) -> Difference | None:
    """The difference with that of all elements, as a share of what is right: a format's, or that of another sum."""
    if difference is None or difference.kind != "value" or not isinstance(expected, torch.Tensor):
        return difference
    right, off = expected.double(), got.detach().cpu().double() - expected.double()
    share = float(off.square().mean().sqrt() / right.square().mean().sqrt())
    if expected.numel() < 2 or not 0 < share < 10:  # NaN, too
        return difference
    said = f"the difference is {100 * share:{'.0f' if share > 0.1 else '.2g'}}% of {name} (root mean square)"
    return Difference("value", f"{difference.detail}; {said}")


def _with_other_parts(difference: Difference, others: Mapping[str, bool]) -> Difference:
    """others: the other parts, whether they are right. Where none is, nothing is said of them."""
    right, wrong = ([name for name, is_right in others.items() if is_right is wanted] for wanted in (True, False))
    if not right:
        return difference
    said = f"{' and '.join(right)} {'is' if len(right) == 1 else 'are'} right"
    rest = f", {' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not" if wrong else ""
    return Difference(difference.kind, f"{difference.detail}; {said}{rest}")


def _with_relation(difference: Difference, relation: str) -> Difference:
    """The difference with the relation of the whole added, unless its own element has named one."""
    if not relation or difference.kind != "value" or ";" in difference.detail:
        return difference
    return Difference("value", f"{difference.detail}; {relation}")


def _relation_of_lists(expected: list | tuple, got: list | tuple, tol: Tolerance) -> str:
    if len(expected) < 3 or not all(type(one) in (int, float) and abs(one) < 1e300 for one in (*expected, *got)):
        return ""
    right, yours = (torch.tensor([float(one) for one in many], dtype=torch.float64) for many in (expected, got))
    return relations.of_tensors(right, yours, tol.atol + tol.rtol * right.abs())


def _compare_scalars(expected: Any, got: Any, tol: Tolerance, where: str) -> Difference | None:
    if isinstance(got, torch.Tensor) and got.ndim == 0 and isinstance(expected, (int, float)):
        got = got.item()
    numeric = isinstance(expected, (int, float)) and not isinstance(expected, bool)
    if numeric and (isinstance(got, bool) or not isinstance(got, (int, float))):
        return Difference("type", f"{where} is {_name(got)}, expected a number")
    if not numeric:
        if type(got) is not type(expected):
            return Difference("type", f"{where} is {_name(got)}, expected {type(expected).__name__} {_short(expected)}")
        return (
            None if got == expected else Difference("value", f"{where} is {_short(got)}, expected {_short(expected)}")
        )
    got = int.__int__(got) if isinstance(got, int) else float.__float__(got)  # a subclass may claim to equal anything
    if isinstance(got, float) and math.isnan(got):
        return None if math.isnan(expected) else Difference("nan", f"{where} is NaN, expected {expected!r}")
    if got == expected or (isinstance(expected, float) and _near(expected, got, tol)):
        return None
    relation = relations.of_numbers(expected, got)
    found, wanted = _pair(got, expected)
    wide = f" (tolerance: {tol.why})" if isinstance(expected, float) and tol.atol >= 1 else ""
    return Difference("value", f"{where} is {found}, expected {wanted}{relation and f'; {relation}'}{wide}")


def _near(expected: float, got: int | float, tol: Tolerance) -> bool:
    try:
        return abs(got - expected) <= tol.atol + tol.rtol * abs(expected)
    except OverflowError:  # a whole number that no float can hold
        return False


def _compare_tensors(
    expected: torch.Tensor, got: Any, tol: Tolerance, dtype: torch.dtype | None, where: str
) -> Difference | None:
    if type(got) is not torch.Tensor and not isinstance(got, torch.nn.Parameter):
        if isinstance(got, torch.Tensor):
            return Difference("type", f"{where} is a {type(got).__name__}, a subclass; expected a plain torch.Tensor")
        return Difference("type", f"{where} is {_name(got)}, expected a tensor of shape {tuple(expected.shape)}")
    if got.layout != torch.strided or got.is_quantized or got.is_nested:
        kind = "quantized" if got.is_quantized else "nested" if got.is_nested else str(got.layout)
        return Difference("type", f"{where} is a tensor of another kind ({kind}), expected an ordinary dense one")
    if got.shape != expected.shape:
        return Difference("shape", f"{where} has shape {tuple(got.shape)}, expected {tuple(expected.shape)}")
    wanted = dtype if dtype is not None and expected.is_floating_point() else None
    if wanted is not None and got.dtype != wanted:
        return Difference("dtype", f"{where} has dtype {got.dtype}, expected {wanted}")
    if got.is_floating_point() != expected.is_floating_point() or got.is_complex():
        return Difference("dtype", f"{where} has dtype {got.dtype}, expected one like {expected.dtype}")
    if got.numel() == 0:
        return None
    got = got.detach().cpu()
    if not expected.is_floating_point():
        bad = got.to(torch.int64) != expected.to(torch.int64)
        margin = torch.zeros(expected.shape, dtype=torch.float64)
        return _first_wrong(bad, expected, got, margin, where, "value", "exact") if bad.any() else None
    got64, expected64 = got.double(), expected.double()
    margin = tol.atol + tol.rtol * expected64.abs()
    nan = got64.isnan() & ~expected64.isnan()
    if nan.any():
        note = "NaN, either computed or never written: new memory is filled with NaN during a check"
        return _first_wrong(nan, expected64, got64, margin, where, "nan", note)
    # a NaN or an infinity that was expected must be met by the same
    bad = (got64 - expected64).abs() > margin
    bad |= expected64.isnan() != got64.isnan()
    bad |= (expected64.isinf() | got64.isinf()) & (expected64 != got64)
    if not bad.any():
        return None
    return _first_wrong(bad, expected64, got64, margin, where, "value", f"tolerance: {tol.why}")


def _first_wrong(
    bad: torch.Tensor, expected: torch.Tensor, got: torch.Tensor, margin: torch.Tensor, where: str, kind: str, note: str
) -> Difference:
    index = tuple(bad.nonzero()[0].tolist())
    place = f"{where}[{', '.join(map(str, index))}]" if index else where
    found, wanted = got[index].item(), expected[index].item()
    count = int(bad.sum())
    relation = relations.of_tensors(expected.double(), got.double(), margin) if kind == "value" else ""
    differ = f"{count} of {bad.numel()} elements differ" if bad.numel() > 1 else relations.of_numbers(wanted, found)
    said = "; ".join(part for part in (differ, relation) if part)
    mine, right = _pair(found, wanted)
    return Difference(kind, f"{place} = {mine}, expected {right}{said and f'; {said}'} ({note})")


def _pair(one: float, other: float) -> tuple[str, str]:
    """Two numbers in as many digits as show that they differ, six at least; whole numbers in full."""
    if all(abs(value) < 1e15 and float(value).is_integer() for value in (one, other)):
        return str(int(one)), str(int(other))
    for digits in range(6, 18):
        texts = [f"{value:.{digits}g}" if isinstance(value, float) else _short(value) for value in (one, other)]
        if texts[0] != texts[1] or not all(isinstance(value, float) for value in (one, other)):
            break
    return texts[0], texts[1]
