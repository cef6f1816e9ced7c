"""An untouched lab runs to its end: every check says NOT STARTED, and nothing ends in an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbclient import NotebookClient

from gpu_utils.course.ipynb import nbformat
from gpu_utils.course.paths import Course

HERE = Course(Path(__file__).parents[2])
LABS = sorted((HERE.root / "labs").glob("*.ipynb"))


def text_of(cell) -> str:
    shown = [output.get("data", {}).get("text/plain", output.get("text", "")) for output in cell.outputs]
    return "\n".join(shown)


def test_there_are_labs():
    assert LABS


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_an_untouched_lab_runs_to_its_end_with_not_started(path, tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(HERE.root))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    monkeypatch.delenv("W2W_STRICT", raising=False)
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    checks = [cell for cell in notebook.cells if "check" in cell.metadata.get("tags", [])]
    assert checks
    for cell in checks:
        assert "NOT STARTED" in text_of(cell), cell.source
