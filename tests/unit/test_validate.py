"""Every way in which a notebook can fail to run is found, soon, and named."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gpu_utils.cli.build import validate as command
from gpu_utils.course.build import build
from gpu_utils.course.paths import Course
from gpu_utils.course.validate import NotebookRun, notebooks_to_validate, run_notebooks
from gpu_utils.errors import ContentError, NotWritten

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
NOON = datetime(2026, 1, 2, 12, 0, 0)
PATIENCE = 4.0  # the limit of the cell that never ends, in seconds


@pytest.fixture(scope="module")
def runs() -> dict[str, NotebookRun]:
    """All run_*.ipynb of the fixtures: those that end in one go, and beside them the one that does not."""
    endless = FIXTURES / "run_cell_never_ends.ipynb"
    paths = sorted(set(FIXTURES.glob("run_*.ipynb")) - {endless})
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(run_notebooks, ROOT, [endless], strict=True, cell_seconds=PATIENCE)
        results = [run_notebooks(ROOT, paths, strict=True), waiting.result()]
    for result in results:
        assert result.exit_code == 1
        assert not result.ok
    return {run.path.stem.removeprefix("run_"): run for result in results for run in result.runs}


@pytest.mark.parametrize("name", ["passes", "expected_error", "in_an_unknown_kernel", "strict_with_private_folders"])
def test_a_good_notebook_passes(runs, name):
    assert runs[name].failures == []
    assert runs[name].ok
    assert runs[name].seconds > 0


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("cell_raises", "Cell 1: Cell execution caused an exception"),
        ("check_that_fails", "Cell 2: Cell execution caused an exception"),
        ("kernel_dies", "Cell 1: The kernel died while it ran this cell: exit code 3"),
        ("kernel_is_killed", "Cell 1: The kernel died while it ran this cell: stopped by SIGKILL"),
        ("cell_never_ends", f"Cell 1: Timeout of {PATIENCE:g} seconds exceeded executing cell"),
        ("expected_error_is_missing", "Cell 0: The cell should end in an error and did not"),
    ],
)
def test_a_faulty_notebook_fails_with_its_reason(runs, name, failure):
    assert not runs[name].ok
    assert [text.split("\n")[0].split(";")[0] for text in runs[name].failures] == [failure]


def test_a_failing_check_shows_its_report(runs):
    (failure,) = runs["check_that_fails"].failures
    assert "CheckFailed" in failure
    assert "00.vector_add" in failure


def test_the_slowest_cell_is_named(runs):
    cell, seconds = runs["cell_never_ends"].slowest
    assert cell == "Cell 1"
    assert PATIENCE <= seconds <= runs["cell_never_ends"].seconds


def test_the_failure_quotes_the_cell_and_its_traceback_without_colours(runs):
    (failure,) = runs["cell_raises"].failures
    assert "print(undefined_name)" in failure
    assert "NameError: name 'undefined_name' is not defined" in failure
    assert "\x1b" not in failure


def test_what_comes_after_a_dead_kernel_or_a_timeout_is_not_run(runs):
    assert (runs["kernel_dies"].passed, runs["kernel_dies"].not_run) == (1, 2)
    assert (runs["cell_never_ends"].passed, runs["cell_never_ends"].not_run) == (1, 1)


def test_a_kernel_that_dies_between_cells_is_a_failure(runs):
    run = runs["kernel_dies_between_cells"]
    assert len(run.failures) == 1
    assert "The kernel died" in run.failures[0]
    assert not run.ok


def test_a_dead_kernel_is_found_long_before_the_limit_of_the_cell():
    (run,) = run_notebooks(ROOT, [FIXTURES / "run_kernel_dies.ipynb"], strict=False, cell_seconds=600).runs
    assert not run.ok
    assert run.seconds < 60


def test_the_kernel_is_the_python_that_runs_the_tests(tmp_path):
    source = f"import sys\nassert sys.executable == {sys.executable!r}, sys.executable\nimport gpu_utils"
    path = tmp_path / "which.ipynb"
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    seen = []
    result = run_notebooks(ROOT, [path], strict=False, cell_seconds=60, on_cell=seen.append)
    assert result.ok, result.output
    assert seen == [f"{tmp_path.name}/which.ipynb"]


def test_nothing_to_run_is_a_failure():
    with pytest.raises(ContentError, match="no notebooks found"):
        run_notebooks(ROOT, [], strict=True)


def test_a_notebook_without_code_is_a_failure(tmp_path):
    path = tmp_path / "empty.ipynb"
    path.write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    with pytest.raises(ContentError, match="no code to run"):
        run_notebooks(ROOT, [path], strict=True)


@pytest.fixture
def small(tmp_path, monkeypatch) -> Course:
    folder = tmp_path / "content" / "00_start"
    folder.mkdir(parents=True)
    (folder / "lesson.py").write_text("# %%\nx = 1\n")
    (folder / "lab.py").write_text(LAB)
    here = Course(tmp_path)
    build(here, here.written(), NOON)
    monkeypatch.setattr("gpu_utils.cli.build.course", lambda: here)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("gpu_utils.course.validate.WORKERS", 1)  # two start three pytests for two tiny notebooks
    return here


LAB = """# %% imports tags=["setup"]
def check(exercise):
    assert one() == 1

# %% 00.one tags=["answer", "00.one"]
def one():
    # BEGIN SOLUTION
    return 1
    # END SOLUTION

# %% tags=["check"]
check("00.one")
"""


def run_command(*arguments: str):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_runs_lessons_and_solutions_and_not_labs(small):
    result = run_command()
    assert result.exit_code == 0, result.output
    assert "notebooks/00_start.ipynb" in result.output
    assert "solutions/00_start.ipynb" in result.output
    assert "labs/" not in result.output
    assert "2 of 2 notebooks ran without a fault" in result.output


def test_the_command_fails_when_a_solution_fails(small):
    path = small.content / "00_start" / "lab.py"
    path.write_text(LAB.replace("return 1", "return 2"))
    build(small, small.written(), NOON)
    result = run_command("00")
    assert result.exit_code == 1
    assert "solutions/00_start.ipynb, Cell 2: Cell execution caused an exception" in result.output
    assert "1 of 2 notebooks" in result.output


def test_a_unit_that_is_planned_or_not_built_is_one_sentence(small):
    with pytest.raises(NotWritten, match="planned"):
        notebooks_to_validate(small, ["05"])
    (small.root / "solutions" / "00_start.ipynb").unlink()
    with pytest.raises(ContentError, match="w2w build"):
        notebooks_to_validate(small, [])
