"""The learner's copies: made once, never overwritten, followed while nobody changed them, and linked to each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import gpu_utils
from gpu_utils.course import copies
from gpu_utils.course.ipynb import nbformat
from gpu_utils.course.paths import Course
from gpu_utils.course.units import find_unit
from gpu_utils.errors import CannotWrite

ROOT = Path(gpu_utils.__file__).parents[1]
LESSON = """# %% [markdown] top
# # Lesson 04
#
# Now open [lab 04](../labs/04_triton_reductions.ipynb).

# %% experiment
1 + 1
"""
LAB = """# %% imports tags=["setup"]
from gpu_utils import check

# %% 04.copy tags=["answer", "04.copy"]
def copy(x):
    # BEGIN SOLUTION
    return x
    # END SOLUTION

# %% tags=["check"]
check("04.copy")
"""
UNIT = find_unit("04")


@pytest.fixture
def here(tmp_path) -> Course:
    made = Course(tmp_path)
    made.source(UNIT, "lab").parent.mkdir(parents=True)
    made.source(UNIT, "lab").write_text(LAB)
    made.source(UNIT, "lesson").write_text(LESSON)
    files = made.material(UNIT) / "files" / "nodes"
    files.mkdir(parents=True)
    (files / "one.yaml").write_text("gpus: 8\n")
    return made


def change(path: Path, edit) -> None:
    """Save a notebook as JupyterLab does after an edit of its cells."""
    notebook = json.loads(path.read_text())
    edit(notebook["cells"])
    path.write_text(json.dumps(notebook, indent=1))


def run(cells):
    for cell in cells:
        if cell["cell_type"] == "code":
            cell["execution_count"] = 7
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["hello\n"]}]
    cells.append({"cell_type": "code", "metadata": {}, "source": [], "outputs": [], "execution_count": None})


def edit(cells):
    cells[1]["source"] = ["# My notes\n"]


def course_changes(here: Course) -> None:
    for kind in ("lesson", "lab"):
        source = here.source(UNIT, kind)
        source.write_text(source.read_text() + "\n# %% [markdown] more\n# More.\n")


@pytest.mark.parametrize("kind", ["lesson", "lab"])
def test_a_copy_that_was_only_run_follows_the_course(here, kind):
    copies.make_all(here)
    path = here.copy(UNIT, kind)
    change(path, run)
    before = path.read_bytes()
    assert not copies.make(here, UNIT, kind).outdated
    assert path.read_bytes() == before  # with its outputs, while the course is the same
    course_changes(here)
    assert not copies.make(here, UNIT, kind).outdated
    assert "More." in path.read_text()


@pytest.mark.parametrize("kind", ["lesson", "lab"])
def test_a_copy_that_was_changed_is_kept_and_called_outdated_once_the_course_has_a_newer_one(here, kind):
    copies.make_all(here)
    path = here.copy(UNIT, kind)
    change(path, edit)
    mine = path.read_bytes()
    assert not copies.make(here, UNIT, kind).outdated
    course_changes(here)
    assert copies.make(here, UNIT, kind).outdated
    assert path.read_bytes() == mine


def test_a_change_that_was_taken_back_is_no_change(here):
    copies.make_all(here)
    path = here.copy(UNIT, "lesson")
    before = path.read_text()
    change(path, edit)
    path.write_text(before)
    course_changes(here)
    assert not copies.make(here, UNIT, "lesson").outdated
    assert "More." in path.read_text()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cells": 3, "metadata": {}}', '{"cells": [], "metadata": []}', "\x00"]
)
def test_a_file_that_is_no_notebook_is_left_alone(here, text):
    path = here.copy(UNIT)
    path.parent.mkdir()
    path.write_text(text)
    assert not copies.make(here, UNIT, "lab").outdated
    assert path.read_text() == text


def test_a_copy_of_an_earlier_version_without_a_hash_is_left_alone(here):
    path = here.copy(UNIT)
    copies.make_all(here)
    notebook = json.loads(path.read_text())
    del notebook["metadata"]["w2w"]["sources"]
    edit(notebook["cells"])
    path.write_text(json.dumps(notebook))
    mine = path.read_bytes()
    course_changes(here)
    assert not copies.make(here, UNIT, "lab").outdated
    assert path.read_bytes() == mine


def test_a_link_to_nowhere_is_left_alone(here):
    here.work.mkdir()
    here.copy(UNIT).symlink_to(here.root / "nowhere")
    copies.make(here, UNIT, "lab")
    assert not (here.root / "nowhere").exists()


def test_files_follow_the_course_until_they_are_changed(here):
    source = here.material(UNIT) / "files" / "nodes" / "one.yaml"
    copy = here.work / UNIT.name / "nodes" / "one.yaml"
    copies.make_all(here)
    assert copy.read_text() == "gpus: 8\n"
    source.write_text("gpus: 4\n")
    copies.make_all(here)
    assert copy.read_text() == "gpus: 4\n"
    copy.write_text("mine")
    source.write_text("gpus: 2\n")
    copies.make_all(here)
    assert copy.read_text() == "mine"
    (here.work / ".made.json").write_text("damaged")
    copies.make_all(here)
    assert copy.read_text() == "mine"


def test_the_page_for_assistants_is_made_once_and_never_again(here):
    copies.make_all(here)
    page = here.work / "AGENTS.md"
    assert "Never write an answer" in page.read_text()
    page.write_text("mine")
    copies.make_all(here)
    assert page.read_text() == "mine"


def test_the_command_is_found_from_below_work_too(here):
    (here.root / "w2w").write_text("#!/bin/sh\necho here\n")
    (here.root / "w2w").chmod(0o755)
    copies.make_all(here)
    copies.make_all(here)
    done = subprocess.run(["./w2w"], cwd=here.work, capture_output=True, text=True)
    assert done.stdout == "here\n"


def test_a_second_start_writes_nothing(here):
    copies.make_all(here)
    before = {path: path.stat().st_mtime_ns for path in here.work.rglob("*") if path.is_file()}
    copies.make_all(here)
    assert {path: path.stat().st_mtime_ns for path in here.work.rglob("*") if path.is_file()} == before


def test_a_folder_that_cannot_be_written_is_one_sentence(here):
    here.work.write_text("a file in its place")
    with pytest.raises(CannotWrite, match="move that file away"):
        copies.make_all(here)


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Course:
    """The copies of the real course, in a folder of their own."""
    root = tmp_path_factory.mktemp("course")
    for name in ("content", "gpu_utils"):
        (root / name).symlink_to(ROOT / name)
    made = Course(root)
    copies.make_all(made)
    made.home.touch()  # made with the home page
    return made


def test_every_link_between_copies_leads_to_a_file_of_the_learner(everything):
    seen = 0
    for path in sorted(everything.work.rglob("*.ipynb")):
        text = path.read_text()
        if text:
            nbformat.validate(json.loads(text))
        for link in re.findall(r"\]\(((?:\.\./|lessons/|\d\d_|home)[^)#]*)", text):
            target = Path(os.path.normpath(path.parent / link))
            assert target.is_relative_to(everything.work), (path.name, link)
            assert target.is_file(), (path.name, link)
            seen += 1
    assert seen > 20


def test_every_lesson_says_in_its_text_which_lab_comes_next(everything):
    for unit in everything.written():
        body = json.loads(everything.copy(unit, "lesson").read_text())["cells"][1:-1]
        assert f"](../{unit.name}.ipynb)" in "".join("".join(cell["source"]) for cell in body), unit.name


def test_what_lessons_and_labs_say_of_files_below_work_is_there(everything):
    texts = "".join(path.read_text() for path in everything.content.glob("*/*.py"))
    named = set(re.findall(r"`(?:\S+ )*work/(\d\d_\S*?)/?`", texts))
    assert named
    assert [name for name in named if not (everything.work / name).exists()] == []


def test_nothing_of_content_is_shown_to_a_learner(everything):
    shown = [path for path in everything.work.rglob("*") if path.is_file() and "content/" in path.read_text("utf-8")]
    assert shown == []


def test_git_does_not_see_what_a_learner_makes(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    for name in ("content", "gpu_utils"):
        (tmp_path / name).symlink_to(ROOT / name)
    copies.make_all(Course(tmp_path))
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert status.stdout.split() == ["??", ".gitignore", "??", "content", "??", "gpu_utils"]
