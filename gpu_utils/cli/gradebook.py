"""`w2w gradebook`: marks, feedback and the teacher's report from what grading has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpu_utils.classroom.marks import Student

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that w2w grade wrote.")]
_Roster = Annotated[
    Path | None,
    typer.Option(help="The gradebook that Canvas or Moodle exports, CSV: it is filled in, with its own ids."),
]
_Nbgrader = Annotated[Path | None, typer.Option(help="nbgrader's gradebook.db, to write the marks into.")]


def gradebook(folder: _Folder, roster: _Roster = None, nbgrader: _Nbgrader = None) -> None:
    """Write marks, tables for Canvas, Moodle and Gradescope, a page for each student, and your report.

    Everything goes into DIR; the files of an earlier run are replaced, and what was graded is left alone.

    Example: ./w2w gradebook gradebook/     Example: ./w2w gradebook gradebook/ --roster canvas_export.csv
    """
    from gpu_utils.classroom.book import Book
    from gpu_utils.classroom.filling import fill
    from gpu_utils.classroom.marks import class_of
    from gpu_utils.classroom.similar import pairs
    from gpu_utils.classroom.to_nbgrader import to_nbgrader
    from gpu_utils.classroom.writing import write_all

    book = Book(folder)
    students = class_of(book)
    filled = fill(roster, students) if roster else None
    written = write_all(book, students, filled, pairs)
    _show(students)
    _warn(students)
    for path in written:
        typer.echo(f"  {path}")
    if filled and filled.unknown:
        typer.echo(f"Not in {roster}: {', '.join(filled.unknown)}; their marks are in marks.csv only.")
    if nbgrader:
        count = to_nbgrader(nbgrader, book.release(), students, book.submissions())
        typer.echo(f"{count} hand-ins are in {nbgrader}")


def _warn(students: Sequence[Student]) -> None:
    """What has no verdict yet stands as 0 in the tables: better known before they are handed on."""
    standings = Counter(
        standing
        for student in students
        for mark in student.marks
        if mark.status in ("graded", "incomplete")
        for standing in mark.standings.values()
    )
    if count := standings[""]:
        typer.echo(
            f"Answers not graded yet, which stand as 0: {count}. Run w2w grade again, it goes on where it stopped."
        )
    if count := standings["not graded"]:
        typer.echo(f"Answers that this machine could not grade, which stand as 0: {count}. report.html says why.")


def _show(students: Sequence[Student]) -> None:
    """A table of how each exercise went, and the totals in a line for each unit."""
    from rich.console import Console
    from rich.table import Column, Table

    from gpu_utils.classroom.marks import plain

    told = ("passed", "failed", "not started")
    table = Table("exercise", *(Column(name, justify="right") for name in (*told, "other")))
    totals = []
    for marks in zip(*(student.marks for student in students), strict=True):
        there = [mark for mark in marks if mark.status in ("graded", "incomplete")]
        for exercise in marks[0].worth:
            counts = Counter(mark.standings[exercise] for mark in there)
            row = [counts.pop(name, 0) for name in told]
            table.add_row(exercise, *map(str, [*row, counts.total()]))
        mean = sum(mark.points for mark in there) / max(len(there), 1)
        totals.append(
            f"Unit {marks[0].unit}: {len(there)} of {len(marks)} students handed in a lab that could be graded; "
            f"mean {mean:.2f} of {plain(marks[0].out_of)} points."
        )
    if students:
        Console().print(table)
    for line in totals or ["Nobody is in this gradebook yet."]:
        typer.echo(line)
