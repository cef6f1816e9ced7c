"""What the guide for teachers names is there: commands and their options, and links."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest
import typer

from gpu_utils.cli.app import COMMANDS
from tests import ROOT

GUIDE = (ROOT / "docs" / "classroom.md").read_text()


def _calls() -> list[tuple[str, list[str]]]:
    """Every `./w2w ...` of the guide: the command, and what follows."""
    lines = re.findall(r"\./w2w ([^`#\n]+)", GUIDE)
    return [(words[0], words[1:]) for words in map(shlex.split, lines)]


def _options(command: str) -> set[str]:
    entry = COMMANDS[command]
    app = typer.Typer(add_completion=False)
    app.command()(getattr(importlib.import_module(f"gpu_utils.cli.{entry.module}"), entry.function))
    return {option for parameter in typer.main.get_command(app).params for option in parameter.opts}


def test_every_command_of_the_guide_exists():
    assert {name for name, _ in _calls()} <= set(COMMANDS)


@pytest.mark.parametrize("command", sorted({name for name, _ in _calls()} & set(COMMANDS)))
def test_every_option_of_the_guide_is_one_of_its_command(command):
    named = {word for name, words in _calls() if name == command for word in words if word.startswith("--")}
    assert named <= _options(command)


def test_the_guide_says_what_is_not_safe():
    assert "**`nbgrader autograde` is not a safe grader.**" in GUIDE
    assert "`--unsafe-no-sandbox`" in GUIDE
