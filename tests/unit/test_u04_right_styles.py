"""A right answer to an exercise of unit 04 passes in whatever style: another block, other warps, tiles, loops."""

from __future__ import annotations

import pytest

from gpu_utils import exercises
from gpu_utils.grading.check import check
from tests.fixtures import (
    right_styles_u04_elements,
    right_styles_u04_loss,
    right_styles_u04_rows,
    right_styles_u04_tiles,
)

STYLES = [
    *right_styles_u04_elements.STYLES,
    *right_styles_u04_rows.STYLES,
    *right_styles_u04_tiles.STYLES,
    *right_styles_u04_loss.STYLES,
]


@pytest.mark.parametrize(("exercise", "style", "answer"), STYLES, ids=[f"{id}-{style}" for id, style, _ in STYLES])
def test_a_right_answer_passes(exercise, style, answer):
    report = check(exercises.find(exercise), answer)
    assert report.passed, report.headline
