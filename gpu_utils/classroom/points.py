"""What a teacher writes down for a release: points of exercises, the late policy, and when a unit is due.

The file of points is YAML. An exercise that is not named is worth 1.

    00.saxpy: 3
    00.find_mask: 0.5
    late: {grace_minutes: 10, per_day: 0.1, most_days: 5}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gpu_utils.classroom.records import Late
from gpu_utils.errors import ClassroomError, UnknownName

LATE = "late"
_LATE_KEYS = tuple(field.name for field in fields(Late))


def read_points(path: Path, exercises: Sequence[str]) -> tuple[dict[str, float], Late]:
    """The points of exercises, and the late policy, in a file; `exercises` are the ids that it may name.

    Raises ClassroomError, one sentence, for a file that is missing or not YAML, an unknown id, one that is named twice,
    and a value that is no number from 0.
    """
    try:
        text = path.read_text(encoding="utf-8")
        root, found = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except OSError as problem:
        raise ClassroomError(f"{path} cannot be read: {problem.strerror}; expected a file of points") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        said = _yaml_problem(problem)
        raise ClassroomError(f"{path} is not YAML ({said}); write lines like `00.saxpy: 2`") from None
    if found is None:
        return {}, Late()
    if not isinstance(found, dict):
        raise ClassroomError(f"{path} holds no table of points; write lines like `00.saxpy: 2`")
    names = [key.value for key, _ in root.value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ClassroomError(f"{path} names {twice!r} twice; keep one of the two lines")
    points = {}
    for name, value in found.items():
        if name == LATE:
            continue
        if name not in exercises:
            raise ClassroomError(f"{path}: {UnknownName('exercise in this release', name, exercises)}")
        points[name] = _number(value, f"{path}: {name}", "points")
    return points, _late(found.get(LATE, {}), path)


def _yaml_problem(problem: Exception) -> str:
    """What YAML says, and where, without its drawing of the line."""
    mark = getattr(problem, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    return where + " ".join(str(getattr(problem, "problem", None) or problem).split())


def _late(given: Any, path: Path) -> Late:
    if not isinstance(given, dict) or not given.keys() <= set(_LATE_KEYS):
        raise ClassroomError(f"{path}: {LATE} is {given!r}; expected a table with some of {', '.join(_LATE_KEYS)}")
    numbers = {
        key: _number(value, f"{path}: {LATE}.{key}", "a number") for key, value in given.items() if value is not None
    }
    most = numbers.get("most_days")
    if numbers.get("per_day", 0) > 1:
        raise ClassroomError(
            f"{path}: {LATE}.per_day is {numbers['per_day']:g}; it is a share of the marks, from 0 to 1"
        )
    if most is not None and most != int(most):
        raise ClassroomError(f"{path}: {LATE}.most_days is {most:g}; expected a whole number of days")
    return Late(numbers.get("grace_minutes", 0.0), numbers.get("per_day", 0.0), None if most is None else int(most))


def _number(value: Any, where: str, what: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if not good:
        raise ClassroomError(f"{where} is {value!r}; expected {what}, 0 or more, like 2 or 0.5")
    return float(value)


def read_due(given: Sequence[str], units: Sequence[str]) -> dict[str, datetime]:
    """When each unit is due, from texts like "2026-12-01T23:59+01:00", for all units, or "00=2026-12-01T23:59".

    A time without a zone is one of this machine's zone. Raises ClassroomError for a text that is no date and time, a
    unit that is not in `units`, and two times for one unit; a time for one unit goes before one for all.
    """
    own: dict[str, datetime] = {}
    for text in given:
        unit, _, when = text.rpartition("=")
        if unit and unit not in units:
            raise ClassroomError(f"--due {text}: {UnknownName('unit in this release', unit, units)}")
        if unit in own:
            raise ClassroomError(f"--due is given twice for {unit or 'all units'}; keep one of the two")
        own[unit] = _moment(when, text)
    for_all = dict.fromkeys(units, own[""]) if "" in own else {}
    return for_all | {unit: moment for unit, moment in own.items() if unit}


def _moment(when: str, text: str) -> datetime:
    try:
        if len(when) <= len("2026-12-01"):  # a day alone would be its first moment, which nobody means
            raise ValueError("it has no time of day")
        moment = datetime.fromisoformat(when)
    except ValueError as problem:
        raise ClassroomError(f"--due {text}: {problem}; write it like 2026-12-01T23:59+01:00") from None
    return moment if moment.tzinfo else moment.astimezone()
