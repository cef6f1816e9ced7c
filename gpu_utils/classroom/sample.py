"""A made class, to try grading with: what students might hand in, and what each of it must earn.

    DIR/handed_in/     notebooks, as one file per student, in folders, in a zip from Canvas and one from Moodle
    DIR/roster.csv     id, name, email
    DIR/release.json   of the units that were asked for
    DIR/expected.csv   student, exercise, points, status, because: the mark that each answer must get

Students are right, partly right, wrong, hostile or damaged, in the shares of ROLES. The same number of students and the
same units give the same class, byte for byte.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, cycle
from pathlib import Path
from typing import Any

from gpu_utils import exercises
from gpu_utils.classroom.records import Release
from gpu_utils.classroom.sample_damage import DAMAGES, answer_cells, as_bytes
from gpu_utils.classroom.sample_files import HandIn, write_all
from gpu_utils.classroom.sample_hostile import ATTACKS
from gpu_utils.classroom.sample_styles import restyled
from gpu_utils.classroom.sample_wrong import SLIPS, slipped
from gpu_utils.course import sources
from gpu_utils.course.build import render
from gpu_utils.course.files import write_atomically
from gpu_utils.course.paths import Course
from gpu_utils.errors import ClassroomError

ROLES = {"right": 12, "partial": 7, "wrong": 4, "hostile": 4, "damaged": 3}
"""What students are -> how many of 30, in each unit. 300 students are ten times as many of each."""

RIGHT, UNTOUCHED = "right", "not started"
_MOST_RARE = 2
_COLUMNS = ("student", "exercise", "points", "status", "because")


@dataclass(frozen=True)
class Mark:
    """What an answer must get, and why: "wrong: the grid rounds down"."""

    student: str
    exercise: str
    points: float
    status: str
    because: str


@dataclass(frozen=True)
class Answer:
    """What a student wrote for an exercise, and what it must get. `apart` is a cell of their own, "" for none."""

    apart: str
    source: str
    status: str
    because: str


def units() -> list[str]:
    """The units of which a class can be made."""
    return sorted({exercise.partition(".")[0] for exercise in SLIPS})


def make(folder: Path, course: Course, students: int, numbers: Sequence[str]) -> list[Mark]:
    """Write a class of so many students below `folder`, and return what its marks must be.

    Raises ClassroomError for a folder that holds something, and for a unit without slips; CannotWrite.
    """
    if missing := [number for number in numbers if number not in units()]:
        raise ClassroomError(f"there is no sample class for unit {missing[0]}; expected {' or '.join(units())}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ClassroomError(f"{folder} is there and not empty; give a folder that does not exist yet")
    release = Release(f"sample-{'-'.join(numbers)}-{students}", tuple(numbers))
    names = {f"student-{number:03}": f"Student {number:03}" for number in range(1, students + 1)}
    files: list[HandIn] = []
    marks: list[Mark] = []
    for unit in numbers:
        notebook = json.loads(render(course, course.find(unit), "lab"))
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
        notebook["metadata"]["w2w"]["release"] = release.id
        for number, (student, content, unit_marks) in enumerate(_handed_in(unit, notebook, list(names)), 1):
            marks += [Mark(student, exercise, release.worth(exercise) * (status == "passed"), status, because)
                      for exercise, status, because in unit_marks]  # fmt: skip
            if content is not None:
                files.append(HandIn(number, student, names[student], f"{course.find(unit).name}.ipynb", content))
    marks.sort(key=lambda mark: mark.student)
    write_all(folder / "handed_in", files)
    people = [(student, name, f"{student}@example.org") for student, name in names.items()]
    write_atomically(folder / "roster.csv", _table(("id", "name", "email"), people))
    write_atomically(folder / "release.json", release.as_json().encode())
    rows = [(mark.student, mark.exercise, f"{mark.points:g}", mark.status, mark.because) for mark in marks]
    write_atomically(folder / "expected.csv", _table(_COLUMNS, rows))
    return marks


def expected(folder: Path) -> dict[tuple[str, str], Mark]:
    """(student, exercise) -> what it must get, from the file that `make` wrote."""
    with (folder / "expected.csv").open(encoding="utf-8", newline="") as file:
        marks = [Mark(**{**row, "points": float(row["points"])}) for row in csv.DictReader(file)]  # type: ignore[arg-type]
    return {(mark.student, mark.exercise): mark for mark in marks}


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([titles, *rows])
    return text.getvalue().encode()


Marks = list[tuple[str, str, str]]
"""Exercise, status, because."""


def _handed_in(unit: str, lab: dict[str, Any], students: Sequence[str]) -> Iterator[tuple[str, bytes | None, Marks]]:
    roles = [role for role, share in ROLES.items() for _ in range(share)]
    random.Random(f"roles of {unit}").shuffle(roles)
    kinds = _Kinds(unit)
    for student, role in zip(students, cycle(roles), strict=False):
        rng = random.Random(f"{student} {unit} {len(students)}")
        answers = {exercise: _right(exercise, rng) for exercise in exercises.ids(unit)}
        if role in ("partial", "wrong", "hostile"):
            answers |= getattr(kinds, role)(answers, rng)
        notebook = _written(deepcopy(lab), answers, rng)
        marks = [(exercise, answer.status, answer.because) for exercise, answer in answers.items()]
        if role == "damaged":
            yield student, *kinds.damaged(notebook, marks, rng)
        else:
            yield student, as_bytes(notebook), marks


class _Kinds:
    """Which of several kinds a student gets: one after the other, so that none is missing in a class of some size."""

    def __init__(self, unit: str) -> None:
        ids = exercises.ids(unit)
        self._damages = cycle(DAMAGES)
        self._attacks = cycle(
            [what for what, attack in ATTACKS.items() if not attack.rare and attack.exercise in ("", *ids)]
        )
        self._rare = [what for what, attack in ATTACKS.items() if attack.rare] * _MOST_RARE
        self._exercises = cycle(ids)
        self._slips = {exercise: cycle(SLIPS[exercise]) for exercise in ids}
        self._hostile = count()

    def partial(self, answers: dict[str, Answer], rng: random.Random) -> dict[str, Answer]:
        """The second half is untouched but for one, and of the first one is wrong."""
        ids = list(answers)
        left = rng.sample(ids[len(ids) // 2 :], len(ids) // 2 - 1)
        found = {exercise: Answer("", _untouched(exercise), UNTOUCHED, UNTOUCHED) for exercise in left}
        return found | self._wrong(rng.choice(ids[: len(ids) // 2]), rng)

    def wrong(self, answers: dict[str, Answer], rng: random.Random) -> dict[str, Answer]:
        """All."""
        return {name: answer for exercise in answers for name, answer in self._wrong(exercise, rng).items()}

    def hostile(self, answers: dict[str, Answer], rng: random.Random) -> dict[str, Answer]:
        """One, and the others are right. Endless ones come at the 1st and the 51st, no more."""
        is_rare = next(self._hostile) % 50 == 0 and self._rare
        what = self._rare.pop() if is_rare else next(self._attacks)
        exercise = ATTACKS[what].exercise or next(self._exercises)
        source = ATTACKS[what].answer(exercise.partition(".")[2], _arguments(exercise), exercises.module_of(exercise))
        return {exercise: Answer("", f"# {rng.randrange(10**6)}\n{source}", "failed", f"hostile: {what}")}

    def damaged(self, notebook: dict[str, Any], marks: Marks, rng: random.Random) -> tuple[bytes | None, Marks]:
        what = next(self._damages)
        damage = DAMAGES[what]
        because = f"damaged: {what}"
        first = answer_cells(notebook)[0]["metadata"]["tags"][1]
        said = {
            "the same": marks,
            "no answers": [(exercise, "not started", because) for exercise, _, _ in marks],
            "one broken": [(exercise, "failed", because) if exercise == first else (exercise, status, why)
                           for exercise, status, why in marks],
            "unreadable": [(exercise, "unreadable", because) for exercise, _, _ in marks],
        }  # fmt: skip
        return damage.apply(notebook, rng), said[damage.leaves]

    def _wrong(self, exercise: str, rng: random.Random) -> dict[str, Answer]:
        what = next(self._slips[exercise])
        apart, source = restyled(slipped(_solution(exercise), exercise, what), rng)
        return {exercise: Answer(apart, source, "failed", f"wrong: {what}")}


def _right(exercise: str, rng: random.Random) -> Answer:
    return Answer(*restyled(_solution(exercise), rng), "passed", RIGHT)


_solution = lru_cache(maxsize=None)(sources.solution)
_untouched = lru_cache(maxsize=None)(sources.untouched)


def _arguments(exercise: str) -> str:
    tree = ast.parse(_solution(exercise))
    return ", ".join(given.arg for given in tree.body[-1].args.args)  # type: ignore[attr-defined]


def _written(notebook: dict[str, Any], answers: dict[str, Answer], rng: random.Random) -> dict[str, Any]:
    """The lab with these answers in their cells, and the student's own cells above them."""
    cells = []
    for cell in notebook["cells"]:
        for exercise in cell["metadata"].get("tags", ()):
            if exercise in answers and "answer" in cell["metadata"]["tags"]:
                answer = answers[exercise]
                cell["source"] = answer.source
                if answer.apart:
                    cells.append(_own_cell(answer.apart, f"own-{exercise.replace('.', '-')}", rng))
        if cell["cell_type"] == "code":
            cell["execution_count"] = rng.randrange(1, 200)
        cells.append(cell)
    return {**notebook, "cells": cells}


def _own_cell(source: str, identity: str, rng: random.Random) -> dict[str, Any]:
    found = {"cell_type": "code", "execution_count": rng.randrange(1, 200), "id": identity, "metadata": {}}
    return {**found, "outputs": [], "source": source}
