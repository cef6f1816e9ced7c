"""The learner's copies of the labs: made once, started over only with the old copy kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpu_utils.command import w2w
from gpu_utils.course.build import render
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
    """Copies the unit's lab to work/ and returns the copy.

    Raises WorkConflict when there is one already, CannotWrite when work/ cannot be written to, and ContentError when
    the unit has no lab yet.
    """
    lab, copy = _lab(course, unit), course.copy(unit)
    try:
        write_new(copy, lab)
    except WorkConflict:
        raise WorkConflict(
            f"{course.relative(copy)} exists already, and was left as it is; go on with `{w2w('study')}` or by opening "
            f"it, or start over with `{w2w(f'reset {unit.number}')}`, which keeps this copy beside the new one"
        ) from None
    return copy


def reset(course: Course, unit: Unit, now: datetime) -> tuple[Path, Path | None]:
    """Starts the unit over; returns the fresh copy and where the old one is kept (None when there was none).

    The old copy is on the disk under its new name before the fresh one takes its place. Raises as `start`.
    """
    lab, copy = _lab(course, unit), course.copy(unit)
    kept = keep(copy, course.work, now) if copy.exists() else None
    write_atomically(copy, lab)
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


def _lab(course: Course, unit: Unit) -> bytes:
    """The untouched lab, from content/: the file in labs/ may have been opened and edited."""
    if not course.source(unit, "lab").is_file():
        raise ContentError(f"{course.relative(course.source(unit, 'lab'))}:1: unit {unit.name} has no lab yet")
    return render(course, unit, "lab").encode()
