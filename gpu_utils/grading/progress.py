"""What the learner has done, and what they predicted in the lessons, in one SQLite file under their data folder.

Two notebooks may write at once: every write is one short transaction, and a writer waits for the other. A file that
is not a database any more is moved aside, never overwritten. A check never fails because progress cannot be stored:
`ProgressUnavailable` says why in one sentence and the caller shows it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gpu_utils.errors import ProgressUnavailable
from gpu_utils.folders import data_folder

_STEPS = (
    """
CREATE TABLE IF NOT EXISTS attempts (
    id INTEGER PRIMARY KEY, exercise TEXT NOT NULL, status TEXT NOT NULL, at TEXT NOT NULL,
    backends TEXT NOT NULL, misconception TEXT NOT NULL, seed INTEGER NOT NULL, seconds REAL NOT NULL);
CREATE TABLE IF NOT EXISTS hints (
    id INTEGER PRIMARY KEY, exercise TEXT NOT NULL, strength INTEGER NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS solutions (
    id INTEGER PRIMARY KEY, exercise TEXT NOT NULL, at TEXT NOT NULL);
""",
    """
CREATE TABLE IF NOT EXISTS guesses (
    id INTEGER PRIMARY KEY, unit TEXT NOT NULL, prediction TEXT NOT NULL, attempt INTEGER NOT NULL,
    slot TEXT NOT NULL, guess TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY, unit TEXT NOT NULL, prediction TEXT NOT NULL, attempt INTEGER NOT NULL,
    slot TEXT NOT NULL, truth TEXT NOT NULL, hit INTEGER, at TEXT NOT NULL, UNIQUE (prediction, attempt, slot));
""",
    """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, unit TEXT NOT NULL, exercise TEXT NOT NULL, cycles TEXT NOT NULL, at TEXT NOT NULL);
""",
    """
CREATE TABLE IF NOT EXISTS races (
    id INTEGER PRIMARY KEY, exercise TEXT NOT NULL, tier INTEGER NOT NULL, ratio REAL NOT NULL, fraction REAL,
    device TEXT NOT NULL, at TEXT NOT NULL);
""",
)
"""What takes a file from one version of the schema to the next: step n leads to version n + 1. Steps only add."""

TIERS = ("bronze", "silver", "gold")
"""What a fast answer earns on a real GPU."""

WAIT_SECONDS = 5.0
"""How long a writer waits for another one."""


@dataclass(frozen=True)
class Standing:
    """Where the learner stands with one exercise. tier: the best on a real GPU: 0 none, 1 bronze, 2 silver, 3 gold."""

    exercise: str
    passed_at: str | None
    attempts: int
    hints: int
    solution_seen: bool
    tier: int = 0

    @property
    def state(self) -> str:
        if self.passed_at:
            return "passed"
        return "in progress" if self.attempts else "not started"


def record_attempt(
    exercise: str, status: str, backends: str, misconception: str, seed: int, seconds: float
) -> str | None:
    """Store one check. Returns a note for the learner when an unreadable file had to be kept aside."""
    row = (exercise, status, _now(), backends, misconception, seed, seconds)
    with _writing() as (connection, note):
        connection.execute(
            "INSERT INTO attempts (exercise, status, at, backends, misconception, seed, seconds) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            row,
        )
    return note


def record_hint(exercise: str, strength: int) -> str | None:
    """Store that a hint was shown."""
    with _writing() as (connection, note):
        connection.execute("INSERT INTO hints (exercise, strength, at) VALUES (?, ?, ?)", (exercise, strength, _now()))
    return note


def record_solution(exercise: str) -> str | None:
    """Store that the solution was shown."""
    with _writing() as (connection, note):
        connection.execute("INSERT INTO solutions (exercise, at) VALUES (?, ?)", (exercise, _now()))
    return note


def hints_used(exercise: str) -> int:
    """The strength of the strongest hint shown so far; 0 for none."""
    with _reading() as connection:
        row = connection.execute("SELECT MAX(strength) FROM hints WHERE exercise = ?", (exercise,)).fetchone()
    return row[0] or 0


def standing(exercises: list[str]) -> list[Standing]:
    """Where the learner stands, in the order asked for. Times are UTC, ISO 8601."""
    with _reading() as connection:
        attempts = {
            name: (count, passed)
            for name, count, passed in connection.execute(
                "SELECT exercise, COUNT(*), MIN(CASE WHEN status = 'passed' THEN at END) FROM attempts "
                "WHERE status != 'not started' GROUP BY exercise"
            )
        }
        hints = dict(connection.execute("SELECT exercise, MAX(strength) FROM hints GROUP BY exercise"))
        seen = {name for (name,) in connection.execute("SELECT DISTINCT exercise FROM solutions")}
        tiers = dict(connection.execute("SELECT exercise, MAX(tier) FROM races GROUP BY exercise"))

    def one(name: str) -> Standing:
        count, passed = attempts.get(name, (0, None))
        return Standing(name, passed, count, hints.get(name, 0), name in seen, tiers.get(name, 0))

    return [one(name) for name in exercises]


def record_race(exercise: str, tier: int, ratio: float, fraction: float | None, device: str) -> str | None:
    """Store what a race on a real GPU came to. Returns as `record_attempt`."""
    with _writing() as (connection, note):
        connection.execute(
            "INSERT INTO races (exercise, tier, ratio, fraction, device, at) VALUES (?, ?, ?, ?, ?, ?)",
            (exercise, tier, ratio, fraction, device, _now()),
        )
    return note


@dataclass(frozen=True)
class Prediction:
    """One try at a prediction of a lesson.

    attempt  1 for the first; a later one is made with the answer seen
    guesses  slot -> the last guess before the answer was shown, as it was written
    answers  slot -> (what came out, whether the guess hit it; None without a guess). Once there are any, it is locked.
    """

    attempt: int = 1
    guesses: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, tuple[str, bool | None]] = field(default_factory=dict)


def record_guess(prediction: str, attempt: int, slot: str, guess: str) -> str | None:
    """Store a guess, unless this try is locked, which another notebook may have done. Returns as `record_attempt`."""
    unit = prediction.split(".")[0]
    with _writing() as (connection, note):
        connection.execute(
            "INSERT INTO guesses (unit, prediction, attempt, slot, guess, at) SELECT ?, ?, ?, ?, ?, ? "
            "WHERE NOT EXISTS (SELECT 1 FROM answers WHERE prediction = ? AND attempt = ?)",
            (unit, prediction, attempt, slot, guess, _now(), prediction, attempt),
        )
    return note


def record_answers(prediction: str, attempt: int, answers: Mapping[str, tuple[str, bool | None]]) -> str | None:
    """Store what came out, slot -> (answer, whether the guess hit it), which locks the try; the first one stands."""
    rows = [(prediction.split(".")[0], prediction, attempt, slot, *answer, _now()) for slot, answer in answers.items()]
    with _writing() as (connection, note):
        connection.executemany(
            "INSERT OR IGNORE INTO answers (unit, prediction, attempt, slot, truth, hit, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    return note


def predictions(names: Iterable[str]) -> dict[str, list[Prediction]]:
    """Every try at each of these predictions, the first one first; [] where there was none."""
    with _reading() as connection:
        return {name: _tries(connection, name) for name in names}


def _tries(connection: sqlite3.Connection, name: str) -> list[Prediction]:
    guesses: dict[int, dict[str, str]] = {}
    answers: dict[int, dict[str, tuple[str, bool | None]]] = {}
    of_name = "WHERE prediction = ? ORDER BY id"
    for attempt, slot, guess in connection.execute(f"SELECT attempt, slot, guess FROM guesses {of_name}", (name,)):
        guesses.setdefault(attempt, {})[slot] = guess
    for attempt, slot, truth, hit in connection.execute(
        f"SELECT attempt, slot, truth, hit FROM answers {of_name}", (name,)
    ):
        answers.setdefault(attempt, {})[slot] = (truth, None if hit is None else bool(hit))
    return [Prediction(at, guesses.get(at, {}), answers.get(at, {})) for at in sorted({*guesses, *answers})]


def record_entry(unit: str, exercise: str, cycles: Mapping[str, int]) -> str | None:
    """Store an entry to a unit's challenge: target -> predicted cycles. Returns as `record_attempt`."""
    with _writing() as (connection, note):
        connection.execute(
            "INSERT INTO entries (unit, exercise, cycles, at) VALUES (?, ?, ?, ?)",
            (unit, exercise, json.dumps(dict(cycles)), _now()),
        )
    return note


def entries(unit: str, exercise: str) -> list[tuple[str, dict[str, int]]]:
    """Every entry to a unit's challenge with this exercise, the first one first: when (UTC, ISO 8601), and cycles."""
    with _reading() as connection:
        rows = connection.execute(
            "SELECT at, cycles FROM entries WHERE unit = ? AND exercise = ? ORDER BY id", (unit, exercise)
        ).fetchall()
    return [(at, json.loads(cycles)) for at, cycles in rows]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _path() -> Path:
    return data_folder() / "progress.sqlite3"


@contextlib.contextmanager
def _writing() -> Iterator[tuple[sqlite3.Connection, str | None]]:
    path = _path()
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        connection, note = _open(path)
        with contextlib.closing(connection), connection:
            yield connection, note


@contextlib.contextmanager
def _reading() -> Iterator[sqlite3.Connection]:
    """The stored progress; an empty one when there is none yet. Never creates a file."""
    path = _path()
    with _explained(path):
        connection = _connect(path) if path.exists() else sqlite3.connect(":memory:")
        for step in _STEPS[_version(connection) :]:  # the tables that an earlier course did not have, for this reading
            connection.executescript(step.replace("CREATE TABLE", "CREATE TEMP TABLE"))
        with contextlib.closing(connection):
            yield connection


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=WAIT_SECONDS)


def _open(path: Path) -> tuple[sqlite3.Connection, str | None]:
    try:
        return _with_schema(_connect(path)), None
    except sqlite3.DatabaseError as problem:
        if isinstance(problem, sqlite3.OperationalError):
            raise
        aside = path.with_name(f"{path.stem}.unreadable-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{path.suffix}")
        path.rename(aside)
        note = f"the progress file could not be read ({problem}); it is kept as {aside.name} and a new one was begun"
        return _with_schema(_connect(path)), note


def _with_schema(connection: sqlite3.Connection) -> sqlite3.Connection:
    _version(connection)
    damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        connection.close()
        raise sqlite3.DatabaseError(damage.splitlines()[-1])
    _upgrade(connection)
    return connection


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a file to this version, each step whole or not at all; of two writers the second finds it done."""
    for version in range(_version(connection), len(_STEPS)):
        connection.executescript(f"BEGIN IMMEDIATE; {_STEPS[version]} PRAGMA user_version = {version + 1}; COMMIT;")


def _version(connection: sqlite3.Connection) -> int:
    """The schema's version, 0 for a new file. Raises ProgressUnavailable for one that a newer course has written."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    _refuse_another_programs(connection)
    if version > len(_STEPS):
        connection.close()
        raise ProgressUnavailable(
            f"progress was stored by a newer course (schema {version}, this one knows {len(_STEPS)}); "
            "update the course to go on"
        )
    return version


def _refuse_another_programs(connection: sqlite3.Connection) -> None:
    """Raises ProgressUnavailable for a database with tables that are not ours: it stays as it is."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    columns = {row[1] for row in connection.execute("PRAGMA table_info(attempts)")}
    if tables and not {"exercise", "status", "misconception"} <= columns:
        (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
        connection.close()
        raise ProgressUnavailable(
            f"{file} is the database of another program (it holds {', '.join(sorted(tables)[:3])}); "
            "it was left as it is: move it elsewhere, or set W2W_DATA to another folder"
        )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as problem:
        if isinstance(problem, sqlite3.DatabaseError) and not isinstance(problem, sqlite3.OperationalError):
            raise ProgressUnavailable(
                f"{path} is damaged ({problem}); the next check keeps it aside and begins a new one"
            ) from problem
        raise ProgressUnavailable(
            f"progress could not be stored in {path.parent}: {problem}; check that the folder is writable, has space "
            "and is not held by another program, or set W2W_DATA to another folder"
        ) from problem
