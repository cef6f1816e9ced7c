"""The program w2w as a whole: its commands, their help, and how failures look."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_utils.cli import app
from gpu_utils.command import w2w
from gpu_utils.errors import WorkConflict

DESIGNED = {
    *("study", "test", "list", "start", "reset", "check", "hint", "status"),
    *("doctor", "build", "validate", "bench", "profile", "diff"),
    *("release", "grade", "gradebook", "regrade", "sample-class"),
}


def _w2w(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gpu_utils.cli", *arguments], capture_output=True, text=True)


def _main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["w2w", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return stop.value.code


def test_the_commands_are_those_of_the_design() -> None:
    assert set(app.COMMANDS) == DESIGNED


def test_help_is_there_at_once_and_imports_nothing_heavy() -> None:
    started = time.perf_counter()
    shown = _w2w("--help")
    assert time.perf_counter() - started < 2  # 0.15 s on an idle machine
    assert shown.returncode == 0
    for name, entry in app.COMMANDS.items():
        assert f" {name} " in shown.stdout
        assert entry.line in " ".join(shown.stdout.replace("│", " ").split())
    code = "import sys; sys.argv = ['w2w', '--help']; import atexit; from gpu_utils.cli import main\n"
    code += (
        "atexit.register(lambda: print(*(set(sys.modules) & {'torch', 'triton', 'jupyterlab', 'numpy', 'IPython'})))"
    )
    code += "\nmain()"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.splitlines()[-1].strip() == ""


def test_no_arguments_show_the_help() -> None:
    assert f"Usage: {w2w()}" in _w2w().stdout + _w2w().stderr


@pytest.mark.parametrize("name", sorted(DESIGNED))
def test_every_command_has_help_with_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, name, "--help") == 0
    shown = capsys.readouterr().out
    assert f"Usage: {w2w(name)}" in shown
    assert f"Example: ./w2w {name}" in " ".join(shown.split())


def test_an_unknown_command_offers_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, "studdy") == 2
    assert "No such command 'studdy'. Did you mean 'study'?" in capsys.readouterr().err


def test_an_error_of_the_course_is_one_sentence_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_utils.cli import work

    def refuse() -> None:
        raise WorkConflict("work/00_start.ipynb is there already")

    monkeypatch.setattr(work, "list_units", refuse)
    assert _main(monkeypatch, "list") == "w2w: work/00_start.ipynb is there already"


def test_an_unknown_unit_is_one_sentence_without_a_traceback(tmp_path: Path) -> None:
    refused = _w2w("start", "99")
    assert refused.returncode == 1
    assert refused.stderr.startswith("w2w: ")
    assert "Traceback" not in refused.stderr
