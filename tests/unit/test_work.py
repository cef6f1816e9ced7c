"""Copies of labs: never overwritten, never lost."""

from __future__ import annotations

import errno
import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from gpu_utils.course import copies, files, work
from gpu_utils.course.build import build
from gpu_utils.course.ipynb import nbformat
from gpu_utils.course.paths import Course, course
from gpu_utils.course.units import UNITS, find_unit
from gpu_utils.errors import CannotWrite, ContentError, NotWritten, UnknownName, WorkConflict

NOON = datetime(2026, 1, 2, 12, 0, 0)
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


@pytest.fixture
def here(tmp_path) -> Course:
    folder = tmp_path / "content" / "04_triton_reductions"
    folder.mkdir(parents=True)
    (folder / "lab.py").write_text(LAB)
    made = Course(tmp_path)
    build(made, made.written(), NOON)
    return made


@pytest.fixture
def unit():
    return find_unit("04")


def cells(path: Path) -> list:
    return json.loads(path.read_text())["cells"]


@pytest.mark.parametrize("text", ["4", "04", "triton_reductions", "04_triton_reductions", " 04 "])
def test_a_unit_has_four_names(text):
    assert find_unit(text).name == "04_triton_reductions"


def test_the_sixteen_units_are_numbered_without_a_gap():
    assert [unit.number for unit in UNITS] == [f"{number:02d}" for number in range(16)]


def test_an_unknown_unit_offers_the_nearest():
    with pytest.raises(UnknownName, match="did you mean '04_triton_reductions'"):
        find_unit("triton_reduction")


@pytest.mark.parametrize("text", ["16", "99", "", "²"])
def test_an_unknown_number_is_refused(text):
    with pytest.raises(UnknownName):
        find_unit(text)


def test_a_planned_unit_says_that_it_is_planned(here):
    with pytest.raises(NotWritten, match=r"15_capstone.* is planned but not written yet.* 04_triton_reductions"):
        here.find("15")


def test_start_copies_the_lab(here, unit):
    copy = work.start(here, unit)
    assert copy == here.root / "work" / "04_triton_reductions.ipynb"
    assert cells(copy)[1:-1] == cells(here.notebook(unit, "lab"))
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_a_second_start_changes_nothing_and_says_what_to_do(here, unit):
    work.start(here, unit).write_text("mine")
    with pytest.raises(WorkConflict, match="w2w reset 04"):
        work.start(here, unit)
    assert here.copy(unit).read_text() == "mine"


def test_start_does_not_write_through_a_dangling_link(here, unit):
    here.work.mkdir()
    here.copy(unit).symlink_to(here.root / "nowhere")
    with pytest.raises(WorkConflict):
        work.start(here, unit)
    assert not (here.root / "nowhere").exists()


def test_a_copy_that_appears_during_start_is_not_overwritten(here, unit, monkeypatch):
    here.work.mkdir()
    here.copy(unit).write_text("mine")
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    with pytest.raises(WorkConflict):
        work.start(here, unit)
    assert here.copy(unit).read_text() == "mine"


def test_reset_keeps_the_old_copy_beside_the_new_one(here, unit):
    work.start(here, unit).write_text("mine")
    copy, kept = work.reset(here, unit, NOON)
    assert kept.name == "04_triton_reductions.20260102-120000.ipynb"
    assert kept.read_text() == "mine"
    assert cells(copy)[1:-1] == cells(here.notebook(unit, "lab"))


def test_two_resets_in_one_second_keep_both_copies(here, unit):
    work.start(here, unit)
    for text in ("one", "two", "three"):
        here.copy(unit).write_text(text)
        work.reset(here, unit, NOON)
    kept = sorted(path.read_text() for path in here.work.glob("*.2026*.ipynb"))
    assert kept == ["one", "three", "two"]


def test_reset_without_a_copy_is_a_start(here, unit):
    copy, kept = work.reset(here, unit, NOON)
    assert kept is None
    assert copy.exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_during_reset_leaves_the_old_copy(here, unit, monkeypatch, code, call):
    work.start(here, unit).write_text("mine")

    def fail(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(CannotWrite) as caught:
        work.reset(here, unit, NOON)
    assert "\n" not in str(caught.value)
    assert here.copy(unit).read_text() == "mine"
    assert not list(here.work.glob(".*"))


def test_a_full_disk_is_one_sentence(here, unit, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="the disk is full; free some space"):
        work.start(here, unit)
    assert list(here.work.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_really_full_device_is_one_sentence(here, unit, monkeypatch):
    monkeypatch.setattr(files.tempfile, "mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), ""))
    with pytest.raises(CannotWrite, match="the disk is full"):
        work.start(here, unit)


def test_a_read_only_folder_is_one_sentence(here, unit, monkeypatch):
    here.work.mkdir()
    here.work.chmod(0o500)
    if os.access(here.work, os.W_OK):  # root writes anywhere: let the system call say what it says to others

        def refuse(**_):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(files.tempfile, "mkstemp", refuse)
    with pytest.raises(CannotWrite, match="you may not write there"):
        work.start(here, unit)


def test_a_file_named_work_is_one_sentence(here, unit):
    here.work.write_text("")
    with pytest.raises(CannotWrite, match="move that file away"):
        work.start(here, unit)


def test_a_file_system_without_hard_links_still_gets_its_copy(here, unit, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert work.start(here, unit).exists()


def test_reset_gives_the_untouched_lab_even_when_the_one_in_labs_was_edited(here, unit):
    clean = cells(here.notebook(unit, "lab"))
    here.notebook(unit, "lab").write_text("edited")
    copy, _ = work.reset(here, unit, NOON)
    assert cells(copy)[1:-1] == clean


def test_a_lesson_is_started_over_in_its_own_folder(here, unit):
    here.source(unit, "lesson").write_text("# %% [markdown] top\n# # Lesson\n")
    work.start(here, unit)
    here.copy(unit, "lesson").write_text("mine")
    copy, kept = work.reset(here, unit, NOON, "lesson")
    assert copy == here.work / "lessons" / "04_triton_reductions.ipynb"
    assert kept.read_text() == "mine"
    assert kept.parent == copy.parent
    assert "# Lesson" in copy.read_text()


def test_a_unit_without_a_lab_says_so(here, unit):
    here.source(unit, "lab").rename(here.source(unit, "lesson"))
    with pytest.raises(ContentError, match="has no lab yet"):
        work.start(here, unit)


def test_the_list_shows_units_exercises_and_copies(here, unit):
    before = {row.unit.number: row for row in work.rows(here)}
    assert len(before) == 16
    assert (before["04"].written, before["04"].exercises, before["04"].copy) == (True, 1, None)
    assert (before["05"].written, before["05"].exercises) == (False, 0)
    work.start(here, unit)
    assert {row.unit.number: row.copy for row in work.rows(here)}["04"] == here.copy(unit)


def test_the_course_is_found_from_inside_it_and_from_anywhere(tmp_path):
    (tmp_path / "gpu_utils").mkdir()
    (tmp_path / "gpu_utils" / "__init__.py").touch()
    (tmp_path / "content" / "00_start").mkdir(parents=True)
    assert course(tmp_path / "content" / "00_start").root == tmp_path
    assert (course(Path("/")).root / "gpu_utils" / "course").is_dir()


def test_the_copy_is_the_notebook_that_jupyter_reads(here, unit):
    made = json.loads(work.start(here, unit).read_text())
    known = {"unit": "04_triton_reductions", "kind": "lab", "schema": 1, "sources": copies.sources_hash(made)}
    assert made["metadata"]["w2w"] == known
    nbformat.validate(made)
