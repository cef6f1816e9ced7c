"""A right kernel passes in whatever style: another block, other warps, tiles, loops, orders, helper functions."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from gpu_utils import exercises
from gpu_utils.grading.check import check
from tests import fixtures

MODULES = [found.name for found in pkgutil.iter_modules(fixtures.__path__) if found.name.startswith("right_styles_u")]
STYLES = [style for name in MODULES for style in importlib.import_module(f"tests.fixtures.{name}").STYLES]


@pytest.mark.drawn("unit", 1)
@pytest.mark.parametrize(("exercise", "style", "answer"), STYLES, ids=[f"{id}-{style}" for id, style, _ in STYLES])
def test_a_right_answer_passes(exercise, style, answer):
    report = check(exercises.find(exercise), answer)
    assert report.passed, f"{report.headline} {report.hint}"
