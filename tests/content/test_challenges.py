"""The challenge of a unit is for an exercise of that unit, and the course's own solution enters it."""

from __future__ import annotations

import pytest

from gpu_utils import exercises
from gpu_utils.course.sources import load_solution
from gpu_utils.grading.challenge import enter


@pytest.mark.parametrize("number", ["04", "05", "06", "08", "10"])
def test_the_solution_enters(number):
    known = exercises.challenge(number)
    assert known.exercise in exercises.ids(number)
    entry = enter(known, exercises.find(known.exercise), load_solution(known.exercise), seed=1)
    assert entry.refused == ""
    assert set(entry.cycles) == set(known.targets)
