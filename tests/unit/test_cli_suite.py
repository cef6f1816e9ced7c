"""The command test: a failing part is counted and fails the run, and the last line counts everything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from gpu_utils.cli import test_cmd
from gpu_utils.cli.test_cmd import Stage, Step, run_stages
from gpu_utils.course import changed as changes
from gpu_utils.course import suite
from gpu_utils.course.paths import Course
from gpu_utils.course.units import UNITS
from gpu_utils.errors import BadArgument, NotWritten

GOOD = "def test_one():\n    pass\n\ndef test_two():\n    pass\n"
MIXED = (
    "import pytest\n\ndef test_bad():\n    assert 0\n\ndef test_error(nothing):\n    pass\n\n"
    "def test_good():\n    pass\n\ndef test_absent():\n    pytest.skip('no GPU')\n"
)


class Runner:
    """Runs stages in a folder and keeps what they printed."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capfd = capfd

    def run(self, *stages: Stage) -> tuple[int, str]:
        return run_stages(Course(self.folder), stages), self._capfd.readouterr().out


@pytest.fixture
def runner(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts in a third of the time
    return Runner(tmp_path, capfd)


def python(name: str, code: str) -> Step:
    return Step(name, ("-S", "-c", code))


def pytest_step(name: str, *arguments: str) -> Step:
    return test_cmd._pytest(name, "-q", *arguments)


def test_all_parts_passing_ends_with_the_counts(runner: Runner) -> None:
    (runner.folder / "test_good.py").write_text(GOOD)
    code, out = runner.run((python("style", ""),), (pytest_step("good", "test_good.py"),))
    assert code == 0
    assert out.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    assert "[2/2] good: ok in " in out
    assert "together" in out
    assert (runner.folder / "build" / "good.xml").is_file()
    assert "test_good::test_one" in (runner.folder / "build" / "times.txt").read_text()


def test_a_failing_part_fails_the_run_and_the_others_still_run(runner: Runner) -> None:
    (runner.folder / "test_mixed.py").write_text(MIXED)
    code, out = runner.run((python("style", "raise SystemExit(3)"),), (pytest_step("mixed", "test_mixed.py"),))
    assert code == 1
    assert out.splitlines()[-1] == "1 passed, 3 failed, 1 skipped"
    assert "[1/2] style: FAILED in " in out
    assert "[2/2] mixed: FAILED in " in out


def test_parts_of_a_stage_run_side_by_side_and_what_they_print_is_not_mixed(runner: Runner) -> None:
    # each waits for the other's file, and so never ends alone
    wait = "import os, time\nopen({!r}, 'w').close()\nwhile not os.path.exists({!r}): time.sleep(0.01)\nprint({!r} * 2)"
    mine, other = (str(runner.folder / name) for name in ("first", "second"))
    started = time.monotonic()
    code, out = runner.run(
        (python("one", wait.format(mine, other, "x\n")), python("two", wait.format(other, mine, "y\n")))
    )
    assert code == 0
    assert time.monotonic() - started < 30
    assert "[1/2] one\nx\nx\n" in out
    assert "[2/2] two\ny\ny\n" in out


def test_a_failure_beside_a_success_is_counted_and_shown(runner: Runner) -> None:
    code, out = runner.run((python("bad", "raise SystemExit('a reason')"), python("good", "")))
    assert code == 1
    assert "a reason\n[1/2] bad: FAILED in " in out
    assert "[2/2] good: ok in " in out


def test_what_failed_is_named_again_at_the_end(runner: Runner) -> None:
    (runner.folder / "test_bad.py").write_text("def test_sum():\n    assert 1 + 1 == 3, 'sums are wrong'\n" + GOOD)
    (runner.folder / "test_crash.py").write_text("import os\nos._exit(9)\n")
    code, out = runner.run((pytest_step("bad", "test_bad.py"), pytest_step("crash", "test_crash.py")))
    assert code == 1
    end = out[out.index("slowest tests") :]
    assert "test_bad::test_sum: AssertionError: sums are wrong" in end
    assert "exit code 9, and no test that failed" in end


def test_no_test_found_is_a_failure(runner: Runner) -> None:
    (runner.folder / "empty").mkdir()
    code, out = runner.run((pytest_step("empty", "empty"),))
    assert code == 1
    assert out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_report_of_an_earlier_run_is_not_counted(runner: Runner) -> None:
    (runner.folder / "build").mkdir()
    (runner.folder / "build" / "gone.xml").write_text('<testsuites><testsuite tests="5"/></testsuites>')
    code, out = runner.run((Step("gone", ("-S", "-c", ""), "build/gone.xml"),))
    assert code == 1
    assert out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_crash_after_good_tests_is_a_failure(runner: Runner) -> None:
    (runner.folder / "test_good.py").write_text(GOOD)
    (runner.folder / "conftest.py").write_text("def pytest_unconfigure():\n    import os\n    os._exit(9)\n")
    code, out = runner.run((pytest_step("good", "test_good.py"),))
    assert code == 1
    assert out.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_the_suite_has_every_part_of_ci() -> None:
    steps = [step for stage in test_cmd.every_stage() for step in stage]
    assert {step.name for step in steps} == {
        *("ruff check", "ruff format", "floors of imports", "types", "notebooks are current"),
        *("tests", "browser", "notebooks run"),
    }
    for step in steps:
        module = step.arguments[step.arguments.index("-m") + 1] if "-m" in step.arguments else "importlinter"
        assert module.split(".")[0] in {"ruff", "mypy", "pytest", "gpu_utils", "importlinter"}
        __import__(module.split(".")[0])


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/content/test_u03_cpp.py::test_a", "03"),
        ("tests.content.test_u03_cpp::test_a", "03"),
        ("tests.unit.test_u00_start::test_block[4096]", "00"),
        ("gpu_utils.exercises.u02_gpu_machine.access::gpu_utils.exercises.u02_gpu_machine.access", "02"),
        ("tests.content.test_exercises::test_misconception[02.converge-wrong_way]", "02"),
        ("tests.content.test_untouched_labs::test_runs[01_gpt2_baseline]", "01"),
        ("tests/content/test_exercises.py::test_every_planned_exercise_exists[03]", "03"),
        ("notebooks.03_porting_to_rocm.ipynb::Cell 4", "03"),
        ("solutions/00_start.ipynb::Cell 4", "00"),
        ("tests.unit.analytic.test_tiles::test_bytes[16-32]", None),
        ("tests.unit.test_work::test_start[01_gpt2_baseline]", None),
        ("tests.content.test_facts::test_a_figure[99]", None),
        ("tests.content.test_contributing::test_the_ten_steps", None),
    ],
)
def test_a_test_belongs_to_the_unit_of_its_file_or_its_case(test: str, unit: str | None) -> None:
    assert suite.unit_of(test) == unit


def test_the_table_names_the_slowest_tests_and_units_over_their_budget() -> None:
    allowed = 60 * suite.BUDGET_MINUTES["00"]
    cases = [
        suite.Case("tests.unit.test_u00_start::test_long", allowed + 6),
        suite.Case("tests.unit.test_u01_figures::test_short", 6.0),
        *(suite.Case(f"tests.unit.test_timing::test_{number}", 0.1) for number in range(20)),
    ]
    lines = suite.table(cases).splitlines()
    assert lines[1].split() == [f"{allowed + 6:.1f}", "tests.unit.test_u00_start::test_long"]
    rows = {line.split()[0]: line for line in lines[lines.index("") + 2 :]}
    row = rows["00"].split()
    assert row[:4] == ["00", "1", f"{allowed / 60 + 0.1:.1f}", str(suite.BUDGET_MINUTES["00"])]
    assert row[4:] == ["over", "its", "budget"]
    assert rows["01"].split() == ["01", "1", "0.1", str(suite.BUDGET_MINUTES["01"])]
    assert rows["library"].split() == ["library", "20", "0.0"]
    assert sum("test_timing" in line for line in lines) == suite.SLOWEST - 2


def test_budgets_are_of_units_that_exist() -> None:
    assert set(suite.BUDGET_MINUTES) <= {unit.number for unit in UNITS}


def test_one_unit_is_its_notebooks_its_tests_and_its_doctests(repo_root: Path) -> None:
    stages = test_cmd.stages_of_units(Course(repo_root), ["03"])
    current, tests, notebooks = (step for stage in stages for step in stage)
    assert current.arguments[-3:] == ("build", "--check", "03")
    assert notebooks.arguments[-1] == "03"
    assert "--unit=03" in tests.arguments
    files = {word for word in tests.arguments if word.startswith(("tests/", "gpu_utils/"))}
    assert files >= {
        *("tests/content/test_exercises.py", "tests/content/test_untouched_labs.py", "tests/unit/test_u03_hipify.py"),
        *("tests/content/test_u03_lesson.py", "gpu_utils/exercises/u03_porting_to_rocm"),
    }
    assert not {"tests/content/test_u02_lesson.py", "tests/unit/test_u00_start.py", "tests/unit/test_chips.py"} & files


def test_the_option_unit_keeps_the_tests_of_that_unit_alone(repo_root: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((repo_root / "tests" / "conftest.py").read_text())
    (tmp_path / "test_u02_a.py").write_text(GOOD)
    (tmp_path / "test_u03_b.py").write_text(GOOD)
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "--rootdir",
            str(tmp_path),
            "--unit=03",
            str(tmp_path),
        ],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(repo_root)},
        capture_output=True,
        text=True,
    )
    assert found.stdout.splitlines()[:2] == ["test_u03_b.py::test_one", "test_u03_b.py::test_two"]
    assert "2/4 tests collected (2 deselected)" in found.stdout


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Stage]]:
    """The stages that run_suite was about to run."""
    seen: list[Sequence[Stage]] = []
    monkeypatch.setattr(test_cmd, "run_stages", lambda here, stages: seen.append(stages) or 0)
    return seen


def test_a_change_that_matters_to_anything_runs_everything(stages, monkeypatch, capsys) -> None:
    monkeypatch.setattr(changes, "changed_files", lambda root, since: ["README.md", "pyproject.toml"])
    with pytest.raises(typer.Exit):
        test_cmd.run_suite(changed=True)
    assert stages == [test_cmd.every_stage()]
    assert "pyproject.toml may matter to anything: everything runs" in capsys.readouterr().out


def test_a_change_runs_the_style_and_what_it_asks_for(stages, monkeypatch, capsys) -> None:
    files = ["README.md", "labs/02_gpu_machine.ipynb", "tests/browser/test_lab_in_jupyterlab.py"]
    monkeypatch.setattr(changes, "changed_files", lambda root, since: files)
    with pytest.raises(typer.Exit):
        test_cmd.run_suite(changed=True)
    names = [[step.name for step in stage] for stage in stages[0]]
    style = ["types", *(step.name for step in test_cmd.STYLE)]
    assert names == [style, ["tests"], ["unit tests"], ["notebooks run"], ["browser"]]
    assert stages[0][1][0].arguments[-1] == "tests/unit/test_readme.py"
    assert "units 02 and " in capsys.readouterr().out


def test_a_unit_and_the_changes_together_are_refused(stages) -> None:
    with pytest.raises(BadArgument, match="give one of them"):
        test_cmd.run_suite(unit=["03"], changed=True)
    with pytest.raises(NotWritten, match="planned"):
        test_cmd.run_suite(unit=["15"])
