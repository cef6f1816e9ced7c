"""Comparing rows that an answer read from a file with those that stand in it: which row, which field.

What is wrong with a value is of the kind "value", so that two answers are alike only where all of their values are.
What is wrong with the form of the result is of the kind "type".
"""

from __future__ import annotations

from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u13_profiling.judging import short
from gpu_utils.grading import relations
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.plain import NotPlain

Rows = list[dict[str, Any]]


def wrong_row(expected: Rows, found: Any, tol: Tolerance, name: str) -> Difference | None:
    """The first thing that is wrong with a list of rows, a dict each, in one sentence; None where nothing is.

    name  the field that people call a row by: "kernel"
    """
    if not isinstance(found, (list, tuple)):
        return Difference("type", f"the result is {_said(found)}, expected a list with one dict for each kernel")
    for at, row in enumerate(found):
        if problem := _wrong_form(row, list(expected[0]) if expected else [], at):
            return problem
    if len(found) != len(expected):
        return Difference(
            "value", f"{_rows(len(found))} came back, expected {len(expected)}{_first_other(expected, found, name)}"
        )
    for at, right in enumerate(expected):
        for field in right:
            wrong = [_wrong_value(e[field], f[field], tol, field) for e, f in zip(expected, found, strict=True)]
            if wrong[at]:
                count = f"{field} is wrong in {sum(map(bool, wrong))} of {_rows(len(expected))}"
                return Difference("value", f"row {at}, {_said(right[name])}: {wrong[at]} ({count})")
    return None


def _first_other(expected: Rows, found: Any, name: str) -> str:
    for at, (right, row) in enumerate(zip(expected, found, strict=False)):
        if not isinstance(row[name], str) or row[name] != right[name]:
            return f"; row {at} is {_said(row[name])}, expected {_said(right[name])}"
    longer, words = (expected, "missing") if len(expected) > len(found) else (found, "too many")
    at = min(len(expected), len(found))
    called = f", {_said(longer[at][name])}," if name in longer[at] else ""
    return f"; row {at}{called} is {'' if words == 'missing' else 'one '}{words}"


def _wrong_form(row: Any, fields: list[str], at: int) -> Difference | None:
    if not isinstance(row, dict):
        return Difference("type", f"row {at} is {_said(row)}, expected a dict with {', '.join(fields)}")
    if missing := [field for field in fields if field not in row]:
        return Difference("type", f"row {at} has no field {missing[0]!r}; it has {_fields(row)}")
    if extra := [field for field in row if fields and field not in fields]:
        return Difference("type", f"row {at} has a field {_said(extra[0])} that was not asked for")
    return None


def _wrong_value(right: Any, value: Any, tol: Tolerance, where: str) -> str:
    """What is wrong with one value, "" where nothing is."""
    if isinstance(right, dict):
        return _wrong_dict(right, value, tol, where)
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(right, (list, tuple)):
        same = isinstance(value, (list, tuple)) and list(value) == list(right)
        return "" if same else f"{where} is {_said(value)}, expected {_said(tuple(right))}"
    if not isinstance(right, (int, float)):
        return (
            ""
            if type(value) is type(right) and value == right
            else f"{where} is {_said(value)}, expected {_said(right)}"
        )
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{where} is {_said(value)}, expected {_said(right)}"
    if value == right or (isinstance(right, float) and _near(right, value, tol)):
        return ""
    relation = relations.of_numbers(right, value)
    return f"{where} is {_said(value)}, expected {_said(right)}{relation and f'; {relation}'}"


def _near(right: float, value: float, tol: Tolerance) -> bool:
    try:
        return abs(value - right) <= tol.atol + tol.rtol * abs(right)
    except OverflowError:  # a whole number that no float can hold
        return False


def _wrong_dict(right: dict[str, Any], value: Any, tol: Tolerance, where: str) -> str:
    if not isinstance(value, dict):
        return f"{where} is {_said(value)}, expected a dict"
    if missing := [name for name in right if name not in value]:
        return f"{where} has no {missing[0]!r}"
    if extra := [name for name in value if name not in right]:
        return f"{where} has {_said(extra[0])}, which is not of this kernel"
    every = (_wrong_value(one, value[name], tol, f"{where}[{name!r}]") for name, one in right.items())
    return next(filter(None, every), "")


def _rows(number: int) -> str:
    return f"{number} row{'s' * (number != 1)}"


def _said(value: Any) -> str:
    """A value in few letters, as a learner would write it.

    >>> _said([1, 1, 1]), _said(2500.0), _said("x" * 99)[-6:]
    ('(1, 1, 1)', '2500.0', 'xxx...')
    """
    if isinstance(value, NotPlain):
        return value.found
    if isinstance(value, list) and all(isinstance(one, (int, float)) for one in value):
        value = tuple(value)
    return short(value, repr)


def _fields(row: dict[Any, Any]) -> str:
    return ", ".join(map(short, list(row)[:12])) + ", ..." * (len(row) > 12) or "none"
