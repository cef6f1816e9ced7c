"""A class graded by dask: lost processes cost nothing, and two runs with one seed say the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpu_utils.classroom import sample
from gpu_utils.classroom.batch import How, Task, grade, tasks_of
from gpu_utils.classroom.book import Book
from gpu_utils.classroom.collecting import Collection
from gpu_utils.classroom.records import Release, Result, Submission
from gpu_utils.classroom.roster import read_roster
from gpu_utils.course import sources
from gpu_utils.course.paths import course

EXERCISES = ("00.platform", "00.predict_counters")
RIGHT = {name: sources.solution(name) for name in EXERCISES}
EXITS = "def platform(**given):\n    import os\n    os._exit(0)\n"
RELEASE = Release("r1", ("00",))
STUDENTS = 18
"""Of a class that is larger in `w2w bench grading class`."""


@pytest.fixture(scope="module", autouse=True)
def _walls(bwrap: None) -> None:
    """Answers run inside of it."""


def notebook(answers: dict[str, str]) -> bytes:
    setup = sources.with_setup(EXERCISES[0], "")
    tagged = [(["setup"], setup), *((["answer", name], source) for name, source in answers.items())]
    cells = [
        {"cell_type": "code", "id": f"c{number}", "metadata": {"tags": tags}, "source": source, "outputs": []}
        for number, (tags, source) in enumerate(tagged)
    ]
    metadata = {"w2w": {"unit": "00_start"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}).encode()


def the_class() -> dict[str, bytes]:
    """Student -> notebook: right, wrong, hostile, damaged."""
    made = {f"right-{i}": notebook({**RIGHT, "00.platform": f"{RIGHT['00.platform']}\n# {i}\n"}) for i in range(2)}
    made["wrong"] = notebook({**RIGHT, "00.platform": "def platform(**given):\n    return 'CUDA'\n"})
    made["hostile"] = notebook({**RIGHT, "00.platform": EXITS})
    made["damaged"] = b"{"
    made["untouched"] = notebook({name: sources.untouched(name) for name in EXERCISES})
    return made


EXPECTED = {
    **{f"right-{i}": ("passed", "passed") for i in range(2)},
    "wrong": ("failed", "passed"),
    "hostile": ("failed", "passed"),
    "damaged": ("unreadable", "unreadable"),
    "untouched": ("not started", "not started"),
}


def tasks(book: Book, exercises: tuple[str, ...] = EXERCISES) -> list[Task]:
    made = []
    for student, content in the_class().items():
        submission = Submission(student, "00", f"{student}.ipynb", content, digest=f"{len(content):x}")
        book.put_submission(submission)
        made += [Task(submission.as_fields(), name, book.seed(submission, name), 1.0) for name in exercises]
    return made


def statuses(rows: list[Result]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row.student, {})[row.exercise] = row.status
    return {student: tuple(of[name] for name in EXERCISES) for student, of in found.items()}


def told(rows: list[Result]) -> list[tuple]:
    """All that a rerun must give again: everything but the seconds."""
    return sorted((*(value for name, value in vars(row).items() if name != "seconds"),) for row in rows)


def markers() -> list[psutil.Process]:
    """The processes below this one that mark."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            found += [one] if "gpu_utils.classroom.marker" in " ".join(one.cmdline()) else []
    return found


def test_a_made_class_gets_its_marks_although_a_marker_and_a_worker_are_killed_meanwhile(tmp_path):
    sample.make(tmp_path / "class", course(), STUDENTS, ("00",))
    handed_in = tmp_path / "class" / "handed_in"
    submissions = Collection([handed_in], ("00",), read_roster(tmp_path / "class" / "roster.csv"))
    book = Book(tmp_path / "book", make=True)
    chosen = [task for task in tasks_of(submissions, RELEASE, book) if task.exercise in EXERCISES]
    assert len(chosen) == STUDENTS * len(EXERCISES)
    chosen = [task for task in chosen if task.submission["student"] != "student-001"]  # theirs never end
    killed = []

    def keep(result: Result) -> None:
        book.put_result(result)
        if not killed:
            (victim, *_) = markers()
            killed.append(victim.parent().pid)
            victim.kill()
        elif len(killed) == 1 and len(list(book.results())) > 9:
            killed.append(markers()[0].parent().pid)
            os.kill(killed[-1], signal.SIGKILL)  # a worker of dask

    grade(chosen, How(workers=2), keep)
    assert len(killed) == 2
    rows = list(book.results())
    expected = sample.expected(tmp_path / "class")
    assert {(row.student, row.exercise): (row.points, row.status) for row in rows} == {
        key: (mark.points, mark.status)
        for key, mark in expected.items()
        if key[1] in EXERCISES and key[0] != "student-001"
    }

    some = [task for task in chosen if task.submission["student"] <= "student-005"]
    again: list[Result] = []
    grade(some, How(workers=1), again.append)
    assert told(again) == told([row for row in rows if row.student <= "student-005"])


def test_a_scheduler_and_workers_of_their_own_give_the_same_marks(tmp_path):
    book = Book(tmp_path, make=True)
    dask = [sys.executable, "-m", "dask"]
    log = (tmp_path / "scheduler.log").open("w")
    started = [
        subprocess.Popen(
            [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"],
            stdout=log,
            stderr=log,
        )
    ]
    try:
        address = _address(tmp_path / "scheduler.log")
        options = ["--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(tmp_path)]
        for _ in range(2):
            started.append(subprocess.Popen([*dask, "worker", address, *options], stdout=log, stderr=log))
        rows: list[Result] = []
        deadline = time.monotonic() + 60
        while not _workers(address):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        grade(tasks(book, EXERCISES), How(scheduler=address), rows.append)
        assert statuses(rows) == EXPECTED
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(20)
        log.close()


def _address(log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := re.search(r"tcp://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def _workers(address: str) -> int:
    from distributed import Client

    with Client(address) as client:
        return len(client.scheduler_info()["workers"]) == 2


def test_a_grader_that_is_killed_loses_nothing_and_a_rerun_grades_the_rest(tmp_path, monkeypatch):
    handed_in, out = tmp_path / "handed_in", tmp_path / "book"
    handed_in.mkdir()
    for student, content in the_class().items():
        (handed_in / f"{student}_00_start.ipynb").write_bytes(content)
    command = [sys.executable, "-m", "gpu_utils.cli", "grade", str(handed_in), "--out", str(out), "--workers", "1"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (out / "book.sqlite").exists() or len(list(Book(out).results())) < 5:
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.1)
    first.kill()
    first.wait()
    kept = {(row.student, row.exercise): row for row in Book(out).results()}
    assert len(kept) >= 5
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rows = {(row.student, row.exercise): row for row in Book(out).results()}
    assert {student for student, _ in rows} == set(EXPECTED)
    assert {key: rows[key] for key in kept} == kept  # also the seconds: these were not graded again
    assert len(Book(out).submissions()) == len(EXPECTED)
    assert statuses([row for row in rows.values() if row.exercise in EXERCISES]) == EXPECTED
    again = subprocess.run(
        [sys.executable, "-m", "gpu_utils.cli", "regrade", str(out), "--workers", "1"], capture_output=True, text=True
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"0 of {len(rows)} marks have changed" in again.stdout
