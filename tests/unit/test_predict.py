"""A guess is kept, locked by the answer, shown beside it, and never in the way."""

from __future__ import annotations

import re
import sqlite3

import numpy as np
import pytest
import torch

from gpu_utils import predict
from gpu_utils.errors import BadArgument, ProgressUnavailable
from gpu_utils.grading import progress
from gpu_utils.lesson import choice, nearest, number, yes_no
from gpu_utils.ui.predict_form import Form
from gpu_utils.ui.slots import Number

NAME = "00.programs"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    return tmp_path


def ask(**slots):
    return predict(NAME, "How many programs?", **(slots or {"programs": number(), "tail": choice("masked", "lost")}))


def shown(capsys) -> str:
    return capsys.readouterr().out


def test_a_guess_is_shown_beside_what_came_out_and_why(capsys):
    guess = ask()
    guess.say(programs=4, tail="masked")
    shown(capsys)
    guess.reveal(programs=3, tail="masked", because="10 / 4 is 2.5, rounded up")
    assert re.split(r"\s{2,}|\n", shown(capsys).strip()) == [
        *("You said, it is:", "you said", "it is"),
        *("programs", "4", "3", "1.33 times too high", "tail", "masked", "masked", "right"),
        "because 10 / 4 is 2.5, rounded up",
    ]


def test_without_a_guess_the_answer_comes_all_the_same_and_says_so(capsys):
    ask().reveal(programs=3, tail="masked")
    assert "You made no guess. It is:" in shown(capsys)


def test_a_slot_that_was_left_open_reads_no_guess_beside_its_answer(capsys):
    guess = ask()
    guess.say(programs=3)
    assert "Kept: programs: 3. 1 still open." in shown(capsys)
    guess.reveal(programs=3, tail="lost")
    assert re.search(r"tail +no guess +lost$", shown(capsys), re.MULTILINE)


def test_after_the_answer_a_guess_changes_nothing_until_a_second_try_is_opened(capsys):
    guess = ask()
    guess.say(programs=4)
    guess.reveal(programs=3, tail="masked")
    shown(capsys)
    guess.say(programs=3)
    assert "locked" in shown(capsys)
    guess.reveal(programs=3, tail="masked")
    assert "1.33 times too high" in shown(capsys)
    guess.again()
    guess.say(programs=3)
    guess.reveal(programs=3, tail="masked")
    assert "Try 2, with the answer seen before" in shown(capsys)
    first, second = progress.predictions([NAME])[NAME]
    assert (first.guesses["programs"], second.guesses["programs"]) == ("4", "3")


def test_a_guess_outlives_the_kernel(capsys):
    ask().say(programs="2**2")
    again = ask()
    assert "Kept: programs: 4" in repr(again)
    again.reveal(programs=3, tail="masked")
    shown(capsys)
    assert "1.33 times too high" in repr(ask())


def test_of_two_notebooks_the_one_that_answers_locks_the_other():
    one, other = ask(), ask()
    one.say(programs=4)
    other.reveal(programs=3, tail="masked")
    one.keep("programs", "3")
    assert one.locked
    assert one.now.guesses == {"programs": "4"}


def test_an_answer_that_was_computed_otherwise_the_second_time_is_shown_and_the_first_one_stays(capsys):
    guess = ask()
    guess.say(programs=3)
    guess.reveal(programs=3, tail="masked")
    shown(capsys)
    guess.reveal(programs=6, tail="masked", because="the grid is larger")
    said = shown(capsys)
    assert re.search(r"Run again, it is now.*programs +3 +6", said, re.DOTALL)
    assert "too low" not in said
    assert "because" not in said
    assert progress.predictions([NAME])[NAME][0].answers["programs"] == ("3", True)


def test_a_time_that_is_measured_again_is_no_other_answer(capsys):
    guess = ask(ms=number(factor=2))
    guess.reveal(ms=10)
    shown(capsys)
    guess.reveal(ms=12, because="it waits for memory")
    assert "because it waits" in shown(capsys)


@pytest.mark.parametrize("truth", [3, np.int64(3), torch.tensor(3), 3.0])
def test_what_was_measured_may_come_from_numpy_or_torch(truth, capsys):
    guess = ask(programs=number())
    guess.say(programs=3)
    guess.reveal(programs=truth)
    assert re.search(r"programs +3 +3 +right", shown(capsys))


def test_yes_and_no_take_what_an_experiment_computes(capsys):
    guess = ask(equal=yes_no("equal to torch"))
    guess.say(equal=True)
    guess.reveal(equal=np.bool_(False))
    assert re.search(r"equal to torch +yes +no +not so", shown(capsys))


def test_what_this_machine_cannot_tell_is_no_answer(capsys):
    guess = ask(mfu=number())
    guess.say(mfu=0.4)
    guess.reveal(mfu=None)
    assert "unknown here" in shown(capsys)
    assert not guess.locked


@pytest.mark.parametrize(
    ("written", "value"),
    [("1,024", 1024), ("2**10", 1024), ("64 / 48", 64 / 48), ("12%", 0.12), ("1e6", 1e6), ("-3", -3)],
)
def test_a_number_may_be_written_as_people_write_it(written, value):
    assert Number().read(written) == value


@pytest.mark.parametrize("written", ["about three", "", "1 2", "x", "9**9**9", "1/0", "(-8)**0.5", "True", "()", "1j"])
def test_what_is_no_number_is_said_with_an_example(written):
    with pytest.raises(BadArgument, match="is not a number; write one, such as 24"):
        Number().read(written)


def test_a_unit_may_stand_behind_the_number():
    assert Number(unit="bytes").read("1,024 bytes") == 1024


@pytest.mark.parametrize(
    ("guess", "truth", "said"),
    [
        (8, 64, "8 times too low"),
        (64, 8, "8 times too high"),
        (120, 100, "near: 1.2 times"),
        (1000, 1001, "near: 1.001 times"),
        (0, 3, "3 too low"),
        (3, -3, "6 too high"),
        (0, 0, "right"),
    ],
)
def test_a_number_that_is_off_says_by_how_much(guess, truth, said):
    assert Number(factor=1.5).compared(guess, truth) == said


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict("programs", "?", x=number()), "write unit and topic, such as '00.programs'"),
        (lambda: predict(NAME, "?"), "has no slot"),
        (lambda: predict(NAME, "?", because=number()), "called because"),
        (lambda: ask().reveal(programs=3), "asks for programs, tail; tail is missing"),
        (lambda: ask().reveal(programs=3, tail="lost", more=1), "more is none of them"),
        (lambda: ask().say(program=3), "program is none of them"),
        (lambda: ask().say(programs="many"), "'many' is not a number"),
        (lambda: ask().say(tail="gone"), "choose one of 'masked', 'lost'"),
        (lambda: choice("one"), "expected two or more"),
        (lambda: number(factor=0.5), "expected 1 for exact, or more"),
    ],
)
def test_a_mistake_is_one_sentence(call, message):
    with pytest.raises(BadArgument, match=re.escape(message)):
        call()


def test_a_progress_file_that_cannot_be_used_never_stops_a_lesson(folder, monkeypatch, capsys):
    (folder / "file").write_text("")
    monkeypatch.setenv("W2W_DATA", str(folder / "file" / "data"))
    guess = ask()
    guess.say(programs=3)
    guess.reveal(programs=3, tail="masked")
    said = shown(capsys)
    assert re.search(r"programs +3 +3 +right", said)
    assert "not kept beyond this notebook" in said


def test_a_guess_that_could_not_be_stored_is_remembered_all_the_same(monkeypatch, capsys):
    guess = ask()
    guess.say(programs=4)
    with monkeypatch.context() as patch:
        patch.setattr(progress, "record_guess", lambda *_: (_ for _ in ()).throw(ProgressUnavailable("locked")))
        guess.say(programs=3)
    guess.reveal(programs=3, tail="masked")
    assert re.search(r"programs +3 +3 +right", shown(capsys))


def test_a_progress_file_that_was_unreadable_is_kept_aside_and_said(folder, capsys):
    guess = ask()
    (folder / "progress.sqlite3").write_bytes(b"this was something else" * 100)
    guess.say(programs=3)
    assert "it is kept as progress.unreadable" in repr(guess)
    guess.reveal(programs=3, tail="masked")
    assert re.search(r"programs +3 +3 +right", shown(capsys))


def test_guesses_of_an_older_lesson_with_other_slots_are_left_aside(folder):
    ask(old=number()).say(old=1)
    ask(tail=number()).say(tail=7)
    assert ask().now.guesses == {}
    with sqlite3.connect(folder / "progress.sqlite3") as connection:
        assert connection.execute("SELECT COUNT(*) FROM guesses").fetchone() == (2,)


def test_the_form_keeps_what_is_entered_and_locks_when_the_answer_is_shown():
    guess = ask()
    form = Form(guess)
    form.controls["programs"].value = "many"
    assert "is not a number" in form.status.value
    form.controls["programs"].value = "4"
    form.controls["tail"].value = "lost"
    assert "Kept: programs: 4; tail: lost. Now run the next cell." in form.status.value
    guess.reveal(programs=3, tail="masked")
    assert all(control.disabled for control in form.controls.values())
    assert "Locked: the answer is below." in form.status.value


def test_a_form_that_is_made_again_shows_the_guess_and_the_answer():
    guess = ask()
    guess.say(programs=4)
    guess.reveal(programs=3, tail="masked")
    form = Form(ask())
    assert form.controls["programs"].value == "4"
    assert form.controls["programs"].disabled
    assert "1.33 times too high" in form.status.value


def test_the_button_of_a_locked_form_opens_a_second_try():
    guess = ask()
    form = Form(guess)
    assert form.button.layout.display == "none"
    form.controls["programs"].value = "4"
    guess.reveal(programs=3, tail="masked")
    assert form.button.layout.display == ""
    form.button.click()
    assert not form.controls["programs"].disabled
    assert form.controls["programs"].value == ""
    assert "Try 2" in form.status.value


def test_where_widgets_do_not_run_the_form_says_what_to_type():
    bundle = Form(ask())._repr_mimebundle_()
    for kind in ("text/plain", "text/html"):
        assert "guess.say(programs=..., tail=...)" in bundle[kind]


def test_the_nearest_choice_is_that_by_ratio():
    assert nearest(0.0021, ("about 1e-5", "about 1e-3")) == "about 1e-3"
    assert nearest(70, ("about 40", "about 120")) == "about 120"
