"""`w2w list` in a narrow terminal."""

from __future__ import annotations

from gpu_utils.cli import work as command
from gpu_utils.course import work
from gpu_utils.course.units import UNITS


def test_a_path_is_whole_in_a_terminal_of_80_columns(monkeypatch, capsys):
    rows = [work.Row(unit, True, 11, command.course().work / f"{unit.name}.ipynb") for unit in UNITS]
    monkeypatch.setattr(work, "rows", lambda _: rows)
    monkeypatch.setenv("COLUMNS", "80")
    command.list_units()
    shown = capsys.readouterr().out
    assert all(f"work/{unit.name}.ipynb" in shown for unit in UNITS)
    assert max(map(len, shown.splitlines())) <= 80
