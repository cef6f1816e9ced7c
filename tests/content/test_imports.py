"""Lessons and labs import from gpu_utils and gpu_utils.lesson, and docs/imports.md lists what is there."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_utils
from gpu_utils import lesson

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "content").rglob("*.py"), *(ROOT / "gpu_utils" / "exercises").glob("*/files/**/*.py")])
OFFERED = {"gpu_utils": {*gpu_utils.__all__, "lesson"}, "gpu_utils.lesson": set(lesson.__all__)}


def imported(path: Path) -> set[tuple[str, str]]:
    """(module, name) of everything that a file takes from the library; name is "" for `import gpu_utils.x`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lesson":
            found.add(("gpu_utils.lesson", node.attr))  # after `from gpu_utils import lesson`
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    return {(module, name) for module, name in found if module.split(".")[0] == "gpu_utils"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_learners_read_imports_public_names_only(path):
    hidden = {f"from {module} import {name}" for module, name in imported(path) if name not in OFFERED.get(module, ())}
    assert not hidden, "give the name a line in gpu_utils/lesson.py and in docs/imports.md"


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "lab.py"], ids=lambda path: path.parent.name)
def test_a_lab_reads_nothing_below_content(path):
    assert ("gpu_utils.lesson", "unit_folder") not in imported(path)
    code = [node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)]
    assert not [text for text in code if isinstance(text, str) and "content/" in text]


def test_below_course_the_library_reads_nothing_of_content():
    library = [path for path in (ROOT / "gpu_utils").rglob("*.py") if path.parent.name not in ("course", "cli")]
    assert not [path for path in library if re.search(r"[\"'/]content[\"'/]", without_docstrings(path))]


def without_docstrings(path: Path) -> str:
    """The code of a file, for a search: comments and texts that stand alone are left out."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        for child in getattr(node, "body", []) if not isinstance(node, (ast.Lambda, ast.IfExp)) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                child.value.value = ""
    return ast.unparse(tree)


def test_every_name_for_lessons_is_used_by_one():
    used = {name for path in FILES for module, name in imported(path) if module == "gpu_utils.lesson"}
    assert set(lesson.__all__) == used


def test_a_name_has_one_home():
    names = [name for modules in lesson.GROUPS.values() for group in modules.values() for name in group]
    assert len(names) == len({*names, *gpu_utils.__all__}) - len(gpu_utils.__all__)


@pytest.mark.parametrize("name", lesson.__all__)
def test_a_name_for_lessons_can_be_loaded_from_where_it_is_said_to_live(name):
    (home,) = (module for modules in lesson.GROUPS.values() for module, names in modules.items() if name in names)
    assert getattr(lesson, name) is getattr(importlib.import_module(home), name)


def test_the_page_on_imports_lists_every_name_under_its_group():
    page = (ROOT / "docs" / "imports.md").read_text("utf-8")
    first, second = page.split("## `from gpu_utils.lesson import ...`")
    assert named(first) == {*gpu_utils.__all__}
    tables = re.split(r"^\| (\w.*?) \| \|$", second, flags=re.MULTILINE)[1:]
    listed = {title: named(rows) for title, rows in zip(tables[::2], tables[1::2], strict=True)}
    groups = lesson.GROUPS.items()
    assert listed == {title: {name for names in homes.values() for name in names} for title, homes in groups}


def named(rows: str) -> set[str]:
    """The names in code in the first column of a table."""
    return {name for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def test_importing_a_table_of_a_lesson_loads_nothing_heavy():
    script = "import sys; from gpu_utils.lesson import TARGETS; print({'torch', 'triton', 'IPython'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="WaveFigure"):
        lesson.WaveFigur  # noqa: B018
