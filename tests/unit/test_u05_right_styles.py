"""A right answer to an exercise of unit 05 passes in whatever style: another tile, other warps, loops, orders."""

from __future__ import annotations

import pytest

from gpu_utils import exercises
from gpu_utils.grading.check import check
from tests.fixtures import right_styles_u05_chip, right_styles_u05_order, right_styles_u05_tile

STYLES = [*right_styles_u05_tile.STYLES, *right_styles_u05_order.STYLES, *right_styles_u05_chip.STYLES]


@pytest.mark.parametrize(("exercise", "style", "answer"), STYLES, ids=[f"{id}-{style}" for id, style, _ in STYLES])
def test_a_right_answer_passes(exercise, style, answer):
    report = check(exercises.find(exercise), answer)
    assert report.passed, f"{report.headline} {report.hint}"
