"""The exercises of the course: a package for each unit, and in it a module for each exercise, named like it.

Which exercises there are, and their hints, is known without importing them: they need torch, which takes seconds, and
a learner who asks for a hint or for their progress need not wait for it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_utils.errors import ContentError, UnknownName

if TYPE_CHECKING:
    from gpu_utils.grading.challenge import Challenge
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


def challenge(number: str) -> Challenge:
    """The challenge of unit "04". Raises UnknownName, with the units that have one, for a unit that has none."""
    having = {
        known: name
        for known, name in _unit_modules().items()
        if Path(__file__).with_name(name.rpartition(".")[2]).joinpath("challenge.py").is_file()
    }
    if number not in having:
        raise UnknownName("unit with a challenge", number, having)
    return importlib.import_module(f"{having[number]}.challenge").CHALLENGE


def hints(exercise_id: str) -> tuple[str, str, str]:
    """The hints of an exercise, read from its module's text; the module is imported only if they are not plain text.

    >>> hints("02.best_tile")[2][:40]
    'bytes = 2 * (ceil(N / block_n) * M * K +'
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


def equivalents(exercise_id: str) -> dict[tuple[str, str], str]:
    """Mutants of the solution that are right answers too: (line, what it became) -> why, from the unit's table.

    The table is `equivalent.toml` beside the exercises. Raises ContentError for an entry that is not as it says there.
    """
    name = module_of(exercise_id).rpartition(".")[2]
    found: dict[tuple[str, str], str] = {}
    for entry in _equivalents(exercise_id.partition(".")[0]).get(name, []):
        if set(entry) != {"line", "becomes", "reason"} or not isinstance(entry["becomes"], list):
            has = ", ".join(entry)
            raise ContentError(
                f"equivalent.toml:1: an entry of {exercise_id} has {has}; expected line, becomes, reason"
            )
        found |= {(entry["line"], after): entry["reason"] for after in entry["becomes"]}
    return found


@functools.cache
def _equivalents(number: str) -> dict[str, list[dict[str, Any]]]:
    """The table of a unit: name of an exercise -> its entries. Raises ContentError for a name that is none."""
    path = Path(__file__).with_name(_unit_modules()[number].rpartition(".")[2]) / "equivalent.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name in table:
        if f"{number}.{name}" not in ids(number):
            raise ContentError(f"{path.name}:1: unit {number} has no exercise {name}")
    return table


def module_of(exercise_id: str) -> str:
    """The name of the module that holds an exercise, which is not imported. Raises UnknownName as `find` does."""
    number, _, name = str(exercise_id).partition(".")
    known = ids(number) if number in _unit_modules() else ids()
    if exercise_id not in known:
        raise UnknownName("exercise", exercise_id, ids())
    return f"{_unit_modules()[number]}.{name}"
