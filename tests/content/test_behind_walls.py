"""Every solution earns its points where a class is graded: inside of walls, with its launches done again outside."""

from __future__ import annotations

import json
import lzma

import pytest

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.grading.check import check
from gpu_utils.grading.program import make_program
from gpu_utils.grading.report import Report
from gpu_utils.grading.walls import bwrap, spec
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


def texts_inside() -> dict[str, str]:
    """File of the library that answers see -> its text, unpacked."""
    found = {}
    for path in bwrap.LIBRARY.rglob("*"):
        name = path.relative_to(bwrap.LIBRARY).as_posix()
        if path.is_file() and path.suffix != ".pyc" and not name.startswith(bwrap.LEFT_OUT):
            raw = path.read_bytes()
            found[name] = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8", "replace")
    return found


def test_no_file_that_answers_see_holds_a_solution():
    texts = texts_inside()
    assert {"compiler/stored_listings.json.xz", "model/gpt2.py"} <= set(texts)
    for exercise_id in exercises.ids():
        lines = {line.strip() for line in sources.solution(exercise_id).splitlines()}
        lines -= {line.strip() for line in sources.untouched(exercise_id).splitlines()}
        telling = [line for line in lines if len(line) > 24 and not line.startswith(("#", "//"))]
        hidden = spec.hidden(exercises.find(exercise_id))
        for name, text in texts.items():
            if not name.startswith(hidden):
                held = sum(line in text or json.dumps(line)[1:-1] in text for line in telling)
                assert held < max(3, len(telling) / 2), (exercise_id, name, held, len(telling))
