"""An attempt on its way between processes, as plain fields that are read one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpu_utils.grading.execute import Attempt
from gpu_utils.grading.plain import plain


def fields_of(attempt: Attempt) -> dict[str, Any]:
    """Name of a field -> its value."""
    return {field.name: getattr(attempt, field.name) for field in dataclasses.fields(attempt)}


def attempt_of(fields: Any) -> Attempt:
    """An Attempt from what the child wrote. Raises TypeError, in words, for a field that no attempt of ours has so."""
    expected = {field.name: field for field in dataclasses.fields(Attempt)}
    if not isinstance(fields, dict) or set(fields) != set(expected):
        raise TypeError("it has other fields than an attempt")
    blank = Attempt()
    for name, found in fields.items():
        kind = type(getattr(blank, name))
        if name != "value" and (type(found) is not kind or not _holds(found, _ITEMS.get(name, ()))):
            raise TypeError(f"its field {name} is of another kind")
    return Attempt(**{**fields, "value": plain(fields["value"])})


_ITEMS: dict[str, tuple[type, ...]] = {"mutated": (str,), "counters": (int, float), "compiled": (str,)}


def _holds(found: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(found, dict):
        return all(type(key) is str and type(item) in kinds for key, item in found.items())
    return not isinstance(found, tuple) or all(type(item) in kinds for item in found)
