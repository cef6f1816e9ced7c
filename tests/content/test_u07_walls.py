"""Unit 07 in a class: what the library has of an exercise is not there."""

from __future__ import annotations

import pytest

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.grading.check import check
from gpu_utils.grading.program import make_program
from gpu_utils.grading.walls.runner import Walls, run_walled

ASKS_THE_LIBRARY = """
def read_listing(listings):
    from gpu_utils.compiler.{module} import {name}

    return {{"counts": {{}}, "best": next(iter(listings))}}
"""


@pytest.mark.parametrize(("module", "name"), [("assembly", "instructions"), ("reading", "mnemonics")])
def test_readers_of_listings_are_not_there(bwrap, module, name):
    answer = ASKS_THE_LIBRARY.format(module=module, name=name)
    program = make_program(sources.with_setup("07.read_listing", ""), [(2, answer)], [])
    with Walls() as walls:
        report = check(exercises.find("07.read_listing"), None, runner=run_walled(program, walls), seed=2**127 + 3)
    assert report.status == "failed"
    assert any("Error" in outcome.kind for outcome in report.outcomes), report.headline
