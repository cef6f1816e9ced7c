"""Fills a gradebook that Canvas or Moodle has exported: its rows and ids stay, the columns of the units get the marks.

Both programs know their students by ids of their own, so this is the safe way back into them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpu_utils.classroom.exports import Cell, table, title
from gpu_utils.classroom.marks import Student, plain
from gpu_utils.errors import ClassroomError

_IDS = {
    "canvas": ("ID", "SIS User ID", "SIS Login ID", "Integration ID"),
    "moodle": ("ID number", "Username", "Email address"),
}


@dataclass(frozen=True)
class Filled:
    """A filled gradebook.

    kind     whose it is
    content  the file
    unknown  ids of students who are not in it, so that their marks are not, either
    """

    kind: Literal["canvas", "moodle"]
    content: bytes
    unknown: tuple[str, ...]


def fill(path: Path, students: Sequence[Student]) -> Filled:
    """The exported gradebook with the marks in it; the column of a unit that it lacks is added at the end.

    A column is a unit's when its title holds "Unit 00" or "Lab 00", or begins with "00". Raises ClassroomError for a
    file that is no such export, a unit with two columns, and an id that is in two rows.
    """
    rows, delimiter = _read(path)
    header, body = rows[0], rows[1:]
    kind = _kind(header, path)
    units = [mark.unit for mark in students[0].marks] if students else []
    columns = {unit: _column(header, unit, path) for unit in units}
    at = _rows_of(kind, header, body, students, path)
    for mark in students[0].marks if students else ():
        for row in body if kind == "canvas" else ():
            if row and "Points Possible" in row[0] and not row[columns[mark.unit]].strip():
                row[columns[mark.unit]] = plain(mark.out_of)
    for student in students:
        for mark in student.marks if student.id in at else ():
            body[at[student.id]][columns[mark.unit]] = plain(mark.points)
    filled: list[list[Cell]] = [list(row) for row in rows]
    unknown = tuple(student.id for student in students if student.id not in at)
    return Filled(kind, table(filled, delimiter), unknown)


def _read(path: Path) -> tuple[list[list[str]], str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise ClassroomError(f"{path} cannot be read as a table ({problem}); export it again as CSV, UTF-8") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    if not rows:
        raise ClassroomError(f"{path} is empty; expected the gradebook as Canvas or Moodle exports it")
    width = max(map(len, rows))
    return [row + [""] * (width - len(row)) for row in rows], delimiter


def _kind(header: Sequence[str], path: Path) -> Literal["canvas", "moodle"]:
    if {"Student", "ID", "Section"} <= set(header):
        return "canvas"
    if set(_IDS["moodle"]) & set(header):
        return "moodle"
    raise ClassroomError(
        f"{path} has the columns {', '.join(header[:6])}; expected Canvas's (Student, ID, Section) or Moodle's "
        "(ID number or Email address): export the gradebook there and give that file"
    )


def _column(header: list[str], unit: str, path: Path) -> int:
    """Of the unit, in the header; a new one at the end where there is none (the rows are made longer when written)."""
    own = re.compile(rf"^\s*{unit}\b|\b(unit|lab)\s*{unit}\b", re.IGNORECASE)
    found = [place for place, name in enumerate(header) if own.search(name)]
    if len(found) > 1:
        names = ", ".join(header[place] for place in found)
        raise ClassroomError(f"{path} has {len(found)} columns for unit {unit} ({names}); keep one of them in the file")
    if not found:
        header.append(title(unit))
    return found[0] if found else len(header) - 1


def _rows_of(
    kind: str, header: Sequence[str], body: list[list[str]], students: Sequence[Student], path: Path
) -> dict[str, int]:
    """Student -> place in the body, by any of the ids that the export has, upper and lower case alike."""
    places: dict[str, set[int]] = {}
    ids = [place for place, name in enumerate(header) if name in _IDS[kind]]
    for number, row in enumerate(body):
        row += [""] * (len(header) - len(row))
        for place in ids:
            if key := row[place].strip().casefold():
                places.setdefault(key, set()).add(number)
    found = {}
    for student in students:
        having = places.get(student.id.strip().casefold(), set())
        if len(having) > 1:
            raise ClassroomError(f"{path} has the id {student.id!r} in {len(having)} rows; expected it in one")
        if having:
            found[student.id] = having.pop()
    taken: dict[int, str] = {}
    for student_id, number in found.items():
        if number in taken:
            raise ClassroomError(
                f"{student_id!r} and {taken[number]!r} are one row of {path}; expected one id for each"
            )
        taken[number] = student_id
    return found
