"""Starting a unit, and starting it over with the old copy kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpu_utils.command import w2w
from gpu_utils.course import copies
from gpu_utils.course.build import as_text
from gpu_utils.course.cells import parse_cells
from gpu_utils.course.files import keep, write_atomically, write_new
from gpu_utils.course.paths import Course
from gpu_utils.course.units import UNITS, Unit
from gpu_utils.errors import ContentError, WorkConflict


@dataclass(frozen=True)
class Row:
    """One unit in a list: whether it is written, how many exercises its lab has, and the learner's copy, if any."""

    unit: Unit
    written: bool
    exercises: int
    copy: Path | None


def start(course: Course, unit: Unit) -> Path:
    """Copies the unit's lab, its lesson and its files to work/ and returns the copy of the lab.

    Raises WorkConflict when there is a lab already, CannotWrite when work/ cannot be written to, and ContentError when
    the unit has no lab yet.
    """
    _must_exist(course, unit, "lab")
    copy, lab = course.copy(unit), copies.notebook(course, unit, "lab")
    try:
        write_new(copy, as_text(lab).encode())
    except WorkConflict:
        raise WorkConflict(
            f"{course.relative(copy)} exists already, and was left as it is; go on with `{w2w('study')}` or by opening "
            f"it, or start over with `{w2w(f'reset {unit.number}')}`, which keeps this copy beside the new one"
        ) from None
    if course.source(unit, "lesson").is_file():
        copies.make(course, unit, "lesson")
    copies.make_files(course, unit)
    return copy


def reset(course: Course, unit: Unit, now: datetime, kind: str = "lab") -> tuple[Path, Path | None]:
    """Starts the unit's lab or lesson over; returns the fresh copy and where the old one is kept, if there was one.

    The old copy is on the disk under its new name before the fresh one takes its place. Raises as `start`.
    """
    _must_exist(course, unit, kind)
    copy, fresh = course.copy(unit, kind), copies.notebook(course, unit, kind)
    kept = keep(copy, copy.parent, now) if copy.exists() else None
    write_atomically(copy, as_text(fresh).encode())
    return copy, kept


def rows(course: Course) -> list[Row]:
    """All sixteen units, in order."""
    return [
        Row(
            unit,
            course.is_written(unit),
            len(exercises(course, unit)),
            course.copy(unit) if course.copy(unit).exists() else None,
        )
        for unit in UNITS
    ]


def exercises(course: Course, unit: Unit) -> list[str]:
    """The ids of the exercises of the unit's lab, in their order; none when there is no lab yet."""
    path = course.source(unit, "lab")
    if not path.is_file():
        return []
    cells = parse_cells(path.read_text(encoding="utf-8"), course.relative(path))
    return [exercise for cell in cells if "answer" in cell.tags for exercise in cell.exercises]


def _must_exist(course: Course, unit: Unit, kind: str) -> None:
    """The copy is made from content/: the file in labs/ or notebooks/ may have been opened and edited."""
    if not course.source(unit, kind).is_file():
        raise ContentError(f"{course.relative(course.source(unit, kind))}:1: unit {unit.name} has no {kind} yet")
