"""bench says at once, not after minutes, when its result cannot be written."""

from __future__ import annotations

import pytest

from gpu_utils.cli import bench as module
from gpu_utils.errors import CannotWrite


@pytest.fixture(autouse=True)
def measured_nothing(monkeypatch):
    def never():
        raise AssertionError("measured before it was known that the result can be written")

    for name in ("_checks", "_import_seconds", "_start_seconds", "_training"):
        monkeypatch.setattr(module, name, never)


def test_a_folder_as_the_result_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(CannotWrite, match="is a folder; give the name of a file"):
        module.bench(out=tmp_path)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match="cannot write"):
        module.bench(out=tmp_path / "file" / "bench.json")
