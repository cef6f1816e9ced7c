"""The command test: a failing part is counted and fails the run, and the last line counts everything."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from gpu_utils.cli import test_cmd as suite
from gpu_utils.course import paths

GOOD = "def test_one():\n    pass\n\ndef test_two():\n    pass\n"
MIXED = (
    "import pytest\n\ndef test_bad():\n    assert 0\n\ndef test_error(nothing):\n    pass\n\n"
    "def test_good():\n    pass\n\ndef test_absent():\n    pytest.skip('no GPU')\n"
)


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "course", lambda: paths.Course(tmp_path))
    return tmp_path


def _run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *steps: suite.Step) -> tuple[int, str]:
    monkeypatch.setattr(suite, "STEPS", steps)
    with pytest.raises(typer.Exit) as stop:
        suite.run_suite()
    return stop.value.exit_code, capfd.readouterr().out


def _python(name: str, code: str) -> suite.Step:
    return suite.Step(name, ("-c", code))


def test_all_parts_passing_ends_with_the_counts(
    course: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (course / "test_good.py").write_text(GOOD)
    code, out = _run(monkeypatch, capfd, _python("style", ""), suite._pytest("good", "-q", "test_good.py"))
    assert code == 0
    assert out.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    assert "[2/2] good: ok in " in out
    assert "together" in out
    assert (course / "build" / "good.xml").is_file()


def test_a_failing_part_fails_the_run_and_the_others_still_run(
    course: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (course / "test_mixed.py").write_text(MIXED)
    parts = (_python("style", "raise SystemExit(3)"), suite._pytest("mixed", "-q", "test_mixed.py"))
    code, out = _run(monkeypatch, capfd, *parts)
    assert code == 1
    assert out.splitlines()[-1] == "1 passed, 3 failed, 1 skipped"
    assert "[1/2] style: FAILED in " in out
    assert "[2/2] mixed: FAILED in " in out


def test_no_test_found_is_a_failure(
    course: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (course / "empty").mkdir()
    code, out = _run(monkeypatch, capfd, suite._pytest("empty", "empty"))
    assert code == 1
    assert out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_report_of_an_earlier_run_is_not_counted(
    course: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (course / "build").mkdir()
    (course / "build" / "gone.xml").write_text('<testsuites><testsuite tests="5"/></testsuites>')
    code, out = _run(monkeypatch, capfd, suite.Step("gone", ("-c", ""), "build/gone.xml"))
    assert code == 1
    assert out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_crash_after_good_tests_is_a_failure(
    course: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (course / "test_good.py").write_text(GOOD)
    (course / "conftest.py").write_text("def pytest_unconfigure():\n    import os\n    os._exit(9)\n")
    code, out = _run(monkeypatch, capfd, suite._pytest("good", "-q", "test_good.py"))
    assert code == 1
    assert out.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_the_suite_has_every_part_of_ci() -> None:
    names = [step.name for step in suite.STEPS]
    assert names == [
        *("ruff check", "ruff format", "floors of imports", "types", "notebooks are current"),
        *("tests", "browser", "notebooks run"),
    ]
    for step in suite.STEPS:
        module = step.arguments[step.arguments.index("-m") + 1] if "-m" in step.arguments else "importlinter"
        assert module.split(".")[0] in {"ruff", "mypy", "pytest", "gpu_utils", "importlinter"}
        __import__(module.split(".")[0])
