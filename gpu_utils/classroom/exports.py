"""Marks as files for other programs: spreadsheets, Canvas, Moodle, Gradescope.

Canvas reads a table whose first columns are Student, ID, SIS User ID, SIS Login ID and Section, in this order; a row
"Points Possible" may follow; every other column is an assignment, found by its title, or made (source: canvas-lms,
lib/gradebook_importer.rb). It looks a student up by ID, then by SIS User ID, SIS Login ID and name.

Moodle reads any table; at the import one says which column names the user (ID number, email address or username), and
which column is which grade item. A row of somebody unknown stops the whole import, and "-" is no grade (sources:
docs.moodle.org, Grade import; moodle, grade/import/csv/classes/load_data.php).

Gradescope's results.json: gradescope-autograders.readthedocs.io, Autograder Specifications, Output format. It has no
field for the most one can get besides those of the tests; ours stands in extra_data.

Text that a spreadsheet would execute gets an apostrophe in front (source: OWASP, CSV Injection). The files are UTF-8
with a byte order mark, by which Excel knows it; Canvas and Moodle skip the mark.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpu_utils.classroom.marks import Student, plain
from gpu_utils.classroom.shown import Shown

Cell = str | Decimal

_NUMBER = re.compile(r"-?\d+([.,]\d+)?")
_EXECUTED = re.compile(r"(^|[;\t\r\n])(\s*[\"']?\s*)(?=[=+\-@\t\r\n\0＝＋－＠])")


def harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula, also where it splits lines at semicolons.

    >>> harmless("=cmd|'/c calc'!A1"), harmless("a;@SUM(1)"), harmless("-3.5"), harmless("-"), harmless("a-b")
    ("'=cmd|'/c calc'!A1", "a;'@SUM(1)", '-3.5', '-', 'a-b')
    """
    if text == "-" or _NUMBER.fullmatch(text):
        return text
    return _EXECUTED.sub(r"\1'\2", text)


def table(rows: Iterable[Sequence[Cell]], delimiter: str = ",") -> bytes:
    """A CSV file: text made harmless, numbers as numbers, UTF-8 with a byte order mark."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    for row in rows:
        writer.writerow([plain(cell) if isinstance(cell, Decimal) else harmless(cell) for cell in row])
    return ("\ufeff" + file.getvalue()).encode("utf-8", "replace")


def title(unit: str) -> str:
    """The column of a unit in Canvas and Moodle. A number in brackets at its end would be an assignment's id."""
    return f"Unit {unit}"


def plain_csv(students: Sequence[Student], files: Mapping[str, str]) -> bytes:
    """A row for each student; for each unit its exercises, total, what it is out of, lateness and reason.

    files  student -> the file of their feedback
    """
    header: list[Cell] = ["student", "name"]
    for mark in students[0].marks if students else ():
        header += [
            *mark.exercises,
            *(f"{mark.unit} {name}" for name in ("total", "out of", "status", "late", "reason")),
        ]
    rows: list[list[Cell]] = [[*header, "total", "out of", "feedback"]]
    for student in students:
        row: list[Cell] = [_line(student.id), _line(student.name)]
        for mark in student.marks:
            row += [
                *mark.exercises.values(),
                mark.points,
                mark.out_of,
                mark.status,
                _line(mark.late),
                _line(mark.reason),
            ]
        rows.append([*row, student.points, student.out_of, files.get(student.id, "")])
    return table(rows)


def canvas_csv(students: Sequence[Student]) -> bytes:
    """The table that Canvas imports, for students whose ids are SIS ids or logins. Canvas's own export is safer."""
    marks = students[0].marks if students else ()
    rows: list[list[Cell]] = [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(title(mark.unit) for mark in marks)],
        ["    Points Possible", "", "", "", "", *(mark.out_of for mark in marks)],
    ]
    for student in students:
        # Canvas takes a row for that of the points when its first cell says so
        name = _line(student.name or student.id).replace("Points Possible", "Points-Possible")
        key = _line(student.id)
        rows.append([name, "", key, key, "", *(mark.points for mark in student.marks)])
    return table(rows)


def moodle_csv(students: Sequence[Student]) -> bytes:
    """The table that Moodle imports, for students whose ids are ID numbers, or email addresses where they hold an @."""
    marks = students[0].marks if students else ()
    rows: list[list[Cell]] = [["ID number", "Email address", "Name", *(title(mark.unit) for mark in marks)]]
    for student in students:
        key = _line(student.id)
        ids = ["", key] if "@" in key else [key, ""]
        rows.append([*ids, _line(student.name), *(mark.points for mark in student.marks)])
    return table(rows)


def gradescope(student: Student, told: Mapping[str, Shown]) -> dict[str, Any]:
    """One student's results.json; `told` is what they may see: exercise -> Shown."""
    tests = []
    for mark in student.marks:
        for exercise, points in mark.exercises.items():
            shown = told.get(exercise)
            tests.append(
                {
                    "name": exercise,
                    "score": float(points),
                    "max_score": float(mark.worth[exercise]),
                    "status": "passed" if mark.standings[exercise] == "passed" else "failed",
                    "output": shown.text if shown else "",
                    "output_format": "text",
                    "visibility": "visible",
                }
            )
    late = [f"Unit {mark.unit}: {mark.late}." for mark in student.marks if mark.late]
    return {
        "score": float(student.points),
        "output": "\n".join(late),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"student": student.id, "max_score": float(student.out_of)},
        "tests": tests,
    }


def _line(text: str) -> str:
    """On one line, as a row of a table has to be."""
    return re.sub(r"[\t\r\n\v\f\0\x85\u2028\u2029]+", " ", text)
