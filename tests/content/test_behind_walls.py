"""Every solution earns its points where a class is graded: inside of walls, with its launches done again outside."""

from __future__ import annotations

import pytest

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.grading.check import check
from gpu_utils.grading.program import make_program
from gpu_utils.grading.report import Report
from gpu_utils.grading.walls.runner import Walls, run_walled

SEED = 2**127 + 3


@pytest.fixture(scope="module")
def walls(bwrap):
    with Walls() as made:
        yield made


def graded(exercise_id: str, source: str, walls: Walls) -> Report:
    program = make_program(sources.with_setup(exercise_id, ""), [(2, source)], [])
    return check(exercises.find(exercise_id), None, runner=run_walled(program, walls), seed=SEED)


@pytest.mark.drawn("unit", 1)
@pytest.mark.parametrize("exercise_id", exercises.ids())
def test_a_solution_passes_behind_walls(exercise_id, walls):
    report = graded(exercise_id, sources.solution(exercise_id), walls)
    assert report.status == "passed", report.headline


@pytest.mark.drawn("unit", 1)
@pytest.mark.parametrize("exercise_id", exercises.ids())
def test_an_untouched_answer_is_not_started_behind_walls(exercise_id, walls):
    report = graded(exercise_id, sources.untouched(exercise_id), walls)
    assert report.status == "not started", report.headline
