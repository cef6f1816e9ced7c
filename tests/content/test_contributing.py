"""The ten steps of CONTRIBUTING.md, done: the exercise they print is added to a copy of the course and tested there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("content", "gpu_utils", "labs", "notebooks", "solutions", "tests", "pyproject.toml")
BLOCK = re.compile(r"^```python file=(?P<file>\S+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(300)
def test_the_ten_steps_of_contributing_add_an_exercise_that_passes_the_content_tests(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert re.findall(r"^\*\*(\d+)\. ", text, re.MULTILINE) == [str(step) for step in range(1, 11)]
    for name in COPIED:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= 7
    for block in blocks:
        with (tmp_path / block["file"]).open("a") as file:
            file.write("\n\n" + block["code"])

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, env=environment(tmp_path)
        )

    built = run("-m", "gpu_utils.cli", "build")
    assert built.returncode == 0, built.stdout + built.stderr
    assert "programs(n: int" in (tmp_path / "labs" / "00_start.ipynb").read_text()
    tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/content/test_exercises.py", "-k", "00.programs")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert int(re.search(r"(\d+) passed", tested.stdout)[1]) >= 5


def environment(root: Path) -> dict[str, str]:
    """The copy's library first, and nothing of the surrounding test run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return {**kept, "PYTHONPATH": str(root), "W2W_DATA": str(root / "data"), "PYTHONDONTWRITEBYTECODE": "1"}
