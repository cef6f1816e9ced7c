"""Why an answer is so stays out of the notebook, where it would be read under the question, and is shown with it."""

from __future__ import annotations

import ast

import pytest

from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.reasons import told, told_of, untold
from gpu_utils.errors import ContentError
from gpu_utils.ui import predict as module
from gpu_utils.ui.slots import number

ASK = '# %% ask\nguess = predict("00.programs", "How many?", x=number())\n\n'


def cells_of(reveal: str) -> list[Cell]:
    return parse_cells(f"{ASK}# %% answer\nn = 3\n{reveal}\nprint(n)\n", "lesson.py")


@pytest.mark.parametrize(
    ("reveal", "left"),
    [
        ('guess.reveal(x=n, because="so")', "guess.reveal(x=n)"),
        ('guess.reveal(because="so", x=n)', "guess.reveal(x=n)"),
        ('guess.reveal(x=n, because="so",)', "guess.reveal(x=n)"),
        ('guess.reveal(\n    x=n,\n    because="so",\n)', "guess.reveal(\n    x=n,\n)"),
        ('guess.reveal(\n    x=n,\n    because="s"\n    "o"\n)', "guess.reveal(\n    x=n,\n)"),
        ('guess.reveal(\n    because="4 × 2, so",\n    x=n,\n)', "guess.reveal(\n    x=n,\n)"),
        ("guess.reveal(x=n)", "guess.reveal(x=n)"),
    ],
)
def test_only_the_reason_is_cut(reveal, left):
    source = untold(cells_of(reveal)[1])
    assert source.rstrip() == f"n = 3\n{left}\nprint(n)"
    ast.parse(source)


def test_a_reason_is_found_by_the_name_of_its_prediction():
    assert told(cells_of('guess.reveal(x=n, because="4 × 2, " "so")'), "lesson.py") == {"00.programs": "4 × 2, so"}
    assert told(cells_of("guess.reveal(x=n)"), "lesson.py") == {}


def test_a_computed_reason_is_refused_with_its_line():
    with pytest.raises(ContentError, match=r"lesson.py:6: the because of 00.programs is computed"):
        told(cells_of('guess.reveal(x=n, because=f"{n} of them")'), "lesson.py")


def test_a_revealed_answer_shows_the_reason_of_the_lesson(monkeypatch, capsys):
    monkeypatch.setattr(module, "told_of", lambda unit: {f"{unit}.programs": "10 / 4 is 2.5"})
    guess = module.predict("00.programs", "How many?", x=number())
    guess.reveal(x=3)
    assert "10 / 4 is 2.5" in capsys.readouterr().out


def test_a_prediction_of_ones_own_has_none(capsys):
    guess = module.predict("00.my_own", "How many?", x=number())
    guess.reveal(x=3)
    assert "It is" in capsys.readouterr().out
    assert "00.my_own" not in told_of("00")
