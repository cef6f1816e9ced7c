"""A gradebook folder: everything that grading found, in one SQLite file, each row there as soon as it is known.

A write is one short transaction, so that a grader which is killed loses the exercise at hand and nothing else. The
secret from which every submission's cases are drawn lies beside it, in a file that only its owner reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gpu_utils.classroom.records import SCHEMA, Release, Result, Submission
from gpu_utils.course.files import write_atomically
from gpu_utils.errors import ClassroomError

BOOK = "book.sqlite"
SECRET = "seed"
RELEASE = "release.json"
NO_RELEASE = "none"
"""The id of what is graded without a release."""
_WAIT_SECONDS = 30.0

_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS submissions (
    student TEXT NOT NULL, unit TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, digest TEXT NOT NULL,
    handed_in TEXT, problem TEXT NOT NULL, notes TEXT NOT NULL, PRIMARY KEY (student, unit));
CREATE TABLE IF NOT EXISTS results (
    student TEXT NOT NULL, exercise TEXT NOT NULL, unit TEXT NOT NULL, digest TEXT NOT NULL, seed TEXT NOT NULL,
    status TEXT NOT NULL, points REAL NOT NULL, out_of REAL NOT NULL, headline TEXT NOT NULL,
    misconception TEXT NOT NULL, hint TEXT NOT NULL, outcomes TEXT NOT NULL, flags TEXT NOT NULL, log TEXT NOT NULL,
    answer TEXT NOT NULL, walls TEXT NOT NULL, backends TEXT NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (student, exercise));
"""
_LISTS = ("outcomes", "flags")
_RESULT = tuple(field.name for field in fields(Result))
_SUBMISSION = ("student", "unit", "name", "source", "digest", "handed_in", "problem", "notes")


def _other_files(folder: Path) -> str:
    """What is in the way of a new gradebook: "is a file", "holds other files (a.ipynb)"; "" for nothing."""
    if folder.exists() and not folder.is_dir():
        return "is a file"
    others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return f"holds other files ({others[0]})" if {*others} - {SECRET, RELEASE} else ""


class Book:
    """A gradebook folder, opened for reading and writing; several processes may have it open.

    Raises ClassroomError for a folder that holds something else, or a book of a newer course.
    """

    def __init__(self, folder: Path, make: bool = False) -> None:
        self.folder = folder
        path = folder / BOOK
        if not make and not path.is_file():
            raise ClassroomError(f"{folder} is no gradebook: it has no {BOOK}; w2w grade ... --out makes one")
        if make and not path.is_file() and (other := _other_files(folder)):
            raise ClassroomError(f"{folder} {other} and is no gradebook; name an empty folder with --out")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # marks and answers of others
        try:
            self._connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")  # a killed process loses nothing by it
            self._connection.executescript(_TABLES)
            found = self._about("schema") or self._set_about("schema", str(SCHEMA))
        except sqlite3.Error as problem:
            raise ClassroomError(f"{path} cannot be opened as a gradebook ({problem}); move it aside") from None
        if int(found) > SCHEMA:
            raise ClassroomError(f"{path} has schema {found}, this course reads up to {SCHEMA}; update the course")

    def close(self) -> None:
        self._connection.close()

    # --- the secret and the release ---

    def secret(self, given: Path | None = None) -> bytes:
        """32 bytes, made at the first call, or read from a file `given` and kept; they draw every case of the class.

        Raises ClassroomError for a given file that holds another secret than the book has.
        """
        path = self.folder / SECRET
        wanted = _secret_in(given) if given else None
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                    file.write((wanted or secrets.token_bytes(32)).hex() + "\n")
        found = _secret_in(path)
        if wanted and wanted != found:
            raise ClassroomError(f"{given} holds another seed than {path}; grade into another folder with --out")
        return found

    def seed(self, submission: Submission, exercise: str) -> int:
        """128 bits for one exercise of one submission: whoever hands in once more gets other cases."""
        said = f"{submission.student}\n{submission.digest}\n{exercise}"
        digest = hmac.new(self.secret(), said.encode(), hashlib.sha256).digest()
        return int.from_bytes(digest[:16], "big")

    def release(self) -> Release:
        """The release that is graded. Raises ClassroomError when none was stored."""
        return Release.read(self.folder / RELEASE)

    def take_release(self, release: Release) -> None:
        """Keep this release, or what has changed of it. Raises ClassroomError where marks of another one are here."""
        path = self.folder / RELEASE
        before = Release.read(path).id if path.is_file() else release.id
        if before not in (release.id, NO_RELEASE) and next(iter(self.results()), None) is not None:
            raise ClassroomError(
                f"{self.folder} holds marks of release {before}, and this is release {release.id}; give the release of "
                "these notebooks, or another folder with --out"
            )
        self.keep_release(release)

    def keep_release(self, release: Release) -> None:
        write_atomically(self.folder / RELEASE, release.as_json().encode())

    # --- where the submissions are ---

    def keep_places(self, places: Mapping[str, Any]) -> None:
        """Remember what `w2w grade` was told: plain data, by name. The last one counts."""
        self._connection.execute("INSERT OR REPLACE INTO about VALUES ('places', ?)", (json.dumps(places),))

    def places(self) -> dict[str, Any]:
        """What was remembered. Raises ClassroomError when nothing was."""
        found = self._about("places")
        if not found:
            raise ClassroomError(f"{self.folder} does not say where its submissions are; grade them with w2w grade")
        return json.loads(found)

    # --- rows ---

    def put_submission(self, submission: Submission) -> None:
        """Store or replace the row of a student and unit; the content itself is not kept."""
        fields = submission.as_fields()
        row = {name: fields[name] for name in _SUBMISSION}
        self._put("submissions", {**row, "notes": json.dumps(row["notes"])})

    def put_result(self, result: Result) -> None:
        """Store or replace the row of a student and exercise."""
        row = asdict(result)
        self._put("results", {**row, **{name: json.dumps(row[name]) for name in _LISTS}})

    def submissions(self) -> list[Submission]:
        """All rows, by student and unit."""
        names = ", ".join(_SUBMISSION)
        rows = self._connection.execute(f"SELECT {names} FROM submissions ORDER BY student, unit").fetchall()
        found = []
        for row in rows:
            given: dict[str, Any] = dict(zip(_SUBMISSION, row, strict=True))
            found.append(Submission.of({**given, "notes": json.loads(given["notes"])}))
        return found

    def results(self, student: str | None = None) -> Iterator[Result]:
        """All rows, or those of one student, by student and exercise."""
        where, given = ("WHERE student = ?", [student]) if student is not None else ("", [])
        names = ", ".join(_RESULT)
        for row in self._connection.execute(f"SELECT {names} FROM results {where} ORDER BY student, exercise", given):
            found: dict[str, Any] = dict(zip(_RESULT, row, strict=True))
            yield Result.of({**found, **{name: json.loads(found[name]) for name in _LISTS}})

    def graded(self) -> dict[tuple[str, str], tuple[str, str]]:
        """(student, exercise) -> (digest, status) of every row."""
        rows = self._connection.execute("SELECT student, exercise, digest, status FROM results")
        return {(student, exercise): (digest, status) for student, exercise, digest, status in rows}

    def forget(self, student: str, unit: str) -> None:
        """Take out the results of a student's unit: what they were graded from was replaced or withdrawn."""
        self._connection.execute("DELETE FROM results WHERE student = ? AND unit = ?", (student, unit))

    def _put(self, table: str, row: dict[str, Any]) -> None:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self._connection.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", list(row.values()))

    def _about(self, key: str) -> str:
        found = self._connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return found[0] if found else ""

    def _set_about(self, key: str, value: str) -> str:
        self._connection.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (key, value))
        return self._about(key)


def _secret_in(path: Path) -> bytes:
    try:
        found = bytes.fromhex(path.read_text(encoding="utf-8").strip())
    except (OSError, ValueError) as problem:
        raise ClassroomError(f"{path} holds no seed ({problem}); expected 64 hexadecimal digits") from None
    if len(found) != 32:
        raise ClassroomError(f"{path} holds a seed of {8 * len(found)} bits; expected 64 hexadecimal digits, 256 bits")
    return found
