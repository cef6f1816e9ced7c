"""The end of a sitting counts first tries, names where intuition was off, and says how far the lab is."""

from __future__ import annotations

import re

import pytest

from gpu_utils.course.paths import Course
from gpu_utils.course.predictions import Sitting
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.grading import progress
from gpu_utils.lesson import sitting
from gpu_utils.ui import sitting as module


@pytest.fixture(autouse=True)
def lesson(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    first = {"00.programs": ("programs",), "00.loads": ("sm_80", "gfx942")}
    two = [Sitting(1, first, "5. Machine code"), Sitting(2, {"00.bytes": ("asked",)}, "")]
    monkeypatch.setattr(module, "sittings_of", lambda unit: two)
    return tmp_path


def answered(name, attempt=1, **slots):
    for slot, (guess, _truth, _hit) in slots.items():
        if guess is not None:
            progress.record_guess(name, attempt, slot, guess)
    progress.record_answers(name, attempt, {slot: (truth, hit) for slot, (_, truth, hit) in slots.items()})


def test_it_counts_what_was_seen_coming_and_names_what_was_not():
    answered("00.programs", programs=("3", "3", True))
    answered("00.loads", sm_80=("1", "2", False), gfx942=("1", "1", True))
    found = sitting("00", 1)
    assert found.words == "Sitting 1: you saw 2 of 3 answers coming. Your intuition was off at: loads."
    assert "programs  ■\n  loads     □■" in repr(found)
    assert "exercises passed" in repr(found)
    assert '<a href="#5.-Machine-code">' in found._repr_html_()


def test_only_the_first_try_counts():
    answered("00.bytes", asked=("8", "4", False))
    answered("00.bytes", attempt=2, asked=("4", "4", True))
    assert "you saw 0 of 1 answer coming" in sitting("00", 2).words


def test_answers_without_a_guess_are_counted_apart():
    answered("00.programs", programs=("3", "3", True))
    answered("00.loads", sm_80=(None, "2", None), gfx942=(None, "1", None))
    assert sitting("00", 1).words == (
        "Sitting 1: you saw 1 of 1 answer coming. Nothing came out otherwise. 2 answers came without a guess."
    )


def test_what_the_machine_could_not_answer_is_left_out():
    progress.record_guess("00.loads", 1, "sm_80", "2")
    progress.record_guess("00.loads", 1, "gfx942", "1")
    progress.record_answers("00.loads", 1, {"gfx942": ("1", True)})
    assert "you saw 1 of 1 answer coming. Nothing came out otherwise. 1 answer came without a guess." in (
        sitting("00", 1).words
    )


def test_slots_of_an_older_lesson_are_left_aside():
    answered("00.bytes", old=("8", "4", False), asked=("4", "4", True))
    assert "you saw 1 of 1 answer coming" in sitting("00", 2).words


def test_without_any_guess_it_says_so_and_where_to_go_on():
    assert "made no guess" in sitting("00", 2).words
    assert repr(sitting("00", 2)).splitlines()[-1].startswith("Go on with: lab 00, ")


def test_the_last_sitting_leads_to_the_learners_own_copy_of_the_lab(tmp_path, monkeypatch):
    here = Course(tmp_path)
    for folder in ("content/00_start", "gpu_utils", "work/lessons", "labs"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("content/00_start/lesson.py", "gpu_utils/__init__.py"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path / "work" / "lessons")
    assert '<a href="../../labs/00_start.ipynb">lab 00</a>' in sitting("00", 2)._repr_html_()
    here.copy(here.find("00")).touch()
    assert '<a href="../00_start.ipynb">lab 00</a>' in sitting("00", 2)._repr_html_()


def test_after_a_lab_that_is_passed_it_leads_to_the_next_lesson(monkeypatch):
    monkeypatch.setattr(module, "_lab", lambda unit: (6, 6))
    assert re.search(r"Go on with: lesson 01, .*01_gpt2_baseline\.ipynb", repr(sitting("00", 2)))
    assert "lesson 01</a>" in sitting("00", 2)._repr_html_()
    monkeypatch.setattr(Course, "written", lambda self: [self.find("00")])
    last = sitting("00", 2)
    assert repr(last).endswith("Lab 00: 6 of 6 exercises passed.\nUnit 00 is done.")
    assert "Go on" not in last._repr_html_()


def test_a_broken_progress_file_is_a_note(lesson):
    (lesson / "progress.sqlite3").write_bytes(b"not a database, but long enough to be read as one" * 50)
    assert "damaged" in repr(sitting("00", 1))


def test_a_sitting_or_a_unit_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(BadArgument, match="lesson 00 has 2 sittings, so there is no sitting 3"):
        sitting("00", 3)
    monkeypatch.undo()
    with pytest.raises(UnknownName, match="start"):
        sitting("stat", 1)
