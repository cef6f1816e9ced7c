"""Judging a table of kernels: which kernel, which field, and how many others are wrong in the same field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.grading.compare import Difference, compare

Rows = Sequence[Mapping[str, Any]]


def rows_problem(expected: Rows, value: Any, tol: Tolerance, where: str = "the result") -> Difference | None:
    """What is wrong with a list of dicts, one for each kernel and in any order; None where all is right.

    Fields are looked at in the order of the expected dicts, each for all kernels: later ones may follow from it.

    >>> tol = Tolerance(1e-9, 0.0, "")
    >>> rows_problem([{"name": "gelu", "bytes": 2048}], [{"name": "gelu", "bytes": 2000}], tol).detail
    "'bytes' of gelu is 2000, expected 2048; expected is 1.024 (1024/1000) times yours"
    """
    names = [str(row["name"]) for row in expected]
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return compare(list(expected), value, tol, where=where) or Difference("type", f"{where} is no list of dicts")
    for row in value:
        if "name" not in row:
            return Difference("type", f"a dict in {where} has no 'name'; its keys are {_listed(list(row))}")
        if not isinstance(row["name"], str):
            return Difference("type", f"a 'name' in {where} is {short(row['name'])}, expected the name of a kernel")
    found = [row["name"] for row in value]
    if missing := [name for name in names if name not in found]:
        return Difference("value", f"{where} has no kernel {missing[0]}; it has {_listed(found)}")
    if extra := [name for name in found if name not in names]:
        return Difference("value", f"{where} has a kernel {short(extra[0])!r}; the profile has {_listed(names)}")
    if len(found) != len(names):
        twice = next(name for name in names if found.count(name) > 1)
        return Difference("value", f"{where} has {twice} {found.count(twice)} times, expected one dict for a name")
    by_name = {row["name"]: row for row in value}
    for row in value:
        if more := [key for key in row if key not in expected[0]]:
            return Difference("type", f"{row['name']} has {short(more[0])!r}, which was not asked for")
    for field in expected[0]:
        wrong = [one for row in expected if (one := _field(row, by_name[row["name"]], field, tol))]
        if wrong:
            others = f"; {field!r} of {len(wrong)} of {len(names)} kernels is wrong" * (len(wrong) > 1)
            return Difference(wrong[0].kind, wrong[0].detail + others)
    return None


def _field(row: Mapping[str, Any], got: Mapping[str, Any], field: str, tol: Tolerance) -> Difference | None:
    said = f"{field!r} of {row['name']}"
    if field not in got:
        return Difference("type", f"{row['name']} has no {field!r}; its keys are {_listed(list(got))}")
    expected, found = row[field], got[field]
    if isinstance(expected, list):
        return _names(expected, found, said)
    if expected is None and found is not None:
        return Difference("value", f"{said} is {short(found)}, expected None: it needs a counter that is unknown")
    return compare(expected, found, tol, where=said)


def _names(expected: list[str], found: Any, said: str) -> Difference | None:
    """Of names in any order."""
    if not isinstance(found, list):
        return compare(expected, found, Tolerance(0.0, 0.0, ""), where=said)
    if sorted(map(str, found)) == sorted(expected):
        return None
    return Difference("value", f"{said} is {_listed(found)}, expected {_listed(expected)}")


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(map(short, names[:8])) + ", ..." * (len(names) > 8) or "nothing"


def short(value: Any, write: Callable[[Any], str] = str) -> str:
    """What a learner wrote, in 60 letters at most.

    >>> short("gemm"), len(short("x" * 1000)), short(10**5000)
    ('gemm', 60, 'a number of very many digits')
    """
    try:
        text = write(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
