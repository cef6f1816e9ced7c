"""The recipes of CONTRIBUTING.md, done: what they print is added to one copy of the repository and tested there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("content", "docs", "gpu_utils", "labs", "notebooks", "solutions", "tests", "pyproject.toml")
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^## (Add .*?)\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(
    r"^```python file=(?P<file>\S+)(?: after (?P<after>[^\n]*))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
# What the copy must pass: words of the names of tests, of each recipe.
WANTED = (
    "(test_exercises and 00.programs) or test_facts",
    "test_chips and (A30 or A10 or sm_86)",
    "sm_86 and (test_targets or softmax or matmul_fp16 or fp8_conversions or test_cuda_occupancy)",
    "v_lerp_u8 or szext",
)
FILES = (
    "tests/content/test_exercises.py",
    "tests/content/test_facts.py",
    "tests/unit/test_chips.py",
    "tests/unit/analytic/test_cuda_occupancy.py",
    "tests/unit/virtual/test_targets.py",
    "tests/unit/virtual/test_kernel_set.py",
    "tests/unit/virtual/test_amdgcn_oracle.py",
    "tests/unit/virtual/ptx/test_ptx_arithmetic.py",
)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A copy of the repository in which every recipe was followed, built."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, root / name)
    for recipe in RECIPES.values():
        for block in BLOCK.finditer(recipe):
            write(root / block["file"], block["code"], block["after"])
    built = run(root, "-m", "gpu_utils.cli", "build")
    assert built.returncode == 0, built.stdout + built.stderr
    return root


def write(path: Path, code: str, after: str | None) -> None:
    """Put the code after the only line that says `after`; without one, at the end of the file."""
    text = path.read_text() if path.exists() else ""
    if after is None:
        path.write_text(f"{text}\n\n{code}")
        return
    line = re.compile(rf"^ *{re.escape(after)}\n", re.MULTILINE)
    assert len(line.findall(text)) == 1, f"{path} has not one line {after!r}"
    path.write_text(line.sub(lambda found: found[0] + code, text))


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own in the copy, whose library comes first, with nothing of the surrounding test run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    kept |= {"PYTHONPATH": str(root), "W2W_DATA": str(root / "data")}
    return subprocess.run([sys.executable, *command], cwd=root, capture_output=True, text=True, env=kept)


@pytest.mark.parametrize("title", list(RECIPES))
def test_the_steps_of_a_recipe_are_numbered_and_hold_what_they_tell_you_to_write(title):
    steps = re.findall(r"^\*\*(\d+)\. ", RECIPES[title], re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert BLOCK.search(RECIPES[title])
    if "ten steps" in title:
        assert len(steps) == 10


@pytest.mark.timeout(300)
def test_a_copy_that_followed_the_recipes_has_the_exercise_chip_target_and_instruction(followed):
    assert "programs(n: int" in (followed / "labs" / "00_start.ipynb").read_text()
    facts = (followed / "docs" / "facts.md").read_text()
    assert "| A30 | units | 56 SMs |" in facts
    assert "| sm_86, L2 of A10 | size | 6 MB |" in facts
    tested = run(
        followed,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:nbval",
        "-p",
        "no:xdist",
        *FILES,
        "-k",
        " or ".join(WANTED),
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    passed = re.findall(r"^PASSED (\S+)", tested.stdout, re.MULTILINE)
    for words in ("00.programs", "[A30]", "[A10]", "[sm_86]", "matmul_fp16-sm_86", "v_lerp_u8", "szext"):
        assert any(words in name for name in passed), (words, passed)
