"""Who is in a class: a roster, read from a CSV file that any system exports.

The first line names the columns, in any order; those that are not in the table below are not read. Commas, semicolons
and tabs separate, UTF-8 with or without a byte order mark, or UTF-16 or Windows' Latin as Excel saves them.

| What it is | A column of this name, whatever its case and spaces |
|---|---|
| the id, the first of these that the line fills | Student ID, ID, SIS User ID, ID number, Identifier, Login, Email |
| for people | Name, Student, Full name, or First name and Last name |
| what else names somebody | each of these columns, both orders of the name, and an e-mail's part before the @ |

Exports of Canvas (Grades, Export: Student, ID, SIS User ID, SIS Login ID, Section) and of Moodle (participants: First
name, Last name, ID number, Email address; a grading worksheet: Identifier, Full name, Email address) are read as they
are.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_utils.errors import ClassroomError

_IDS = {
    "student id": "id",
    "studentid": "id",
    "student number": "id",
    "matriculation number": "id",
    "id": "canvas",
    "sis user id": "sis",
    "sis id": "sis",
    "id number": "number",
    "identifier": "identifier",
    "login": "login",
    "login id": "login",
    "sis login id": "login",
    "username": "login",
    "user name": "login",
    "email": "email",
    "e-mail": "email",
    "email address": "email",
}
_NAMES = {
    "name": "name",
    "student": "name",
    "student name": "name",
    "full name": "name",
    "first name": "first",
    "firstname": "first",
    "last name": "last",
    "surname": "last",
    "lastname": "last",
}
_ORDER = ("id", "canvas", "sis", "number", "identifier", "login", "email")
_NOT_STUDENTS = {"points possible", "student, test"}
_MAX_BYTES = 20_000_000
_MOST_WORDS = 6
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Student:
    """A line of a roster: the id, the name for people, and everything that names them."""

    id: str
    name: str = ""
    known_as: tuple[str, ...] = ()


class Roster:
    """The students of a class. What two of them have in common names neither.

    >>> roster = Roster([Student("s1", "Example, Ann", ("ann@example.org",)), Student("s2", "Ben Example")])
    >>> roster.find("exampleann").id, roster.find("ben_example").id, roster.find("example")
    ('s1', 's2', None)
    >>> [student.id for student in roster.named_in("Lab 00 - Ben Example (s2)")]
    ['s2']
    """

    def __init__(self, students: Iterable[Student]) -> None:
        self.students = tuple(students)
        owners: dict[str, set[str]] = defaultdict(set)
        for student in self.students:
            for said in _said_of(student):
                owners[said].add(student.id)
        by_id = {student.id: student for student in self.students}
        self._by_name = {said: by_id[next(iter(ids))] for said, ids in owners.items() if len(ids) == 1}
        self._by_id = by_id

    def find(self, said: str) -> Student | None:
        """The one student whom an id, a login, an address or a name means."""
        return self._by_id.get(said) or self._by_name.get(_folded(said))

    def named_in(self, text: str) -> list[Student]:
        """The students whom some words of a text mean, a file's name for example; longer names first.

        A number of less than four digits means nobody here: it may be a day or an attempt.
        """
        words = _WORD.findall(unicodedata.normalize("NFKC", text[:1000]).casefold())
        found: dict[str, Student] = {}
        for length in range(min(_MOST_WORDS, len(words)), 0, -1):
            at = 0
            while at + length <= len(words):
                said = "".join(words[at : at + length])
                student = self._by_name.get(said)
                if student is None or (said.isdecimal() and len(said) < 4):
                    at += 1
                else:
                    found[student.id] = student
                    words[at : at + length] = ["\0"]  # its words mean nobody else
        return list(found.values())


def read_roster(path: Path) -> Roster:
    """The roster in a CSV file.

    Raises ClassroomError, one sentence, for a file that cannot be read, has no column with an id, or an id twice.
    """
    lines = _lines(path)
    columns = [
        (_IDS | _NAMES).get(" ".join(title.replace("_", " ").split()).casefold(), "") for title in next(lines, [])
    ]
    if not set(columns) & set(_ORDER):
        raise ClassroomError(
            f"{path} has no column with an id; expected a first line with Student ID, ID, Login or Email, and a Name"
        )
    students: dict[str, Student] = {}
    for number, line in enumerate(lines, 2):
        student = _student(dict(reversed([*zip(columns, map(str.strip, line), strict=False)])))
        if student is None:
            continue
        if student.id in students:
            raise ClassroomError(
                f"{path} has the id {student.id!r} twice, the second time in line {number}; expected one"
            )
        students[student.id] = student
    if not students:
        raise ClassroomError(f"{path} names no student; expected a line for each below the titles of its columns")
    return Roster(students.values())


def _student(line: Mapping[str, str]) -> Student | None:
    first, last = line.get("first", ""), line.get("last", "")
    name = line.get("name", "") or f"{first} {last}".strip()
    ids = [line[column] for column in _ORDER if line.get(column)]
    if not ids or name.casefold() in _NOT_STUDENTS:
        return None
    return Student(ids[0], name, tuple(ids[1:]))


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES)
    except OSError as error:
        raise ClassroomError(f"{path} cannot be read: {error.strerror}; expected a roster as CSV") from None
    text = _text(data)
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    except csv.Error as error:
        raise ClassroomError(f"{path} is not a table that can be read ({error}); export it as CSV") from None


def _text(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _said_of(student: Student) -> set[str]:
    """Everything that names a student, folded."""
    said = {student.id, student.name, *student.known_as}
    said |= {word.partition("@")[0] for word in said if "@" in word}
    last, comma, first = student.name.partition(",")
    words = student.name.split()
    said.add(f"{first} {last}" if comma else " ".join([*words[-1:], *words[:-1]]))
    return {folded for folded in map(_folded, said) if folded}


def _folded(said: str) -> str:
    """Letters and digits alone, without case: Canvas leaves no more of a name."""
    return "".join(_WORD.findall(unicodedata.normalize("NFKC", said).casefold()))
