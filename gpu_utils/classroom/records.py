"""What a class is made of: a release, what was handed in for it, and what grading found, one row after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gpu_utils.errors import ClassroomError

SCHEMA = 1
"""Of the files that a release and a gradebook leave: what reads them refuses a newer one and can read every older."""


@dataclass(frozen=True)
class Late:
    """What a late hand-in costs.

    grace_minutes  after the due time, in which nothing is taken off
    per_day        share of the marks that each started day takes, 0.1 for a tenth
    most_days      later than that earns nothing; None for no end
    """

    grace_minutes: float = 0.0
    per_day: float = 0.0
    most_days: int | None = None


@dataclass(frozen=True)
class Release:
    """What was given to a class.

    id        in the metadata of every notebook of it
    units     numbers: ("00", "01")
    points    exercise id -> what it is worth; exercises of the units that are missing here are worth 1
    due       unit number -> when, with its zone; a unit that is missing here has no due time
    course    version of the course that made it
    """

    id: str
    units: tuple[str, ...]
    points: Mapping[str, float] = field(default_factory=dict)
    due: Mapping[str, datetime] = field(default_factory=dict)
    late: Late = field(default_factory=Late)
    course: str = ""
    schema: int = SCHEMA

    def worth(self, exercise: str) -> float:
        """Points of an exercise."""
        return float(self.points.get(exercise, 1.0))

    def as_json(self) -> str:
        found = {**asdict(self), "due": {unit: when.isoformat() for unit, when in self.due.items()}}
        return json.dumps(found, indent=1, sort_keys=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> Release:
        """The release in a file that `as_json` wrote. Raises ClassroomError, one sentence, for another file."""
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if found["schema"] > SCHEMA:
                raise ClassroomError(
                    f"{path} has schema {found['schema']}, and this version of the course reads up to {SCHEMA}; "
                    "update the course"
                )
            due = {unit: datetime.fromisoformat(when) for unit, when in found["due"].items()}
            return cls(**{**found, "units": tuple(found["units"]), "due": due, "late": Late(**found["late"])})
        except OSError as problem:
            raise ClassroomError(f"{path} cannot be read: {problem.strerror}; expected the release.json") from None
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ClassroomError(
                f"{path} is no release.json ({type(problem).__name__}: {problem}); w2w release writes one"
            ) from None


@dataclass(frozen=True)
class Submission:
    """A notebook that a student handed in, or why there is none that can be graded.

    student    what identifies them: an id of the roster, or what the file's or the folder's name says
    name       for people to read; "" when nothing says it
    unit       "00"; "" when it cannot be told
    source     where it was found, for the log: "class.zip::anna_1234.ipynb"
    content    the bytes of the notebook; empty when `problem` says why it cannot be graded
    digest     sha256 of what was found, in hex
    handed_in  when, with its zone; None when nothing says it
    problem    one sentence for the teacher; "" when it can be graded
    notes      sentences about what was done with it: "2 files; the later one counts"
    """

    student: str
    unit: str
    source: str
    content: bytes = b""
    digest: str = ""
    name: str = ""
    handed_in: datetime | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()

    def as_fields(self) -> dict[str, Any]:
        """Plain data; `of` reads it."""
        when = self.handed_in.isoformat() if self.handed_in else None
        return {**asdict(self), "handed_in": when}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Submission:
        when = datetime.fromisoformat(fields["handed_in"]) if fields["handed_in"] else None
        return cls(**{**fields, "handed_in": when, "notes": tuple(fields["notes"])})


@dataclass(frozen=True)
class Result:
    """What grading found for one exercise of one submission.

    digest    of the submission that was graded
    seed      128 bits in hex, from which the cases were drawn
    status    "passed", "failed", "not started", "not graded" (an error of ours or of the machine), "unreadable"
    points    what it earned, before any late policy; out_of: what it is worth
    headline  one sentence for the student
    outcomes  a dict for each case on each backend: case, why, where, status, kind, detail, fresh
    flags     sentences for the teacher, never for the student: what looks like an attempt on the grader
    log       for the teacher, what happened in the worker
    answer    the source of the answer's cells, as found
    walls     what it ran inside of: "bubblewrap", or "none"
    seconds   of wall time; not part of what a regrade must reproduce
    """

    student: str
    unit: str
    exercise: str
    digest: str
    seed: str
    status: str
    points: float
    out_of: float
    headline: str
    misconception: str = ""
    hint: str = ""
    outcomes: tuple[Mapping[str, Any], ...] = ()
    flags: tuple[str, ...] = ()
    log: str = ""
    answer: str = ""
    walls: str = "bubblewrap"
    backends: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Result:
        """What `dataclasses.asdict` made plain."""
        return cls(**{**fields, "outcomes": tuple(fields["outcomes"]), "flags": tuple(fields["flags"])})
