"""The command line finds what an answer needs in the learner's other cells, and runs nothing else of them."""

from __future__ import annotations

import json

import pytest

from gpu_utils.grading.check import check
from gpu_utils.grading.notebook import answers
from gpu_utils.grading.program import make_program
from gpu_utils.grading.sandbox import run_apart
from tests.fixtures.notebook_styles import ANSWER, STYLES
from tests.unit.sample_exercises import AFFINE, find_sample


def verdict(folder, *cells):
    made = [
        {"cell_type": "code", "metadata": {"tags": tags.split()}, "source": source, "outputs": []}
        for tags, source in cells
    ]
    path = folder / "lab.ipynb"
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    found = answers(path)
    return check(AFFINE, None, runner=run_apart(found.program(found.find(AFFINE.id)), find_sample))


@pytest.mark.parametrize("style", STYLES)
def test_a_right_answer_passes(style, tmp_path):
    report = verdict(tmp_path, *STYLES[style])
    assert report.passed, report.headline


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ("scale = int('2')", "cell 2 sets scale by a statement that a check does not run"),
        ("with open('/dev/null') as scale: pass", "so move that statement into the answer's cell"),
        ("", "a check runs the setup cell and the answer's cell, and takes functions, classes, imports"),
    ],
)
@pytest.mark.parametrize(
    "answer", ["def affine(x):\n    return scale * x + 1", "b = scale\ndef affine(x):\n    return b*x"]
)
def test_a_name_that_a_check_does_not_take_from_another_cell_is_explained(other, says, answer, tmp_path):
    report = verdict(tmp_path, ("setup", "import torch"), ("", other), (ANSWER, answer))
    assert report.status == "failed"
    assert "name 'scale' is not defined" in report.headline
    assert says in report.headline


def test_an_error_names_the_cell_and_the_line_in_it(tmp_path):
    helper = "import math\n\n\ndef double(x):\n    return 2 * math.nothing"
    report = verdict(
        tmp_path, ("setup", "import torch"), ("", helper), (ANSWER, "def affine(x):\n    return double(x)")
    )
    assert "line 5 of double: return 2 * math.nothing" in report.headline
    report = verdict(tmp_path, ("setup", "\nimport nothing_of_this_name"), (ANSWER, "def affine(x):\n    return x"))
    assert report.headline == (
        "the setup cell itself failed: ModuleNotFoundError: No module named 'nothing_of_this_name' "
        "(line 2: import nothing_of_this_name)"
    )


def test_a_notebook_without_its_setup_cell_says_what_to_do(tmp_path):
    report = verdict(tmp_path, (ANSWER, "def affine(x):\n    return torch.add(2 * x, 1)"))
    assert "this notebook has no cell tagged setup: copy that cell from the untouched lab" in report.headline


def sources(*others, answer="def f():\n    return g()"):
    return {part.name: part.source for part in make_program("", [(5, answer)], list(enumerate(others, 1))).parts}


def test_only_what_is_needed_is_taken_and_keeps_its_lines():
    cell = "import os\nimport math\n\n@staticmethod\ndef g():\n    return h + math.pi\nprint(1)\nh = 1, 2\nunused = 3"
    assert sources(cell)["cell 1"] == "\nimport math\n\n@staticmethod\ndef g():\n    return h + math.pi\n\nh = 1, 2\n"


@pytest.mark.parametrize("statement", ["g = run()", "g = [h(x) for x in y]", "g += 1", "for g in y: pass", "g.a = 1"])
def test_a_statement_that_runs_something_is_not_taken(statement):
    assert list(sources(statement)) == ["cell 5"]


@pytest.mark.parametrize("statement", ["g = 1", "g: int = 2", "f, g = 1, 2", "g = lambda: run()", "class g: pass"])
def test_a_definition_is_taken(statement):
    assert "cell 1" in sources(statement)


def test_a_constant_of_triton_is_taken():
    assert "cell 1" in sources("g = tl.constexpr(64)")
    assert "cell 1" in sources("g: tl.constexpr = triton.language.constexpr(64)")


def test_a_chain_of_definitions_is_followed_and_a_circle_ends():
    assert set(sources("def g(): return h()", "def h(): return g() + k", "k = 3", "other = 4")) == {
        *("cell 1", "cell 2", "cell 3", "cell 5")
    }


def test_deeply_nested_branches_are_read():
    assert sources("if a:\n    b = 1\n" + "elif a:\n    b = 2\n" * 300)["cell 5"]
