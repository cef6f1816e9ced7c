"""What a lesson's text relies on: content/NN_name/stated.toml, and what a run of the notebook says of it."""

from __future__ import annotations

import pytest

from gpu_utils.course import stated
from gpu_utils.course.build import render
from gpu_utils.course.paths import Course, course
from gpu_utils.course.units import find_unit
from gpu_utils.course.validate import run_notebooks
from gpu_utils.errors import ContentError
from tests import ROOT

UNIT = find_unit("00")
LESSON = """# %% [markdown]
# # A lesson

# %% six
print("six is", 6)
2 * 3

# %% seven
print("seven is 7")
"""


@pytest.fixture
def small(tmp_path):
    """stated.toml -> a course of one lesson with it."""

    def made(text: str) -> Course:
        here = Course(tmp_path)
        for place, content in {"lesson.py": LESSON, stated.FILE: text}.items():
            file = here.content / UNIT.name / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, "utf-8")
        return here

    return made


def test_patterns_belong_to_the_ids_of_cells(small):
    here = small("[lesson]\nsix = ['^6$']\n")
    (identity,) = stated.of_lesson(here, UNIT)
    assert identity.startswith("six-0-")
    assert f'"id": "{identity}"' in render(here, UNIT, "lesson")
    assert stated.of_notebook(here, here.notebook(UNIT, "lesson")) == {identity: ["^6$"]}
    assert stated.of_notebook(here, here.notebook(UNIT, "solution")) == {}


def test_a_lesson_without_the_file_states_nothing(small, tmp_path):
    here = small("")
    (here.content / UNIT.name / stated.FILE).unlink()
    assert stated.of_lesson(here, UNIT) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[lesson]\neight = ['8']\n", "no code cell of the lesson has the title 'eight'"),
        ("[lesson]\nsix = ['(']\n", "'(' is no pattern: missing )"),
    ],
)
def test_a_mistake_in_the_file_is_named(small, text, said):
    with pytest.raises(ContentError, match=r"content/00_start/stated.toml:1: ") as problem:
        stated.of_lesson(small(text), UNIT)
    assert said in str(problem.value)


@pytest.mark.parametrize("unit", [unit for unit in course().written() if course().source(unit, "lesson").is_file()])
def test_what_the_lessons_state_is_of_their_cells(unit):
    stated.of_lesson(course(), unit)


def test_what_a_cell_prints_and_what_it_is_worth_is_looked_at():
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "six is 6\n"},
        {"output_type": "execute_result", "data": {"text/plain": "a table", "text/html": "<b>hidden</b>"}},
        {"output_type": "display_data", "data": {"image/png": "..."}},
    ]
    assert stated.unseen(["six is 6$", "^a table$"], outputs) == ""
    assert stated.unseen([], []) == ""
    said = stated.unseen(["a table", "hidden"], outputs)
    assert "relies on 'hidden' (stated.toml)" in said
    assert said.endswith("six is 6\n\na table\n")


def test_a_cell_that_shows_something_else_fails_its_notebook(small, tmp_path):
    here = small("[lesson]\nsix = ['^6$', 'six is 6$']\nseven = ['seven is 8']\n")
    notebook = here.notebook(UNIT, "lesson")
    notebook.parent.mkdir()
    notebook.write_text(render(here, UNIT, "lesson"), "utf-8")
    (tmp_path / "gpu_utils").symlink_to(ROOT / "gpu_utils")
    validation = run_notebooks(here.root, [notebook], strict=True)
    assert not validation.ok
    (run,) = validation.runs
    assert run.passed == 1
    (failure,) = run.failures
    assert failure.startswith("Cell 1: The lesson's text relies on 'seven is 8' (stated.toml)")
    assert "seven is 7" in failure
