"""Without bubblewrap nothing of others runs, unless the teacher says so, and then every result says so."""

from __future__ import annotations

import pytest

from gpu_utils.classroom.marking import mark
from gpu_utils.classroom.records import Submission
from gpu_utils.course import sources
from gpu_utils.errors import WallsMissing
from gpu_utils.grading.walls.runner import Walls
from tests.unit.classroom.test_batch import RIGHT, notebook

EXERCISE = "00.platform"


def test_without_bubblewrap_answers_of_others_are_refused_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WallsMissing, match="bubblewrap, which is not installed; install it"):
        Walls()


def test_without_walls_an_answer_is_graded_alike_and_the_result_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    answers = [RIGHT, {EXERCISE: sources.untouched(EXERCISE)}, {EXERCISE: "def platform(**given):\n    return 1\n"}]
    with Walls(walled=False) as walls:
        found = [
            mark(Submission("s", "00", "s.ipynb", notebook(of), f"{number}"), EXERCISE, 7, 2.0, walls)
            for number, of in enumerate(answers)
        ]
    assert [(row.status, row.points) for row in found] == [("passed", 2.0), ("not started", 0.0), ("failed", 0.0)]
    assert {row.walls for row in found} == {"none"}
