"""The exercises of the course: a package for each unit, and in it a module for each exercise, named like it.

Which exercises there are, and their hints, is known without importing them: they need torch, which takes seconds, and
a learner who asks for a hint or for their progress need not wait for it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_utils.errors import UnknownName

if TYPE_CHECKING:
    from gpu_utils.grading.exercise import Exercise


@functools.cache
def _unit_modules() -> dict[str, str]:
    """Unit number -> module name: {"00": "gpu_utils.exercises.u00_start"}."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return {name[1:3]: f"{__name__}.{name}" for name in sorted(names) if name[0] == "u" and name[1:3].isdigit()}


def ids(number: str | None = None) -> list[str]:
    """The ids of the exercises of unit "00", or of all, in the order of the labs. Imports no exercise."""
    if number is None:
        return [name for known in _unit_modules() for name in ids(known)]
    if number not in _unit_modules():
        raise UnknownName("unit with exercises", number, _unit_modules())
    return [f"{number}.{name}" for name in importlib.import_module(_unit_modules()[number]).NAMES]


def of_unit(number: str) -> tuple[Exercise, ...]:
    """The exercises of unit "00", in the order of the lab."""
    return tuple(find(name) for name in ids(number))


def every() -> tuple[Exercise, ...]:
    """All exercises of the course, in order."""
    return tuple(find(name) for name in ids())


def find(exercise_id: str) -> Exercise:
    """The exercise with this id; UnknownName offers the nearest ids."""
    return importlib.import_module(module_of(exercise_id)).EXERCISE


def hints(exercise_id: str) -> tuple[str, str, str]:
    """The hints of an exercise, read from its module's text; the module is imported only if they are not plain text.

    >>> hints("02.attainable")[2][:40]
    'tflops = min(peak_tflops, intensity * ba'
    """
    *_, unit, name = module_of(exercise_id).split(".")
    source = Path(__file__).with_name(unit) / f"{name}.py"
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Exercise":
            try:
                return ast.literal_eval(next(given.value for given in node.keywords if given.arg == "hints"))
            except (StopIteration, ValueError):
                break
    return find(exercise_id).hints


def module_of(exercise_id: str) -> str:
    """The name of the module that holds an exercise, which is not imported. Raises UnknownName as `find` does."""
    number, _, name = str(exercise_id).partition(".")
    known = ids(number) if number in _unit_modules() else ids()
    if exercise_id not in known:
        raise UnknownName("exercise", exercise_id, ids())
    return f"{_unit_modules()[number]}.{name}"
