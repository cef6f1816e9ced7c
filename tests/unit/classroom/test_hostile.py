"""Answers that attack the grader: each earns nothing and is explained, and neither a neighbour nor a file is touched.

Every file of tests/fixtures/hostile is the source of an answer's cell, and no module, so that nothing imports it. Its
head says which exercise it answers, and what the teacher must be able to read (`says`, a regular expression); some say
which one runs before it (`after`), or a time limit for one call (`seconds`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from gpu_utils import exercises
from gpu_utils.classroom import marking
from gpu_utils.classroom.marking import mark
from gpu_utils.classroom.records import Result, Submission
from gpu_utils.course import sources
from gpu_utils.folders import data_folder
from gpu_utils.grading.walls import bwrap, runner
from gpu_utils.grading.walls.runner import Walls

FOLDER = Path(__file__).parents[2] / "fixtures" / "hostile"
HOSTILE = sorted(path.stem for path in FOLDER.glob("*.answer"))
NEIGHBOUR = "01.param_count"
SEED = 2**127 + 11


def head(name: str) -> dict[str, str]:
    return dict(re.findall(r"^# (\w+): (.+)$", (FOLDER / f"{name}.answer").read_text(), re.MULTILINE))


def submission(exercise: str, source: str) -> Submission:
    _, setup, _ = sources._answer_cell(exercise)
    tagged = ((["setup"], setup), (["answer", exercise], source))
    cells = [{"cell_type": "code", "metadata": {"tags": tags}, "source": text} for tags, text in tagged]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    return Submission("student-001", exercise[:2], "student-001.ipynb", json.dumps(notebook).encode(), "digest")


def marked(exercise: str, source: str, walls: Walls) -> Result:
    """The Result, without its seconds."""
    return dataclasses.replace(mark(submission(exercise, source), exercise, SEED, 1.0, walls), seconds=0.0)


@pytest.fixture(scope="module")
def walls(bwrap):
    with Walls() as made:
        made.start("plain", "kernel", "replayer")
        yield made


@pytest.fixture(scope="module")
def neighbour(walls):
    """What a healthy answer earns before any of the others has run."""
    found = marked(NEIGHBOUR, sources.solution(NEIGHBOUR), walls)
    assert found.points == 1.0
    return found


def wait_for(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """The grader waits for so many seconds only."""
    find = exercises.find
    patch.setattr(marking.exercises, "find", lambda exercise: dataclasses.replace(find(exercise), seconds=seconds))
    patch.setattr(runner, "START_SECONDS", 1.5)
    patch.setattr(runner, "GRACE_SECONDS", 0.5)
    patch.setattr(runner, "END_SECONDS", 1.0)


def files() -> dict[Path, tuple[int, int]]:
    """What an answer must not change: the course, whose library answers see, and the learner's own data."""
    data_folder().mkdir(parents=True, exist_ok=True)
    found = [path for top in (bwrap.LIBRARY, data_folder()) for path in top.rglob("*")]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def left_over() -> list[str]:
    """Processes inside of walls, other than the first of each."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        parents[int(folder.name)] = int(rest.split()[1]), name
    ours = {pid for pid, (parent, _) in parents.items() if parent == os.getpid()}
    first = {pid for pid, (parent, _) in parents.items() if parent in ours and parents[parent][1] == "bwrap"}
    return [f"{pid} {name}" for pid, (parent, name) in parents.items() if parent in first]


def test_there_are_enough_of_them():
    assert len(HOSTILE) >= 45


@pytest.mark.drawn("all", 30)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_earns_nothing_and_touches_nobody(name, walls, neighbour, monkeypatch):
    said = head(name)
    before = files()
    with monkeypatch.context() as patch:
        if "seconds" in said:
            wait_for(float(said["seconds"]), patch)
        for each in filter(None, (said.get("after"), name)):
            result = marked(said["exercise"], (FOLDER / f"{each}.answer").read_text(), walls)
    assert result.points == 0.0, result.headline
    assert re.search(said["says"], "\n".join((result.headline, *result.flags, result.log))), result.headline
    assert left_over() == []
    assert files() == before
    assert marked(NEIGHBOUR, sources.solution(NEIGHBOUR), walls) == neighbour


def test_a_kernel_is_graded_as_ever_after_all_of_them(walls):
    assert marked("00.vector_add", sources.solution("00.vector_add"), walls).points == 1.0
