"""What a sentence of the course tells somebody to type works where they are, with no environment activated."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_utils import command

ROOT = command.SCRIPT.parent
NAMES = "study|test|list|start|reset|check|hint|status|doctor|build|validate|bench"
BARE = re.compile(rf"(?<![\w./])w2w (?:{NAMES})\b")


@pytest.fixture(autouse=True)
def nothing_is_activated(monkeypatch):
    monkeypatch.setattr(command.shutil, "which", lambda name: None)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


@pytest.mark.parametrize(
    ("folder", "typed"),
    [(".", "./w2w list"), ("docs", "../w2w list"), ("docs/images", "../../w2w list"), ("/", f"{command.SCRIPT} list")],
)
def test_the_path_of_the_command_is_that_from_the_present_folder(monkeypatch, folder, typed):
    monkeypatch.chdir(ROOT / folder)
    assert command.w2w("list") == typed
    program = shlex.split(command.w2w())[0]
    assert (Path.cwd() / program).resolve() == command.SCRIPT


def test_a_path_with_a_space_is_quoted(monkeypatch, tmp_path):
    course = tmp_path / "my course"
    course.mkdir()
    (course / "w2w").touch()
    monkeypatch.setattr(command, "SCRIPT", course / "w2w")
    monkeypatch.chdir("/")
    assert shlex.split(command.w2w("start 00")) == [str(course / "w2w"), "start", "00"]


def test_a_deleted_folder_gets_the_whole_path(monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert command.w2w() == str(command.SCRIPT)


def test_in_an_activated_environment_it_is_called_by_its_name(monkeypatch):
    monkeypatch.setattr(command.shutil, "which", lambda name: str(Path(sys.prefix, "bin", name)))
    assert command.w2w("status") == "w2w status"
    monkeypatch.chdir(ROOT)
    assert command.script() == "./w2w"  # only the script makes environments


def test_a_w2w_of_another_environment_is_not_this_one(monkeypatch):
    monkeypatch.setattr(command.shutil, "which", lambda name: f"/opt/other/bin/{name}")
    monkeypatch.chdir(ROOT)
    assert command.w2w() == "./w2w"


def test_a_notebook_counts_from_the_folder_of_the_course(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.chdir(ROOT / "docs")
    assert command.w2w("hint 00.saxpy") == "./w2w hint 00.saxpy"


def learners_texts() -> list[Path]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [*pages, *sorted((ROOT / "content").glob("*/*.py"))]


@pytest.mark.parametrize("path", learners_texts(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_page_and_no_lesson_tells_anyone_to_type_what_is_not_found(path):
    assert BARE.findall(path.read_text("utf-8").replace("then `w2w study` is the same program", "")) == []


def test_what_the_program_prints_does_not_either():
    """Every `w2w name` in the help of all commands has its path."""
    code = (
        "import sys\n"
        "from gpu_utils.cli import app\n"
        f"for name in {NAMES.split('|')!r}:\n"
        "    sys.argv = ['w2w', name, '--help']\n"
        "    try:\n"
        "        app.main()\n"
        "    except SystemExit:\n"
        "        pass\n"
    )
    elsewhere = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=elsewhere, capture_output=True, text=True)
    shown = done.stdout
    assert shown.count("Usage: ./w2w ") == len(NAMES.split("|"))
    assert BARE.findall(shown) == []
