"""The teacher's page: how the class did, what it misunderstood, and what a person should look at."""

from __future__ import annotations

import contextlib
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Protocol

from gpu_utils import __version__
from gpu_utils.classroom.book import SECRET, Book
from gpu_utils.classroom.marks import Mark, Student
from gpu_utils.classroom.pages import page
from gpu_utils.classroom.records import Release, Result, Submission
from gpu_utils.course.paths import course
from gpu_utils.errors import W2WError
from gpu_utils.grading.notebook import answers as answers_of

STANDINGS = ("passed", "failed", "not started", "not graded", "unreadable")
_BINS = 10
_IN_BRACKETS = re.compile(r" \((?:[^()]|\([^()]*\))*\)")
_LOG_SHOWN = 2000
_MISCONCEPTIONS = 12
_LONGEST_ANSWER = 50_000


@dataclass(frozen=True)
class Alike:
    """Two answers to one exercise that are nearly the same. Something to look at, and no verdict.

    similarity  0 to 1
    common      how common the answer is in the class: "2 of 300 wrote this"
    """

    exercise: str
    a: str
    b: str
    similarity: float
    common: str
    source_a: str
    source_b: str


class Pair(Protocol):
    """What gpu_utils.classroom.similar finds of one exercise: `alike` of `of` answers are the same but for names."""

    @property
    def first(self) -> str: ...
    @property
    def second(self) -> str: ...
    @property
    def similarity(self) -> float: ...
    @property
    def alike(self) -> int: ...
    @property
    def of(self) -> int: ...


Compare = Callable[[Mapping[str, str], str], Sequence[Pair]]
"""(student -> answer, the untouched lab's cell) -> pairs."""


@dataclass(frozen=True)
class Flagged:
    """An answer that looks like an attempt on the grader; `log` is the end of what the worker left."""

    student: str
    exercise: str
    points: float
    flags: tuple[str, ...]
    log: str


@dataclass
class Findings:
    """What the results of a class add up to; they are read once, and the answers alone are kept.

    answers  exercise -> student -> source, of those that were judged
    """

    flagged: list[Flagged] = field(default_factory=list)
    misconceptions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    walls: Counter[str] = field(default_factory=Counter)
    backends: Counter[str] = field(default_factory=Counter)
    not_graded: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        self.walls[result.walls] += 1
        if result.backends:
            self.backends[result.backends] += 1
        if result.status in ("passed", "failed") and 0 < len(result.answer) <= _LONGEST_ANSWER:
            self.answers.setdefault(result.exercise, {})[result.student] = result.answer
        if result.misconception:
            self.misconceptions[result.exercise, result.misconception, result.hint] += 1
        if result.status == "not graded":
            self.not_graded[result.exercise, result.headline] += 1
        if result.flags:
            log = result.log[-_LOG_SHOWN:]
            self.flagged.append(Flagged(result.student, result.exercise, result.points, result.flags, log))


@dataclass(frozen=True)
class Unit:
    """How a class did in one unit.

    bins  students by tenths of the marks: the first is below a tenth, the last from nine tenths to all
    bars  exercise -> status -> students
    """

    number: str
    handed_in: int
    mean: Decimal
    median: Decimal
    out_of: Decimal
    bins: Sequence[int]
    bars: dict[str, Counter[str]]


def report(
    book: Book, students: Sequence[Student], findings: Findings, alike: Sequence[Alike] = (), names: Sequence[str] = ()
) -> bytes:
    """The page. `names` are the files that lie beside it."""
    release, submissions = book.release(), book.submissions()
    return page(
        "report.html",
        release=release,
        students=students,
        units=[_unit(number, students) for number in release.units],
        submissions=submissions,
        unreadable=_unreadable(submissions),
        notes=[(each, note) for each in submissions for note in each.notes],
        findings=findings,
        misconceptions=findings.misconceptions.most_common(_MISCONCEPTIONS),
        pairs=sorted(alike, key=lambda pair: (pair.exercise, -pair.similarity)),
        seed=book.folder / SECRET,
        names=names,
        versions=_versions(release),
        standings=STANDINGS,
    )


def near_identical(findings: Findings, compare: Compare) -> list[Alike]:
    """The pairs that `compare` finds among the answers to each exercise, with both answers."""
    found = []
    for exercise, answers in sorted(findings.answers.items()):
        for pair in compare(answers, _stub(exercise)):
            common = f"{pair.alike} of {pair.of} wrote this"
            said = common if pair.similarity == 1 else "of what is not common in the class"
            sources = answers[pair.first], answers[pair.second]
            found.append(Alike(exercise, pair.first, pair.second, pair.similarity, said, *sources))
    return found


def _stub(exercise: str) -> str:
    """The answer's cell in the lab as it was given; "" where this course has no such lab."""
    here = course()
    with contextlib.suppress(W2WError):
        answer = answers_of(here.notebook(here.find(exercise.partition(".")[0]), "lab")).find(exercise)
        return answer.source if answer else ""
    return ""


def _unit(number: str, students: Sequence[Student]) -> Unit:
    marks = [mark for student in students for mark in student.marks if mark.unit == number]
    there = [mark for mark in marks if mark.status in ("graded", "incomplete")]
    points = sorted(mark.points for mark in there)
    bins = [0] * _BINS
    for mark in there:
        bins[_bin(mark)] += 1
    bars: dict[str, Counter[str]] = {}
    for mark in there:
        for exercise, standing in mark.standings.items():
            bars.setdefault(exercise, Counter())[standing or "not graded"] += 1
    mean = sum(points, Decimal(0)) / len(points) if points else Decimal(0)
    median = (points[(len(points) - 1) // 2] + points[len(points) // 2]) / 2 if points else Decimal(0)
    out_of = marks[0].out_of if marks else Decimal(0)
    return Unit(number, len(there), round(mean, 2), round(median, 2), out_of, bins, bars)


def _bin(mark: Mark) -> int:
    return min(int(_BINS * mark.points / mark.out_of), _BINS - 1) if mark.out_of else 0


def _unreadable(submissions: Iterable[Submission]) -> list[tuple[str, list[Submission]]]:
    """(reason, those that have it), the most common first."""

    def kind(each: Submission) -> str:
        """The reason without the names and places that are this hand-in's alone."""
        return _IN_BRACKETS.sub("", each.problem.replace(each.source, "a file") if each.source else each.problem)

    having = sorted((each for each in submissions if each.problem), key=lambda each: (kind(each), each.student))
    groups = [(reason, list(each)) for reason, each in groupby(having, key=kind)]
    return sorted(groups, key=lambda group: -len(group[1]))


def _versions(release: Release) -> list[tuple[str, str]]:
    return [
        ("release", release.id),
        ("course that made the release", release.course or "not recorded"),
        ("course that wrote this report", __version__),
        ("schema of the release", str(release.schema)),
        ("Python", platform.python_version()),
    ]
