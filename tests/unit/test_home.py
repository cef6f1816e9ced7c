"""The home page: where the learner stands, where to go on, and what was kept."""

from __future__ import annotations

import json

import pytest

from gpu_utils.course import copies
from gpu_utils.course.ipynb import nbformat
from gpu_utils.course.paths import Course
from gpu_utils.course.units import UNITS, find_unit
from gpu_utils.grading.progress import record_attempt
from gpu_utils.ui import home

LESSON = "# %% [markdown] top\n# # Lesson\n\n# %% one\n1 + 1\n\n# %% two\n2 + 2\n"
LAB = """# %% imports tags=["setup"]
from gpu_utils import check

# %% NN.first tags=["answer", "NN.first"]
def first(x):
    # BEGIN SOLUTION
    return x
    # END SOLUTION

# %% tags=["check"]
check("NN.first")
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Course:
    monkeypatch.setenv("W2W_DATA", str(tmp_path / "data"))
    made = Course(tmp_path)
    for unit in UNITS[:2]:
        made.source(unit, "lab").parent.mkdir(parents=True)
        made.source(unit, "lab").write_text(LAB.replace("NN", unit.number))
        made.source(unit, "lesson").write_text(LESSON)
    return made


def run_cells(here: Course, number: str, count: int) -> None:
    path = here.copy(find_unit(number), "lesson")
    notebook = json.loads(path.read_text())
    for cell in [cell for cell in notebook["cells"] if cell["cell_type"] == "code"][:count]:
        cell["execution_count"] = 1
    path.write_text(json.dumps(notebook))


def passed(*names: str) -> None:
    for name in names:
        record_attempt(name, "passed", "cpu", "", 1, 0.1)


def test_a_new_learner_begins_with_the_first_lesson(here):
    page = home.prepare(here)
    assert "Begin with lesson 00" in repr(page)
    assert '<a href="lessons/00_start.ipynb">Open lesson 00</a>' in page._repr_html_()
    assert page._repr_html_().count('class="planned"') == 14
    assert "not begun; 0 of 1 passed" in repr(page)


def test_the_next_step_goes_from_lesson_to_lab_to_the_next_unit(here):
    home.prepare(here)
    run_cells(here, "00", 1)
    assert "Go on with lesson 00" in repr(home.prepare(here))
    assert "1 of 2 cells run" in repr(home.prepare(here))
    run_cells(here, "00", 2)
    assert "Go on with lab 00: next is 00.first" in repr(home.prepare(here))
    passed("00.first")
    assert "Begin with lesson 01" in repr(home.prepare(here))
    record_attempt("01.first", "failed", "cpu", "", 1, 0.1)
    assert "Go on with lab 01: next is 01.first" in repr(home.prepare(here))  # who is in the lab stays there
    passed("01.first")
    assert "Every exercise that there is so far is passed." in repr(home.prepare(here))


def test_a_unit_that_was_left_out_is_what_comes_next(here):
    passed("01.first")
    assert "Begin with lesson 00" in repr(home.prepare(here))


def test_the_notebook_holds_the_page_so_that_no_kernel_is_needed(here):
    page = home.prepare(here)
    notebook = json.loads(here.home.read_text())
    nbformat.validate(notebook)
    (cell,) = notebook["cells"]
    assert cell["metadata"]["tags"] == [home.TAG]
    assert cell["outputs"][0]["data"]["text/html"] == page._repr_html_()
    assert "<script" not in page._repr_html_()


def test_the_page_of_today_takes_the_place_of_yesterdays(here):
    home.prepare(here)
    passed("00.first")
    home.prepare(here)
    assert "Begin with lesson 01" in here.home.read_text()


def test_a_home_page_with_notes_of_the_learners_own_is_kept(here):
    home.prepare(here)
    notebook = json.loads(here.home.read_text())
    notebook["cells"].append({"cell_type": "markdown", "id": "mine", "metadata": {}, "source": ["my notes"]})
    here.home.write_text(json.dumps(notebook))
    mine = here.home.read_bytes()
    passed("00.first")
    home.prepare(here)
    assert here.home.read_bytes() == mine


def outdated_lesson(here: Course) -> copies.Copy:
    home.prepare(here)
    path = here.copy(UNITS[0], "lesson")
    path.write_text(path.read_text().replace("1 + 1", "1 + 10"))
    here.source(UNITS[0], "lesson").write_text(LESSON.replace("2 + 2", "2 + 3"))
    (copy,) = home.prepare(here).outdated
    return copy


def test_a_lesson_that_was_kept_says_in_one_sentence_how_to_get_the_new_one(here, monkeypatch):
    monkeypatch.setattr(home, "w2w", lambda arguments: f"./w2w {arguments}")
    assert home.advice(outdated_lesson(here)) == (
        "Lesson 00 of the course is newer than your copy, which you changed and which was kept: "
        "`./w2w reset 00 --lesson` puts the new one in its place and keeps yours beside it."
    )
    page = home.prepare(here)
    assert "Lesson 00 of the course is newer" in repr(page)
    assert 'class="note"' in page._repr_html_()


def test_a_button_fetches_the_new_lesson_and_keeps_the_learners(here):
    copy = outdated_lesson(here)
    box = home.renewal(here, copy)
    button, said = box.children
    button.click()
    assert "2 + 3" in copy.path.read_text()
    (kept,) = copy.path.parent.glob("00_start.*.ipynb")
    assert "1 + 10" in kept.read_text()
    assert kept.name in said.value
    assert button.disabled
    assert home.prepare(here).outdated == ()


def test_progress_that_cannot_be_read_is_a_note_on_a_page_that_still_opens(here, tmp_path):
    (tmp_path / "data" / "progress.sqlite3").mkdir(parents=True)
    page = home.prepare(here)
    assert "Begin with lesson 00" in repr(page)
    assert page.note
    assert page.note in repr(page)


def test_a_damaged_lesson_does_not_keep_the_page_from_opening(here):
    home.prepare(here)
    here.copy(UNITS[0], "lesson").write_text("{")
    assert "Begin with lesson 01" not in repr(home.prepare(here))
