"""check, hint, solution and progress as a notebook calls them."""

from __future__ import annotations

import builtins
import contextlib

import pytest

from gpu_utils import check, hint, progress, solution
from gpu_utils.course import sources
from gpu_utils.errors import CheckFailed, UnknownName
from gpu_utils.grading import progress as store
from gpu_utils.ui import notebook

EXERCISE = "01.param_count"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    return tmp_path


def param_count(vocab_size, block_size, n_layer, n_embd):
    return 124_439_808


def test_check_takes_the_answer_from_the_callers_globals_and_records_it():
    report = check(EXERCISE)
    assert report.status == "failed"
    (row,) = store.standing([EXERCISE])
    assert row.attempts == 1


def test_check_says_when_there_is_no_answer():
    assert check("00.saxpy").status == "not started"


def test_an_unknown_exercise_offers_the_nearest():
    with pytest.raises(UnknownName, match=r"did you mean '00\.saxpy'"):
        check("00.sapxy")


def test_an_unknown_exercise_is_one_sentence_in_a_notebook():
    with pytest.raises(UnknownName) as caught:
        check("00.vectoradd")
    assert len(caught.value._render_traceback_()) == 1


def test_a_check_whose_progress_cannot_be_stored_still_reports(folder, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("W2W_DATA", str(folder / "file"))
    report = check(EXERCISE)
    assert report.status == "failed"
    assert any("progress could not be stored" in note for note in report.notes)


def test_a_strict_check_raises_when_it_does_not_pass(monkeypatch):
    monkeypatch.setenv("W2W_STRICT", "1")
    with pytest.raises(CheckFailed, match="FAILED"):
        check(EXERCISE)


@pytest.mark.parametrize("ci", ["", "1"])
def test_a_strict_check_that_cannot_be_graded_raises_in_ci_only(monkeypatch, ci):
    monkeypatch.setenv("W2W_STRICT", "1")
    monkeypatch.setenv("W2W_CI", ci)
    with pytest.raises(CheckFailed, match="NOT GRADED") if ci else contextlib.nullcontext():
        report = check("00.vector_add", lambda x, y: x + y, backends=["cpu"])  # a backend without kernels
        assert report.status == "not graded"


def test_hints_grow_and_are_recorded():
    titles = [hint(EXERCISE).title for _ in range(4)]
    assert [title.split()[1] for title in titles] == ["1", "2", "3", "3"]
    assert hint(EXERCISE, 1).title.startswith("Hint 1")
    assert store.hints_used(EXERCISE) == 3


@pytest.mark.parametrize("strength", [0, 4, -1])
def test_there_are_three_strengths(strength):
    with pytest.raises(ValueError, match="1, 2 or 3"):
        hint(EXERCISE, strength)


@pytest.mark.parametrize(("reply", "shown"), [("y", True), ("", False), ("no", False)])
def test_a_solution_asks_first(monkeypatch, reply, shown):
    monkeypatch.setattr(builtins, "input", lambda question: reply)
    assert bool(solution(EXERCISE).code) is shown
    assert store.standing([EXERCISE])[0].solution_seen is shown


def test_a_solution_is_not_shown_when_there_is_no_one_to_ask(monkeypatch):
    def nobody(question):
        raise EOFError

    monkeypatch.setattr(builtins, "input", nobody)
    assert solution(EXERCISE).code == ""


def test_a_solution_carries_code_and_explanation():
    shown = solution(EXERCISE, confirm=True)
    assert "def param_count" in shown.code
    assert "SOLUTION" not in shown.code
    assert shown.text


def test_progress_lists_every_exercise_and_says_what_was_passed():
    notebook.record(check(EXERCISE, sources.load_solution(EXERCISE)))
    shown = repr(progress())
    assert "✓ passed" in shown
    assert "00.vector_add" in shown
    assert "1 of" in shown


def test_progress_that_cannot_be_read_is_said_and_the_list_is_still_there(folder):
    (folder / "progress.sqlite3").mkdir()
    shown = repr(progress())
    assert "00.vector_add" in shown
    assert "progress could not be stored" in shown
