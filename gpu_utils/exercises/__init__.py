"""The exercises of the course, one package a unit; a unit is imported when one of its exercises is asked for."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from gpu_utils.errors import UnknownName
from gpu_utils.grading.exercise import Exercise


@functools.cache
def _unit_modules() -> dict[str, str]:
    """Unit number -> module name: {"00": "u00_start"}."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return {name[1:3]: name for name in sorted(names) if name[0] == "u" and name[1:3].isdigit()}


def of_unit(number: str) -> tuple[Exercise, ...]:
    """The exercises of unit "00", in the order of the lab."""
    if number not in _unit_modules():
        raise UnknownName("unit with exercises", number, _unit_modules())
    return importlib.import_module(f"{__name__}.{_unit_modules()[number]}").EXERCISES


def every() -> tuple[Exercise, ...]:
    """All exercises of the course, in order."""
    return tuple(exercise for number in _unit_modules() for exercise in of_unit(number))


def find(exercise_id: str) -> Exercise:
    """The exercise with this id; UnknownName offers the nearest ids."""
    number = str(exercise_id).split(".")[0]
    candidates = of_unit(number) if number in _unit_modules() else every()
    for exercise in candidates:
        if exercise.id == exercise_id:
            return exercise
    raise UnknownName("exercise", exercise_id, [exercise.id for exercise in every()])
