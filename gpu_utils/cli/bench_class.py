"""`w2w bench grading class`: how fast a class is graded on this machine, and whether every mark is the expected one."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from gpu_utils.classroom import sample
from gpu_utils.classroom.batch import How, grade, tasks_of
from gpu_utils.classroom.book import Book
from gpu_utils.classroom.collecting import Collection
from gpu_utils.classroom.records import Release, Result
from gpu_utils.classroom.roster import read_roster
from gpu_utils.course.files import write_atomically
from gpu_utils.course.paths import course

RUNS = ((("00",), 30, 1), (("00",), 30, 2), (("00",), 100, 2), (("00",), 300, 2), (("01",), 30, 2))
"""Units, students, workers."""


@dataclass(frozen=True)
class Run:
    """One class, graded.

    start    seconds until the first mark is there: workers and their sandboxes have started by then
    seconds  of the whole; a_minute: submissions a minute after the start
    memory   MB of the grader itself after each tenth of the marks; the workers' are in all_mb, at the end
    wrong    marks that are not the expected ones
    of       mean seconds of an answer, by exercise
    """

    units: tuple[str, ...]
    students: int
    workers: int
    answers: int
    start: float
    seconds: float
    a_minute: float
    memory: list[float]
    all_mb: float
    processor: float
    wrong: list[str]
    of: dict[str, float]


def run(out: Path, runs: Sequence[tuple[tuple[str, ...], int, int]] = RUNS) -> bool:
    """Grade made classes of several sizes, print a table, write JSON; True when every mark was the expected one."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    found = [_one(*given) for given in track(runs, "classes", transient=True)]
    table = Table(title="A class graded on this machine")
    for head in ("units", "students", "workers", "start", "seconds", "submissions a minute", "processor s", "grader MB",
                 "all MB", "wrong marks"):  # fmt: skip
        table.add_column(head, justify="right")
    for one in found:
        memory = f"{min(one.memory):.0f} to {max(one.memory):.0f}"
        row = (" ".join(one.units), one.students, one.workers, f"{one.start:.1f}", f"{one.seconds:.0f}",
               f"{one.a_minute:.0f}", f"{one.processor:.0f}", memory, f"{one.all_mb:.0f}", len(one.wrong))  # fmt: skip
        table.add_row(*map(str, row))
    console = Console(width=130, highlight=False)
    console.print(table)
    for one in found[-2:]:
        said = ", ".join(f"{name} {seconds:.2f}" for name, seconds in one.of.items())
        console.print(f"mean seconds of an answer, {one.students} students: {said}", soft_wrap=True)
    for one in found:
        for sentence in one.wrong:
            console.print(sentence, markup=False, soft_wrap=True)
    write_atomically(out, (json.dumps([asdict(one) for one in found], indent=1) + "\n").encode())
    console.print(f"written to {out}")
    return not any(one.wrong for one in found)


def _one(units: tuple[str, ...], students: int, workers: int) -> Run:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "class"
        sample.make(folder, course(), students, units)
        book = Book(folder / "book", make=True)
        release = Release.read(folder / "release.json")
        handed_in = Collection([folder / "handed_in"], units, read_roster(folder / "roster.csv"))
        moments: list[float] = []
        memory: list[float] = []
        total = sum(1 for _ in tasks_of(handed_in, release, book))
        this = psutil.Process()
        used = (0.0, 0.0)

        def keep(result: Result) -> None:
            nonlocal used
            book.put_result(result)
            moments.append(time.perf_counter())
            if len(moments) % max(1, total // 10) == 0:
                memory.append(this.memory_info().rss / 1e6)
            if len(moments) == total:
                used = _used(this)

        before, _ = _used(this)
        start = time.perf_counter()
        grade(tasks_of(handed_in, release, book), How(workers=workers), keep)
        first, last = moments[0], moments[-1]
        rows = list(book.results())
        wrong = _wrong(rows, sample.expected(folder))
        seconds: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            seconds[row.exercise].append(row.seconds)
        return Run(
            units,
            students,
            workers,
            len(rows),
            first - start,
            last - start,
            60 * (students - students / len(rows)) / (last - first),
            memory,
            used[1],
            used[0] - before,
            wrong,
            {exercise: statistics.fmean(each) for exercise, each in sorted(seconds.items())},
        )


def _used(this: psutil.Process) -> tuple[float, float]:
    """Seconds of processor time of this process and all below it, those that have ended included; MB of memory."""
    total, memory = 0.0, 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            spent = process.cpu_times()
            memory += process.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total, memory


def _wrong(rows: Sequence[Result], expected: dict[tuple[str, str], sample.Mark]) -> list[str]:
    found = {(row.student, row.exercise): row for row in rows}
    said = [f"{student} {exercise}: no mark" for student, exercise in expected.keys() - found.keys()]
    for key, mark in expected.items():
        row = found.get(key)
        if row is not None and (row.points, row.status) != (mark.points, mark.status):
            said.append(
                f"{row.student} {row.exercise}: {row.status} {row.points:g}, expected {mark.status} {mark.points:g} "
                f"({mark.because}): {row.headline}"
            )
    return sorted(said)
