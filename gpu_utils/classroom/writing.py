"""Writes all that a gradebook's teacher gets out of it: tables, one results.json and one page a student, the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from gpu_utils.classroom import exports
from gpu_utils.classroom.book import Book
from gpu_utils.classroom.feedback import NAME, feedback, file_stem, told
from gpu_utils.classroom.filling import Filled
from gpu_utils.classroom.instructor import Compare, Findings, near_identical, report
from gpu_utils.classroom.marks import Student
from gpu_utils.course.files import write_atomically

FEEDBACK, RESULTS, REPORT = "feedback", "results", "report.html"


def write_all(
    book: Book, students: Sequence[Student], filled: Filled | None = None, compare: Compare | None = None
) -> list[Path]:
    """Write or replace every file in the gradebook's folder; one student's results are in memory at a time.

    Returns what a teacher opens: the report, the tables, and the folders of what is for each student.
    """
    secret = book.secret()
    stems = {student.id: file_stem(student.id, secret) for student in students}
    findings = Findings()
    for student in students:
        results = list(book.results(student.id))
        for result in results:
            findings.add(result)
        seen = told(student, results)
        stem = stems[student.id]
        write_atomically(book.folder / FEEDBACK / f"{stem}.html", feedback(student, seen))
        found = json.dumps(exports.gradescope(student, seen), indent=1).encode()
        write_atomically(book.folder / RESULTS / f"{stem}.json", found)
    _clear(book.folder, set(stems.values()))
    tables = {
        "marks.csv": exports.plain_csv(
            students, {student: f"{FEEDBACK}/{stem}.html" for student, stem in stems.items()}
        ),
        "canvas.csv": exports.canvas_csv(students),
        "moodle.csv": exports.moodle_csv(students),
    }
    if filled is not None:
        tables[f"{filled.kind}.csv"] = filled.content
    alike = near_identical(findings, compare) if compare else []
    names = [*tables, f"{FEEDBACK}/", f"{RESULTS}/"]
    tables[REPORT] = report(book, students, findings, alike, names)
    for name, content in tables.items():
        write_atomically(book.folder / name, content)
    return [book.folder / name for name in (REPORT, *names)]


def _clear(folder: Path, stems: Iterable[str]) -> None:
    """Take out files of an earlier run about students who are in the gradebook no more."""
    for path in chain((folder / FEEDBACK).glob("*.html"), (folder / RESULTS).glob("*.json")):
        if NAME.fullmatch(path.name) and path.stem not in stems:
            path.unlink()
