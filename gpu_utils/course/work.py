"""The learner's copies of the labs: made once, started over only with the old copy kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpu_utils.course.files import write_atomically, write_new
from gpu_utils.course.paths import Course
from gpu_utils.course.units import UNITS, Unit
from gpu_utils.errors import ContentError, WorkConflict
from gpu_utils.grading.notebook import answers


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
    the lab has not been built.
    """
    lab, copy = _lab(course, unit), course.copy(unit)
    try:
        write_new(copy, lab)
    except WorkConflict:
        raise WorkConflict(
            f"{course.relative(copy)} exists already, and was left as it is; go on with `w2w study` or by opening it, "
            f"or start over with `w2w reset {unit.number}`, which keeps this copy beside the new one"
        ) from None
    return copy


def reset(course: Course, unit: Unit, now: datetime) -> tuple[Path, Path | None]:
    """Starts the unit over; returns the fresh copy and where the old one is kept (None when there was none).

    The old copy is on the disk under its new name before the fresh one takes its place. Raises as `start`.
    """
    lab, copy = _lab(course, unit), course.copy(unit)
    kept = _keep(copy, now) if copy.exists() else None
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
    """The ids of the exercises in the unit's generated lab, sorted; none when it has not been built."""
    path = course.notebook(unit, "lab")
    return answers(path).exercises if path.is_file() else []


def _keep(copy: Path, now: datetime) -> Path:
    """Writes the copy once more under a name with the time, never over another file."""
    content = copy.read_bytes()
    stamp = f"{now:%Y%m%d-%H%M%S}"
    for name in (f"{copy.stem}.{stamp}", *(f"{copy.stem}.{stamp}-{count}" for count in range(2, 100))):
        try:
            kept = copy.with_name(f"{name}{copy.suffix}")
            write_new(kept, content)
            return kept
        except WorkConflict:
            continue
    raise WorkConflict(f"{copy} has 99 kept copies of this second already; nothing was changed")


def _lab(course: Course, unit: Unit) -> bytes:
    path = course.notebook(unit, "lab")
    if not path.is_file():
        raise ContentError(f"{course.relative(path)}:1: this lab has not been built; run `w2w build {unit.number}`")
    return path.read_bytes()
