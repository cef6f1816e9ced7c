"""A page for each student: what they earned and what to mend. It holds what shown.py lets through, and no more."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

from gpu_utils.classroom.marks import Student
from gpu_utils.classroom.pages import page
from gpu_utils.classroom.records import Result
from gpu_utils.classroom.shown import Shown, shown

NAME = re.compile(r".+-[0-9a-f]{10}\.(html|json)")
"""The files that we name: what is left of an earlier run can be told from a teacher's own."""

_LONGEST = 40
_MARKS = {"passed": "✓", "failed": "✗", "not started": "○"}


def file_stem(student: str, secret: bytes) -> str:
    """The name of a student's files, without the ending: what can be kept of their id, and ten digits of a secret.

    Whoever knows the name of their own file cannot tell another's, and no two ids have one, however alike they look.

    >>> file_stem("../../CON", b"")
    'CON-72524ca394'
    """
    kept = re.sub(r"[^A-Za-z0-9_]+", "-", student).strip("-")[:_LONGEST].strip("-")
    digits = hmac.new(secret, b"file\n" + student.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:10]
    return f"{kept or 'student'}-{digits}"


def told(student: Student, results: Iterable[Result]) -> dict[str, Shown]:
    """Exercise -> what the student may see of it: of what counts in their marks, and of what could not be read."""
    of = {result.exercise: result for result in results}
    return {
        exercise: shown(of[exercise], mark.exercises[exercise], mark.worth[exercise])
        for mark in student.marks
        for exercise, standing in mark.standings.items()
        if exercise in of and (standing or of[exercise].status == mark.status == "unreadable")
    }


def feedback(student: Student, found: Mapping[str, Shown]) -> bytes:
    """The page of one student; `found` is what `told` gives."""
    return page("feedback.html", student=student, found=found, marks=_MARKS)
