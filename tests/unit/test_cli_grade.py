"""`w2w check`, `hint` and `status`: each answer is a process of its own, and costs only its own exercise."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gpu_utils
from gpu_utils import command, exercises
from gpu_utils.cli import app

ROOT = Path(gpu_utils.__file__).parents[1]
HOSTILE = {
    "02.occupancy": "import os\ndef occupancy(launches, target):\n    os._exit(7)\n",
    "02.bank_conflicts": "def bank_conflicts(:\n",
    "02.converge": "1 / 0\ndef converge():\n    pass\n",
}
RIGHT = ("02.best_tile", "02.serve")


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("W2W_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def w2w(monkeypatch, capsys):
    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["w2w", *arguments])
        with pytest.raises(SystemExit) as ended:
            app.main()
        return ended.value.code, capsys.readouterr().out

    return run


def test_a_hostile_answer_costs_its_own_exercise_and_the_others_are_checked(w2w, checkout):
    notebook = json.loads((ROOT / "solutions" / "02_gpu_machine.ipynb").read_text())
    kept = []
    for cell in notebook["cells"]:
        meant = cell["metadata"].get("w2w", {})
        if meant.get("role") == "answer" and meant["exercise"] in HOSTILE:
            cell["source"] = HOSTILE[meant["exercise"]]
        if meant.get("exercise") in (*HOSTILE, *RIGHT, None):
            kept.append(cell)
    copy = checkout / "copy.ipynb"
    copy.write_text(json.dumps({**notebook, "cells": kept}))
    code, shown = w2w("check", "02", "--notebook", str(copy))
    assert code == 1
    assert f"{len(RIGHT)} of {len(exercises.ids('02'))} exercises passed." in shown
    assert "the process ended (exit code 7)" in " ".join(shown.split())
    assert "is not valid Python" in shown
    assert "ZeroDivisionError" in shown
    assert "NOT STARTED 02.coalesce" in shown
    assert all(f"PASSED {name}" in shown for name in RIGHT)
    code, shown = w2w("status")
    assert code == 0
    assert f"2 of {len(exercises.ids())} exercises passed." in shown


def test_a_check_of_an_unknown_exercise_or_without_a_copy_says_what_to_do(w2w, monkeypatch, checkout):
    assert "did you mean '02.converge'" in w2w("check", "02.convergee")[0]
    for part in ("content", "gpu_utils"):
        (checkout / part).symlink_to(ROOT / part)
    monkeypatch.chdir(checkout)
    assert (
        w2w("check", "02")[0]
        == f"w2w: there is no work/02_gpu_machine.ipynb; make your copy with: {command.w2w('start 02')}"
    )


def test_hints_grow_and_a_unit_has_none(w2w):
    assert w2w("hint", "02.serve")[1].startswith("Hint 1 of 3 for 02.serve\n")
    assert w2w("hint", "02.serve")[1].startswith("Hint 2 of 3 for 02.serve\n")
    assert "a hint is for one exercise; of unit 00 there are 00.platform, 00.vector_add" in w2w("hint", "00")[0]
